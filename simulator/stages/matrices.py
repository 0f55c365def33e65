"""The matrices of layers: their shapes, and the cost of orthogonalising them (Muon).

Muon (Jordan et al. 2024; Moonlight, arXiv 2502.16982) updates a matrix by its orthogonalised momentum: five
Newton-Schulz steps in 16 bit, ``X <- a X + (b A + c A^2) X`` with ``A = X X^T``. Each tensor rank orthogonalises its
own part (Megatron-core's ``blockwise``); replicas that share states each take some of the matrices.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.costs import gemm_time_s
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parts import Product, Step
from forerun.spaces.strategies import Context

NEWTON_SCHULZ_STEPS = 5
"""Steps in the reference code, in Moonlight and in Megatron-core (--muon-num-ns-steps)."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of a layer."""

    inputs: int
    """Columns in."""
    outputs: int
    """Columns out."""
    inputs_cut: bool
    """Whether tensor ranks shard the input columns."""
    outputs_cut: bool
    """Whether tensor ranks shard the output columns."""
    count: int
    """Number of equal matrices in a layer."""
    routed: bool
    """Whether every routed expert has it."""

    def local(self, tp: Floats, etp: Floats) -> tuple[Floats, Floats]:
        """Return the matrix dimensions (in, out) on one of ``tp`` tensor ranks, or of ``etp`` ranks for experts."""
        ranks = etp if self.routed else tp
        return (
            self.inputs / (ranks if self.inputs_cut else np.ones_like(ranks)),
            self.outputs / (ranks if self.outputs_cut and not self.inputs_cut else np.ones_like(ranks)),
        )


@lru_cache(maxsize=256)
def layer_matrices(layer: Layer, model: Model, *, merged: bool) -> tuple[Matrix, ...]:
    """Return the matrices of a layer. ``merged``: products with the same input are one."""
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
    matrices = []
    for step, expert in [(step, False) for step in steps] + [(step, True) for step in routed]:
        if isinstance(step, Product):
            for outputs in [step.outputs] if merged else [(width,) for width in step.outputs]:
                matrix = Matrix(
                    step.inputs.whole // step.blocks,
                    sum(width.whole for width in outputs) // (step.blocks if step.blocks > 1 else 1),
                    step.inputs.cut,
                    any(width.cut for width in outputs),
                    step.blocks,
                    expert,
                )
                matrices.append(matrix)
    return tuple(matrices)


def one_of_each_shape(context: Context, blocks: Floats, tp: Floats, etp: Floats) -> Floats:
    """Return the elements of one matrix of every shape in trained layers of stages, [R, K].

    ``blocks``: see ``stage_parameters``. Zero where the software keeps no gradient for it.
    """
    total = np.zeros_like(blocks[-1])
    if not context.framework.dummy_gradients:
        return np.asarray(total)
    merged, model = context.framework.merged_products, context.model
    of_kind = [
        {_shape(matrix): matrix for matrix in layer_matrices(layer, model, merged=merged)}
        if layer.trains == "all"
        else {}
        for layer in layer_kinds(model)
    ]
    for shape, matrix in {shape: matrix for matrices in of_kind for shape, matrix in matrices.items()}.items():
        here: NDArray[np.bool_] = np.any(
            [blocks[kind] > 0 for kind, matrices in enumerate(of_kind) if shape in matrices], axis=0
        )
        inputs, outputs = matrix.local(tp, etp)
        total = total + here * (inputs * outputs)
    return np.asarray(total)


def _shape(matrix: Matrix) -> tuple[int, int, bool, bool]:
    """Return the properties shared by matrices of equal shape."""
    return matrix.inputs, matrix.outputs, matrix.inputs_cut or matrix.outputs_cut, matrix.routed


@dataclass(frozen=True, slots=True, kw_only=True)
class Orthogonalised:
    """Matrices that Muon updates on one device of every stage, [R, K]."""

    dense: Floats
    """Elements of dense matrices."""
    expert: Floats
    """Elements of matrices of routed experts."""
    dense_s: Floats
    """Seconds to orthogonalise the dense matrices."""
    expert_s: Floats
    """Seconds to orthogonalise those of routed experts."""


def orthogonalised(context: Context, blocks: Floats, tp: Floats, ep: Floats, etp: Floats) -> Orthogonalised:
    """Return the matrices that Muon updates on stages with ``blocks``; all zero with another optimizer.

    Muon updates the matrices of trained layers, but not tables, norms, routers or adapters.
    """
    none = np.zeros_like(blocks[-1])
    size, seconds = {False: none, True: none}, {False: none, True: none}
    if context.framework.optimizer == "muon":
        for kind, layer in enumerate(layer_kinds(context.model)):
            for matrix in layer_matrices(layer, context.model, merged=False) if layer.trains == "all" else ():
                inputs, outputs = matrix.local(tp, etp)
                experts = layer.mlp.experts if isinstance(layer.mlp, MixtureOfExperts) else 1
                count = matrix.count * (experts / ep if matrix.routed else np.ones_like(tp))
                number, each_s = blocks[kind] * count, _newton_schulz_s(context, inputs, outputs)
                size[matrix.routed] = size[matrix.routed] + number * inputs * outputs
                seconds[matrix.routed] = seconds[matrix.routed] + number * each_s
    return Orthogonalised(dense=size[False], expert=size[True], dense_s=seconds[False], expert_s=seconds[True])


def _newton_schulz_s(context: Context, inputs: Floats, outputs: Floats) -> Floats:
    """Seconds to orthogonalise one matrix: three products per step, two with the longer side and one without."""
    device, short, long = context.cluster.device, np.minimum(inputs, outputs), np.maximum(inputs, outputs)
    precision = device.half_precision
    once_s = (
        gemm_time_s(device, precision, short, short, long)
        + gemm_time_s(device, precision, short, short, short)
        + gemm_time_s(device, precision, short, long, short)
    )
    return np.asarray(NEWTON_SCHULZ_STEPS * once_s)
