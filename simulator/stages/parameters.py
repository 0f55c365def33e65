"""Parameters on one device of every stage, by the ranks that replicate them.

Dense parameters are replicated over ``dp * cp`` ranks, routed experts over ``edp = dp * cp * tp / (ep * etp)``.
"""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.widths import padded_vocab
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.matrices import one_of_each_shape, orthogonalised
from forerun.spaces.models import layer_parameters
from forerun.spaces.models.model import Layer
from forerun.spaces.models.parameters import embedding_parameters, mtp_block_parameters
from forerun.spaces.models.tuning import adapter_parameters
from forerun.spaces.strategies import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters per device, [R, K]."""

    dense: Floats
    """All parameters except routed experts."""
    expert: Floats
    """Parameters of routed experts."""
    outside: Floats
    """Part of ``dense`` outside layers: tables, norms and heads."""
    tied: Floats
    """Parameters of the token table that first and last stage both have and keep equal."""
    tensors: Floats
    """Number of dense matrices and norms."""
    shapes: Floats
    """Parameters of one matrix of every trained shape in the layers."""
    frozen_dense: Floats
    """Untrained part of ``dense``."""
    frozen_expert: Floats
    """Untrained part of ``expert``."""
    beside_dense: Floats
    """Part of ``frozen_dense`` in layers with other, trained parameters."""
    beside_expert: Floats
    """The same part of ``frozen_expert``."""
    muon_dense: Floats
    """Part of ``dense`` in matrices that Muon updates."""
    muon_expert: Floats
    """The same part of ``expert``."""
    muon_dense_s: Floats
    """Seconds in which the device orthogonalises the dense matrices."""
    muon_expert_s: Floats
    """Seconds for those of experts."""

    @property
    def trained_dense(self) -> Floats:
        """Dense parameters with gradients."""
        return self.dense - self.frozen_dense

    @property
    def trained_expert(self) -> Floats:
        """Parameters of routed experts with gradients."""
        return self.expert - self.frozen_expert


def stage_parameters(context: Context, blocks: Floats, tp: Floats, ep: Floats, etp: Floats) -> StageParameters:
    """Return the parameters of stages with ``blocks`` [layer kinds + 2, R, K], under K (tp, ep, etp).

    The last two rows of blocks are 1.0 where a stage has the embedding, and where it has the head.
    """
    # dense = sum over kinds of layers ((mixer + mlp) / tp + router + replicated); expert = sum of layers experts / (ep
    # etp). The first stage adds the token table and the other tables, the last one head, transform and classifier, less
    # a shared table that it already has.
    model = context.model
    embeds, heads = blocks[-2], blocks[-1]
    dense, expert = np.zeros_like(heads), np.zeros_like(heads)
    frozen_dense, frozen_expert = np.zeros_like(heads), np.zeros_like(heads)
    beside_dense, beside_expert = np.zeros_like(heads), np.zeros_like(heads)
    tensors = embeds + 2 * heads
    for kind, layer in enumerate(layer_kinds(model)):
        one = layer_parameters(layer, model.hidden)
        local = blocks[kind] * ((one.mixer + one.mlp_dense) / tp + one.router + one.replicated)
        routed = blocks[kind] * (one.experts_total / (ep * etp))
        if layer.trains != "all":
            frozen_dense, frozen_expert = frozen_dense + local, frozen_expert + routed
            if layer.trains == "adapters":
                beside_dense, beside_expert = beside_dense + local, beside_expert + routed
            dense_adapters, inside = adapter_parameters(layer, model.hidden)
            local, routed = (
                local + blocks[kind] * dense_adapters / tp,
                routed + blocks[kind] * inside / (ep * etp),
            )
        dense, expert = dense + local, expert + routed
        tensors = tensors + blocks[kind] * _tensors(layer, merged=context.framework.merged_products)
    layers = dense
    if model.mtp_layers:
        one = mtp_block_parameters(model)
        last = layer_parameters(model.layers[-1], model.hidden)
        dense = dense + heads * model.mtp_layers * (one.total - last.total) / tp
    table = padded_vocab(model, tp) * model.table_width
    rest = embedding_parameters(model) - model.vocab * model.table_width
    dense = dense + embeds * (table + rest)
    shared = np.minimum(embeds, heads) if model.tied_embeddings else np.zeros_like(heads)
    head = heads * (table + model.hidden + (model.hidden**2 if model.head_transform else 0))
    dense = dense + head - shared * table + heads * model.hidden * model.classes
    tied = (embeds + heads - 2 * shared) * table if model.tied_embeddings else np.zeros_like(dense)
    if "embedding" in model.frozen_ends:
        frozen_dense = frozen_dense + embeds * (table + rest)
        tied = np.zeros_like(tied)
    if "head" in model.frozen_ends:
        frozen_dense = frozen_dense + head - shared * table + heads * model.hidden * model.classes
    muon = orthogonalised(context, blocks, tp, ep, etp)
    return StageParameters(
        dense=dense,
        expert=expert,
        outside=dense - layers,
        tied=tied,
        tensors=np.asarray(tensors),
        shapes=one_of_each_shape(context, blocks, tp, etp),
        frozen_dense=frozen_dense,
        frozen_expert=frozen_expert,
        beside_dense=beside_dense,
        beside_expert=beside_expert,
        muon_dense=muon.dense,
        muon_expert=muon.expert,
        muon_dense_s=muon.dense_s,
        muon_expert_s=muon.expert_s,
    )


def table_share(context: Context, parameters: StageParameters, tp: Floats) -> Floats:
    """Return the token table's share of the parameters of the largest stage, shape K."""
    table = padded_vocab(context.model, tp) * context.model.hidden
    return np.asarray(table / (parameters.dense + parameters.expert).max(axis=0))


def _tensors(layer: Layer, *, merged: bool) -> int:
    """Return the number of matrices and norms of a layer; ``merged``: products with the same input are one."""
    attention = 2 if merged else 4
    mlp = 3 if layer.mlp is not None and layer.mlp.gated and not merged else 2
    return layer.norms + attention * layer.attends + mlp * layer.feeds_forward
