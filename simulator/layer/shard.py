"""Degrees and microbatch size of a layer, which determine its cost on one device."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.eight_bit import EIGHT_BIT, FOUR_BIT, recipe_of, weight_layouts
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Layer
from forerun.spaces.strategies import Context, StrategyTable

LAYER_AXES = ("tp", "cp", "ep", "etp", "mbs", "sp", "recompute")
"""Axes in the time and memory of one layer on one microbatch; dp, pp and others do not change them. See also
``layer_axes``."""

BUFFER_BYTES = 4.0
"""Bytes per parameter of separately accumulated gradients."""

_BYTES = {"fp32": 4.0, "tf32": 4.0}
"""Bytes of an activation where they are not those of half precision, 2 (fp8 training keeps activations in bf16)."""


def saved_input_bytes(precision: str) -> float:
    """Return the bytes of a product's input value kept for the weight gradient.

    A value takes one byte in 8-bit training, where Transformer Engine keeps the cast input.
    """
    return 1.0 if precision in EIGHT_BIT else activation_bytes(precision)


def parameter_bytes(context: Context) -> tuple[float, float]:
    """Return the bytes of a layer's parameter as it is stored, and as it is gathered."""
    profile, precision = context.framework, context.workload.precision
    width, recipe = activation_bytes(precision), recipe_of(context)
    if recipe is None:
        return width, width
    layouts = weight_layouts(context, recipe) * recipe.weight_bytes
    if profile.eight_bit_parameters and precision not in FOUR_BIT:  # 4-bit parameters are stored in half precision
        return layouts, recipe.weight_bytes if recipe.gathers_weights else width
    return width + layouts * profile.eight_bit_copies, width


def activation_bytes(precision: str) -> float:
    """Bytes of one activation or weight, stored or sent."""
    return _BYTES.get(precision, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """K distinct shards of a layer: degrees as floats, shape K each."""

    tp: Floats
    cp: Floats
    ep: Floats
    etp: Floats
    mbs: Floats
    sp: NDArray[np.bool_]
    recompute: NDArray[np.int64]
    """Number of a ``Recompute``."""
    tokens: Floats
    """Tokens of one microbatch on one context rank."""
    inner_tokens: Floats
    """Tokens of one tensor rank between the tensor-parallel blocks (all tokens without sequence parallelism)."""
    separate_fp32: NDArray[np.bool_]
    """Whether gradients are accumulated in a separate fp32 buffer."""
    away: Floats
    """Share (0 to 1) of the layer's kept tensors in host memory between its passes."""

    def __len__(self) -> int:
        return len(self.tp)


def layer_axes(context: Context) -> tuple[str, ...]:
    """Return a layer's axes, with the ZeRO stage where it determines the accumulation of gradients."""
    separate = context.framework.has_main_grad(context.workload.precision)
    return (*LAYER_AXES, "zero") if separate else LAYER_AXES


def accumulates_separately(context: Context, zero: NDArray[np.int64] | Floats) -> NDArray[np.bool_]:
    """Check whether gradients are accumulated in a separate fp32 buffer, per ZeRO stage."""
    profile = context.framework
    return np.asarray((zero <= profile.main_grad_to_zero) & profile.has_main_grad(context.workload.precision))


def shard_of(context: Context, table: StrategyTable, rows: NDArray[np.intp]) -> Shard:
    """Return the shard keys of some rows of a table; offload to the host is the software's setting."""
    tp, cp, ep, etp, mbs = (
        table.choices[axis][table.codes[axis][rows]].astype(np.float64) for axis in ("tp", "cp", "ep", "etp", "mbs")
    )
    sp = table.choices["sp"][table.codes["sp"][rows]] == 1
    tokens = mbs * (context.workload.seq_len / cp)
    return Shard(
        tp=tp,
        cp=cp,
        ep=ep,
        etp=etp,
        mbs=mbs,
        sp=sp,
        recompute=table.choices["recompute"][table.codes["recompute"][rows]],
        tokens=tokens,
        inner_tokens=np.where(sp, tokens / tp, tokens),
        separate_fp32=accumulates_separately(context, table.choices["zero"][table.codes["zero"][rows]]),
        away=np.full(len(tp), context.framework.activations_on_host),
    )


def shard_of_layer(context: Context, layer: Layer, shard: Shard) -> Shard:
    """Return the shard with the tokens of a layer whose sequences are not the workload's (patches of an image)."""
    if layer.tokens is None:
        return shard
    share = layer.tokens / context.workload.seq_len
    return replace(shard, tokens=shard.tokens * share, inner_tokens=shard.inner_tokens * share)
