"""Device seconds of every operator of a layer-by-layer model for many local shapes at once."""

import math
from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs import gemm_time_s, memory_bound_time_s
from forerun.simulator.costs.convolution import Direction, convolution_time_s
from forerun.simulator.layered.layers import Floats, Layers
from forerun.simulator.layered.streams import FUSABLE, PASSES, ROWS_BACKWARD, ROWS_FORWARD
from forerun.spaces.clusters.device import Device
from forerun.spaces.layered import WEIGHTED, Kind, Operator
from forerun.spaces.layered.profile import LayeredProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What one device holds of every operator, for K cases: samples, parts along space, of filters, of channels.

    ``grid_KA`` has three columns. Parts are of the largest share: 7 rows over 4 devices are 2 rows.
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
    """Bytes per element of activations and of what is computed with."""
    return 4.0 if precision in ("fp32", "tf32") else 2.0


class OperatorCosts:
    """Costs operators one by one, each for all K cases."""

    def __init__(self, device: Device, precision: str, profile: LayeredProfile) -> None:
        self.device, self.precision, self.profile = device, precision, profile
        self.width = activation_bytes(precision)

    def times(self, layers: Layers, local: Local) -> OperatorTimes:
        """Return the seconds of all distinct operators."""
        forward, gradient, weight = (np.zeros((len(local.batch_K), len(layers.distinct))) for _ in range(3))
        for number, operator in enumerate(layers.distinct):
            pixels_in, pixels_out = (
                np.prod(np.ceil(extents[number] / local.grid_KA), axis=1)
                for extents in (layers.input_UA, layers.output_UA)
            )
            one = self._operator(operator, local, pixels_in, pixels_out)
            forward[:, number], gradient[:, number], weight[:, number] = one
        return OperatorTimes(forward_KU=forward, input_KU=gradient, weight_KU=weight)

    def _operator(
        self, operator: Operator, local: Local, pixels_in: Floats, pixels_out: Floats
    ) -> tuple[Floats, Floats, Floats]:
        zero = np.zeros_like(local.batch_K)
        if operator.kind in WEIGHTED:
            return self._weighted(operator, local, pixels_in, pixels_out)
        if operator.kind in (Kind.MATMUL, Kind.ATTENTION, Kind.INTERACTION):
            return self._products(operator, local.batch_K)
        if operator.kind is Kind.GENERIC:
            return self._generic(operator, local.batch_K)
        if operator.kind in FUSABLE and self.profile.fuses_elementwise:
            return zero, zero, zero
        share_in, share_out = (
            pixels / max(math.prod(extents), 1)
            for pixels, extents in ((pixels_in, operator.input_spatial), (pixels_out, operator.spatial))
        )
        elements_in = local.batch_K * operator.input_elements * share_in
        elements_out = local.batch_K * operator.output_elements * share_out
        passes = PASSES[operator.kind]
        forward = passes.input_forward * elements_in + passes.output_forward * elements_out
        backward = passes.input_backward * elements_in + passes.output_backward * elements_out
        if operator.kind is Kind.EMBEDDING:
            rows = local.batch_K * operator.lookups * operator.output[-1]
            forward, backward = forward + ROWS_FORWARD * rows, backward + ROWS_BACKWARD * rows
        return self._stream_s(forward), self._stream_s(backward), zero

    def _stream_s(self, elements: Floats) -> Floats:
        return memory_bound_time_s(self.device, elements * self.width)

    def _weighted(
        self, operator: Operator, local: Local, pixels_in: Floats, pixels_out: Floats
    ) -> tuple[Floats, Floats, Floats]:
        if operator.kind is Kind.LINEAR:  # positions of a sequence are pixels of a picture
            pixels_in = pixels_out = np.full_like(pixels_in, math.prod(operator.output[:-1]))
        grouped = operator.groups > 1
        filters, channels = (
            np.ceil(operator.filters / local.filters_K),
            np.ceil(operator.channels_in / local.channels_K),
        )
        if grouped:  # filters and channels of a group stay together: the groups are dealt out
            parts = local.filters_K * local.channels_K
            filters, channels = (np.ceil(size / parts) for size in (operator.filters, operator.channels_in))
        groups = np.maximum(np.ceil(operator.groups / (local.filters_K * local.channels_K)), 1.0)
        if operator.kind is Kind.CONV_TRANSPOSE:  # the data gradient of a convolution the other way
            filters, channels, pixels_in, pixels_out = channels, filters, pixels_out, pixels_in
        minimal = (
            self.profile.winograd
            and operator.kernel == (3, 3)
            and set(operator.stride) == {1}
            and set(operator.dilation or (1,)) == {1}
        )
        names: tuple[Direction, ...] = ("forward", "data_gradient", "weight_gradient")
        forward, gradient, weight = (
            convolution_time_s(
                self.device,
                self.precision,
                direction,
                batch=local.batch_K,
                channels=channels,
                filters=filters,
                window=operator.kernel_volume,
                input_pixels=pixels_in,
                output_pixels=pixels_out,
                groups=groups,
                winograd=minimal,
            )
            for direction in names
        )
        if operator.kind is Kind.CONV_TRANSPOSE:
            forward, gradient = gradient, forward
        return forward, gradient if operator.inputs else np.zeros_like(gradient), weight

    def _products(self, operator: Operator, batch: Floats) -> tuple[Floats, Floats, Floats]:
        """Products of two activations: each gradient is a product as large as the forward one."""
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
        return forward, gradient, np.zeros_like(batch)

    def _generic(self, operator: Operator, batch: Floats) -> tuple[Floats, Floats, Floats]:
        """Roofline: the slower of the operations at the vector peak and the bytes; twice that backward."""
        peaks = self.device.peak_flops_per_s
        arithmetic = batch * operator.flops / peaks.get("fp32", self.device.peak(self.precision))
        moved = memory_bound_time_s(
            self.device, (batch * operator.moved_elements + operator.weights) * self.width, kernels=1
        )
        once = np.maximum(arithmetic, moved)
        return once, 2 * once, np.zeros_like(once)
