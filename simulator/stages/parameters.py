"""Parameters on one device of every stage, by what replicates them.

Dense parameters are replicated over ``dp * cp`` ranks, routed experts over ``edp = dp * cp * tp / (ep * etp)``.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.widths import padded_vocab
from forerun.simulator.score_table import Floats
from forerun.spaces.models import layer_parameters
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parameters import embedding_parameters, mtp_block_parameters
from forerun.spaces.models.parts import Product, Step
from forerun.spaces.models.tuning import adapter_parameters
from forerun.spaces.strategies import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters per device, [R, K]: ``dense`` (all but routed experts), ``expert`` (routed), ``tied`` (those of the
    token table that first and last stage both hold and must keep equal). ``tensors``: how many matrices and norms the
    dense ones are; ``shapes``: parameters of one matrix of every trained shape that layers have. ``frozen_dense`` and
    ``frozen_expert``: those that are not trained."""

    dense: Floats
    expert: Floats
    tied: Floats
    tensors: Floats
    shapes: Floats
    frozen_dense: Floats
    frozen_expert: Floats

    @property
    def trained_dense(self) -> Floats:
        """Dense parameters that have gradients."""
        return self.dense - self.frozen_dense

    @property
    def trained_expert(self) -> Floats:
        """Those of routed experts that have."""
        return self.expert - self.frozen_expert


def stage_parameters(context: Context, blocks: Floats, tp: Floats, ep: Floats, etp: Floats) -> StageParameters:
    """Return the parameters of stages that have ``blocks`` [layer kinds + 2, R, K], under K (tp, ep, etp); the last two
    rows of blocks are 1.0 where a stage has the embedding, and where it has the head."""
    model = context.model
    embeds, heads = blocks[-2], blocks[-1]
    dense, expert = np.zeros_like(heads), np.zeros_like(heads)
    frozen_dense, frozen_expert = np.zeros_like(heads), np.zeros_like(heads)
    tensors = embeds + 2 * heads
    for kind, layer in enumerate(layer_kinds(model)):
        one = layer_parameters(layer, model.hidden)
        own = blocks[kind] * ((one.mixer + one.mlp_dense) / tp + one.router + one.replicated)
        routed = blocks[kind] * (one.experts_total / (ep * etp))
        if layer.trains != "all":
            frozen_dense, frozen_expert = frozen_dense + own, frozen_expert + routed
            beside, inside = adapter_parameters(layer, model.hidden)
            own, routed = own + blocks[kind] * beside / tp, routed + blocks[kind] * inside / (ep * etp)
        dense, expert = dense + own, expert + routed
        tensors = tensors + blocks[kind] * _tensors(layer, merged=context.framework.merged_products)
    if model.mtp_layers:
        one = mtp_block_parameters(model)
        last = layer_parameters(model.layers[-1], model.hidden)
        dense = dense + heads * model.mtp_layers * (one.total - last.total) / tp
    table = padded_vocab(model, tp) * model.table_width
    rest = embedding_parameters(model) - model.vocab * model.table_width
    dense = dense + embeds * (table + rest)
    shared = embeds * heads if model.tied_embeddings else np.zeros_like(heads)
    head = heads * (table + model.hidden + (model.hidden**2 if model.head_transform else 0))
    dense = dense + head - shared * table + heads * model.hidden * model.classes
    tied = (embeds + heads - 2 * shared) * table if model.tied_embeddings else np.zeros_like(dense)
    if "embedding" in model.frozen_ends:
        frozen_dense = frozen_dense + embeds * (table + rest)
        tied = np.zeros_like(tied)
    if "head" in model.frozen_ends:
        frozen_dense = frozen_dense + head - shared * table + heads * model.hidden * model.classes
    return StageParameters(
        dense=dense,
        expert=expert,
        tied=tied,
        tensors=np.asarray(tensors),
        shapes=_one_of_each_shape(context, blocks, tp, etp),
        frozen_dense=frozen_dense,
        frozen_expert=frozen_expert,
    )


def table_share(context: Context, parameters: StageParameters, tp: Floats) -> Floats:
    """Return what a token table is of the parameters of the largest stage, shape K."""
    table = padded_vocab(context.model, tp) * context.model.hidden
    return np.asarray(table / (parameters.dense + parameters.expert).max(axis=0))


def _one_of_each_shape(context: Context, blocks: Floats, tp: Floats, etp: Floats) -> Floats:
    """Return the elements of one matrix of every shape that the layers of stages have, [R, K]."""
    total = np.zeros_like(blocks[-1])
    if not context.framework.dummy_gradients:
        return np.asarray(total)
    kinds = layer_kinds(context.model)
    merged = context.framework.merged_products
    shapes = [
        matrix_shapes(layer, context.model, merged=merged) if layer.trains == "all" else frozenset() for layer in kinds
    ]
    for shape in dict.fromkeys(shape for held in shapes for shape in held):
        held: NDArray[np.bool_] = np.any(
            [blocks[kind] > 0 for kind, found in enumerate(shapes) if shape in found], axis=0
        )
        rows, columns, cut, routed = shape
        total = total + held * (rows * columns / ((etp if routed else tp) if cut else np.ones_like(tp)))
    return np.asarray(total)


@lru_cache(maxsize=256)
def matrix_shapes(layer: Layer, model: Model, *, merged: bool) -> frozenset[tuple[int, int, bool, bool]]:
    """Return the distinct matrices of a layer: columns in, columns out, whether tensor ranks share them, and whether
    they are those of a routed expert. ``merged``: products that read the same input are one matrix."""
    hidden, steps, routed = layer.width(model), list[Step](), list[Step]()
    for mixer in (layer.mixer, layer.cross_attention):
        if mixer is not None and layer.attends:
            steps += mixer.steps(hidden)
    if layer.feeds_forward and isinstance(layer.mlp, MixtureOfExperts):
        mlp = layer.mlp
        routed += FeedForward(hidden=mlp.expert_hidden, gated=mlp.gated).steps(mlp.width(hidden))
        steps += mlp.latent_products(hidden)
        steps += mlp.shared.steps(hidden) if mlp.shared else ()
    elif layer.feeds_forward and isinstance(layer.mlp, FeedForward):
        steps += layer.mlp.steps(hidden)
    found = set()
    for step, expert in [(step, False) for step in steps] + [(step, True) for step in routed]:
        if isinstance(step, Product):
            widths = [step.outputs] if merged else [(width,) for width in step.outputs]
            for outputs in widths:
                found.add((step.inputs.whole // step.blocks, sum(w.whole for w in outputs), step.cut, expert))
    return frozenset(found)


def _tensors(layer: Layer, *, merged: bool) -> int:
    """Return how many matrices and norms a layer has; ``merged``: products that read the same input are one."""
    attention = 2 if merged else 4
    mlp = 3 if layer.mlp is not None and layer.mlp.gated and not merged else 2
    return layer.norms + attention * layer.attends + mlp * layer.feeds_forward
