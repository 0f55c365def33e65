"""Width on one tensor rank: columns of products, rows of the vocabulary.

Arrays have shape K, one entry per shard.
"""

from collections.abc import Sequence

import numpy as np

from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Model
from forerun.spaces.models.parts import Width
from forerun.spaces.strategies import Context


def local(width: Width, tp: Floats) -> Floats:
    """Columns of ``width`` on one of ``tp`` tensor ranks."""
    if not width.cut:
        return np.full_like(tp, width.whole)
    return np.asarray(np.maximum(width.count / tp, 1.0) * width.each)


def locals_of(widths: Sequence[Width], tp: Floats) -> Floats:
    """Sum of the columns of all ``widths`` on one of ``tp`` tensor ranks."""
    return sum((local(width, tp) for width in widths), np.zeros_like(tp))


def loss_vocab(context: Context, tp: Floats) -> Floats:
    """Rows of the vocabulary in one tensor rank's loss."""
    rows = padded_vocab(context.model, tp)
    return rows * tp if context.framework.gathered_logits else rows


def padded_vocab(model: Model, tp: Floats) -> Floats:
    """Rows of the vocabulary on one tensor rank: Megatron pads it to a multiple of 128 * tp."""
    return np.asarray(np.ceil(model.vocab / (128 * tp)) * 128)
