"""Device seconds of every operator of an operator graph for many local shapes at once.

Operators without matrix products are a number of passes over their tensors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs import gemm_time_s, memory_bound_time_s, passes_time_s
from forerun.simulator.costs.convolution import Direction, convolution_time_s
from forerun.simulator.opgraph.layers import Floats, Layers
from forerun.spaces.clusters.device import Device
from forerun.spaces.opgraph import WEIGHTED, Kind, Operator
from forerun.spaces.opgraph.profile import GraphProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Reads and writes of every element of the inputs and of the output, forward and backward."""

    input_forward: float
    output_forward: float
    input_backward: float
    output_backward: float


PASSES: Mapping[Kind, Passes] = {
    # Statistics read once, normalising reads again and writes; backward reads both tensors for the sums, and again.
    Kind.BATCH_NORM: Passes(input_forward=2, output_forward=1, input_backward=3, output_backward=2),
    Kind.LAYER_NORM: Passes(input_forward=2, output_forward=1, input_backward=3, output_backward=2),
    Kind.ACTIVATION: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=2),
    # Gradients are passed on unchanged; where branches join they are summed.
    Kind.ADD: Passes(input_forward=1, output_forward=1, input_backward=0, output_backward=2),
    Kind.MULTIPLY: Passes(input_forward=1, output_forward=1, input_backward=2, output_backward=2),
    Kind.POOL: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    Kind.CONCAT: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    # The mask takes one byte per element.
    Kind.DROPOUT: Passes(input_forward=1, output_forward=1.25, input_backward=1, output_backward=1.25),
    Kind.SOFTMAX: Passes(input_forward=2, output_forward=1, input_backward=1, output_backward=2),
    Kind.UPSAMPLE: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    Kind.COPY: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    Kind.VIEW: Passes(input_forward=0, output_forward=0, input_backward=0, output_backward=0),
    Kind.LOSS: Passes(input_forward=3, output_forward=0, input_backward=2, output_backward=0),
    # The input is the looked-up rows; backward scatters them with their momentum.
    Kind.EMBEDDING: Passes(input_forward=0, output_forward=1, input_backward=0, output_backward=1),
}

FUSABLE = frozenset({Kind.ACTIVATION, Kind.DROPOUT})
"""Operators that a fusing framework computes inside the preceding one."""

ROWS_FORWARD, ROWS_BACKWARD = 1.0, 3.0
"""Passes over the looked-up rows of a table: gather; gradient, old and new row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """One device's part of every operator, for K cases: samples, and parts along space, filters and channels.

    ``grid_KA`` has three columns. Sizes are those of the largest part: 7 rows over 4 devices are 2 rows.
    """

    batch_K: Floats
    grid_KA: Floats
    filters_K: Floats
    channels_K: Floats

    @staticmethod
    def whole(batch_K: Floats) -> "Local":
        """Cases in which every device computes whole operators."""
        ones = np.ones_like(batch_K)
        return Local(batch_K=batch_K, grid_KA=np.ones((len(batch_K), 3)), filters_K=ones, channels_K=ones)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTimes:
    """Device seconds per direction, shape [K, U]: forward, gradient of the inputs, gradient of the weights."""

    forward_KU: Floats
    input_KU: Floats
    weight_KU: Floats

    @property
    def backward_KU(self) -> Floats:
        """Both gradients."""
        return self.input_KU + self.weight_KU


def activation_bytes(precision: str) -> float:
    """Bytes per element of activations in the training precision."""
    return 4.0 if precision in ("fp32", "tf32") else 2.0


class OperatorCosts:
    """Costs of single operators for all K cases."""

    def __init__(self, device: Device, precision: str, profile: GraphProfile) -> None:
        self.device, self.precision, self.profile = device, precision, profile
        self.width = activation_bytes(precision)

    def times(self, layers: Layers, local: Local) -> OperatorTimes:
        """Return the seconds of all distinct operators."""
        shape = (len(local.batch_K), len(layers.distinct))
        forward, gradient, weight = (np.zeros(shape) for _ in range(3))
        grid = local.grid_KA[:, None, :]
        pixels_in, pixels_out = (
            np.prod(np.ceil(extents[None] / grid), axis=2) for extents in (layers.input_UA, layers.output_UA)
        )
        products = [number for number, operator in enumerate(layers.distinct) if operator.kind in WEIGHTED]
        if products:
            operators = [layers.distinct[number] for number in products]
            product_s = self._weighted(operators, local, pixels_in[:, products], pixels_out[:, products])
            forward[:, products], gradient[:, products], weight[:, products] = product_s
        moved = [number for number, operator in enumerate(layers.distinct) if self._streams(operator)]
        if moved:
            operators = [layers.distinct[number] for number in moved]
            found_forward, found_backward = self._moved(operators, local, pixels_in[:, moved], pixels_out[:, moved])
            forward[:, moved], gradient[:, moved] = found_forward, found_backward
        for number, operator in enumerate(layers.distinct):
            if operator.kind in (Kind.MATMUL, Kind.ATTENTION, Kind.INTERACTION):
                forward[:, number], gradient[:, number] = self._products(operator, local.batch_K)
            elif operator.kind is Kind.GENERIC:
                forward[:, number], gradient[:, number] = self._generic(operator, local.batch_K)
        return OperatorTimes(forward_KU=forward, input_KU=gradient, weight_KU=weight)

    def _streams(self, operator: Operator) -> bool:
        return operator.kind in PASSES and not (operator.kind in FUSABLE and self.profile.fuses_elementwise)

    def _moved(
        self, operators: Sequence[Operator], local: Local, pixels_in: Floats, pixels_out: Floats
    ) -> tuple[Floats, Floats]:
        """Seconds forward and backward of operators that move tensors without matrix products."""
        batch = local.batch_K[:, None]
        passes = [PASSES[operator.kind] for operator in operators]

        def row(values: Iterable[float]) -> Floats:
            return np.array(list(values), dtype=np.float64)

        inner, outer = (
            batch * row(operator_elements) * pixels / row(math.prod(extents) or 1 for extents in spatial)
            for operator_elements, pixels, spatial in (
                ([o.input_elements for o in operators], pixels_in, [o.input_spatial for o in operators]),
                ([o.output_elements for o in operators], pixels_out, [o.spatial for o in operators]),
            )
        )
        rows = batch * row(o.lookups * o.output[-1] if o.kind is Kind.EMBEDDING else 0 for o in operators)
        forward = row(p.input_forward for p in passes) * inner + row(p.output_forward for p in passes) * outer
        backward = row(p.input_backward for p in passes) * inner + row(p.output_backward for p in passes) * outer
        return (
            passes_time_s(self.device, (forward + ROWS_FORWARD * rows) * self.width),
            passes_time_s(self.device, (backward + ROWS_BACKWARD * rows) * self.width),
        )

    def _weighted(
        self, operators: Sequence[Operator], local: Local, pixels_in: Floats, pixels_out: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Seconds of products with a weight: forward, gradient of the inputs, gradient of the weights."""

        def row(values: Iterable[float]) -> Floats:
            return np.array(list(values), dtype=np.float64)

        linear = np.array([operator.kind is Kind.LINEAR for operator in operators])
        positions = row(math.prod(o.output[:-1]) if o.kind is Kind.LINEAR else 1 for o in operators)
        # Positions of a sequence count as pixels of an image.
        pixels_in, pixels_out = (np.where(linear, positions, pixels) for pixels in (pixels_in, pixels_out))
        parts_f, parts_c = local.filters_K[:, None], local.channels_K[:, None]
        count = row(operator.groups for operator in operators)
        # Filters and channels of a group stay together: groups are distributed.
        grouped = count > 1
        filters = np.ceil(row(o.filters for o in operators) / np.where(grouped, parts_f * parts_c, parts_f))
        channels = np.ceil(row(o.channels_in for o in operators) / np.where(grouped, parts_f * parts_c, parts_c))
        groups = np.maximum(np.ceil(count / (parts_f * parts_c)), 1.0)
        bias_forward, bias_weight = self._biases(operators, local.batch_K[:, None] * filters * pixels_out)
        # A transposed convolution is the data gradient of the reverse convolution, and its gradient the forward pass.
        turned = np.array([operator.kind is Kind.CONV_TRANSPOSE for operator in operators])
        filters, channels = np.where(turned, channels, filters), np.where(turned, filters, channels)
        pixels_in, pixels_out = np.where(turned, pixels_out, pixels_in), np.where(turned, pixels_in, pixels_out)
        window = row(operator.kernel_volume for operator in operators)
        minimal = np.array([self.profile.winograd and _minimal(operator) for operator in operators])
        axes = row(len(operator.kernel) for operator in operators)
        names: tuple[Direction, ...] = ("forward", "data_gradient", "weight_gradient")
        forward, gradient, weight = (
            convolution_time_s(
                self.device,
                self.precision,
                direction,
                batch=local.batch_K[:, None],
                channels=channels,
                filters=filters,
                window=window,
                input_pixels=pixels_in,
                output_pixels=pixels_out,
                groups=groups,
                axes=axes,
                winograd=minimal,
            )
            for direction in names
        )
        forward, gradient = np.where(turned, gradient, forward), np.where(turned, forward, gradient)
        first = np.array([not operator.inputs for operator in operators])  # the gradient of the data is not needed
        return forward + bias_forward, np.where(first, 0.0, gradient), weight + bias_weight

    def _biases(self, operators: Sequence[Operator], outputs: Floats) -> tuple[Floats, Floats]:
        """Seconds of passes over the ``outputs`` [K, U] that add a bias and that sum its gradient."""
        # Only convolutions have these passes; direct kernels of groups add the bias themselves, and products of linear
        # layers do both.
        biased = np.array([o.bias and o.kind is not Kind.LINEAR for o in operators])
        if self.profile.fuses_elementwise or not biased.any():
            return np.zeros_like(outputs), np.zeros_like(outputs)
        alone = biased & np.array([operator.groups == 1 for operator in operators])
        read_s, added_s = (passes_time_s(self.device, passes * outputs * self.width) for passes in (1, 2))
        return np.where(alone, added_s, 0.0), np.where(biased, read_s, 0.0)

    def _products(self, operator: Operator, batch: Floats) -> tuple[Floats, Floats]:
        """Seconds of products of two activations: each gradient is a product as large as the forward one."""
        if operator.kind is Kind.INTERACTION:
            vectors, width = operator.input
            shapes = [(batch, vectors, vectors, width)]
        else:
            outer, rows, columns = math.prod(operator.output[:-2]), operator.output[-2], operator.output[-1]
            shapes = [(batch * outer, rows, columns, operator.reduced)]
            if operator.kind is Kind.ATTENTION:
                shapes.append((batch * outer, rows, operator.reduced, operator.input[-1]))
        forward, gradient = np.zeros_like(batch), np.zeros_like(batch)
        for groups, m, n, k in shapes:
            forward = forward + gemm_time_s(self.device, self.precision, m, n, k, groups=groups)
            for rows, columns, inner in ((m, k, n), (n, k, m)):
                gradient = gradient + gemm_time_s(
                    self.device, self.precision, rows, columns, inner, groups=groups, kind="data_gradient"
                )
        return forward, gradient

    def _generic(self, operator: Operator, batch: Floats) -> tuple[Floats, Floats]:
        """Roofline: the maximum of operations at the vector peak and of bytes, doubled for the backward pass."""
        peaks = self.device.peak_flops_per_s
        arithmetic = batch * operator.flops / peaks.get("fp32", self.device.peak(self.precision))
        moved = memory_bound_time_s(
            self.device, (batch * operator.moved_elements + operator.weights) * self.width, kernels=1
        )
        once = np.maximum(arithmetic, moved)
        return once, 2 * once


def _minimal(operator: Operator) -> bool:
    """Check whether minimal filtering applies: a 3x3 window with stride one."""
    dense = set(operator.stride) == {1} and set(operator.dilation or (1,)) == {1}
    return operator.kind is Kind.CONV and operator.kernel == (3, 3) and dense
