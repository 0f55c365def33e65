"""One step of one worker, layer by layer: the gradient profile behind the prediction of every training mode.

A profile is measured on one worker, or computed from a model's cost. A layer's parameters are fetched before its
forward pass and its gradient is sent after its backward pass; both have ``parameter_bytes``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.spaces.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLayer:
    """A layer: bytes of its parameters (and of its gradient) on the wire, seconds of its forward and backward pass.

    Of an embedding table a worker exchanges only the rows that its samples look up; ``table_bytes`` is the size of the
    complete table (0: no table).

    Raises:
        RequestError: a field is negative or not finite.
    """

    name: str
    parameter_bytes: float
    forward_s: float
    backward_s: float
    table_bytes: float = 0.0

    def __post_init__(self) -> None:
        for field in ("parameter_bytes", "forward_s", "backward_s", "table_bytes"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value >= 0):
                raise RequestError(f"{field} of a layer is finite and at least 0, but got {value} for {self.name!r}")

    def reduced_bytes(self, workers: int) -> float:
        """Return the bytes of an all-reduce; for a table, the rows of all workers."""
        if not self.table_bytes:
            return self.parameter_bytes
        return min(self.table_bytes, workers * self.parameter_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProfile:
    """One step of one worker.

    ``layers``: in the order of the forward pass. ``batch``: samples per worker and step. ``host_s``: exposed time of a
    step in addition to its passes (input, launches). ``update_s``: application of one gradient of the whole model, on a
    worker or on a server. ``step_factors``: sampled times of passes over their mean, the distribution of jitter (empty:
    not measured). Samples of the next step are loaded at the same time: ``input_s`` is the time to copy one worker's
    samples to its device, ``node_input_s`` the time to read them from storage for a single worker on the node, which
    has room for ``node_workers``.

    Raises:
        RequestError: there is no layer, no time or no batch.
    """

    name: str
    layers: tuple[GradientLayer, ...]
    batch: float
    host_s: float = 0.0
    update_s: float = 0.0
    step_factors: tuple[float, ...] = ()
    input_s: float = 0.0
    node_input_s: float = 0.0
    node_workers: int = 1

    def __post_init__(self) -> None:
        if not self.layers:
            raise RequestError(f"a gradient profile has one or more layers, but {self.name!r} has none")
        if not (math.isfinite(self.batch) and self.batch > 0):
            raise RequestError(f"the batch of a worker is more than 0, but got {self.batch}")
        for field in ("host_s", "update_s", "input_s", "node_input_s"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value >= 0):
                raise RequestError(f"{field} of a profile is finite and at least 0, but got {value}")
        if not self.compute_s > 0:
            raise RequestError(f"the layers of a profile take more than 0 seconds, but those of {self.name!r} do not")
        if any(not (math.isfinite(factor) and factor > 0) for factor in self.step_factors):
            raise RequestError("step_factors are more than 0: sampled step times over their mean")

    @property
    def total_bytes(self) -> float:
        """Bytes of all parameters."""
        return math.fsum(layer.parameter_bytes for layer in self.layers)

    @property
    def forward_s(self) -> float:
        """Seconds of the forward pass."""
        return math.fsum(layer.forward_s for layer in self.layers)

    @property
    def backward_s(self) -> float:
        """Seconds of the backward pass."""
        return math.fsum(layer.backward_s for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Seconds of a step on the device: host time, forward and backward."""
        return self.host_s + self.forward_s + self.backward_s

    @property
    def step_s(self) -> float:
        """Seconds of a step of a worker without any exchange."""
        return self.compute_s + self.update_s

    def loading_s(self, workers: int) -> float:
        """Return the seconds to load the samples of a step of all workers, a lower bound of the step."""
        nodes = -(-workers // self.node_workers)
        return max(self.input_s, self.node_input_s * workers / nodes)

    def lasting(self, step_s: float) -> "GradientProfile":
        """Return the profile with all times scaled to a measured one-worker step of ``step_s``.

        Raises:
            RequestError: the time is not above zero.
        """
        if not (math.isfinite(step_s) and step_s > 0):
            raise RequestError(f"a step takes more than 0 seconds, but got {step_s}")
        factor = step_s / self.step_s
        layers = tuple(
            replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
            for layer in self.layers
        )
        return replace(self, layers=layers, host_s=self.host_s * factor, update_s=self.update_s * factor)

    def fused(self) -> "GradientProfile":
        """Return the profile with all layers as one."""
        return self.merged(1)

    def merged(self, most: int) -> "GradientProfile":
        """Return the profile with neighbouring layers joined until at most ``most`` remain; sums do not change.

        Joined layers have about equal shares of bytes and of time.
        """
        if len(self.layers) <= most:
            return self
        bytes_all, time_all = self.total_bytes or 1.0, self.forward_s + self.backward_s or 1.0
        groups: list[list[GradientLayer]] = []
        done, last = 0.0, -1
        for layer in self.layers:
            weight = layer.parameter_bytes / bytes_all + (layer.forward_s + layer.backward_s) / time_all
            place = min(int((done + weight / 2) / 2 * most), most - 1)
            if place > last:
                groups.append([])
                last = place
            groups[-1].append(layer)
            done += weight
        return replace(self, layers=tuple(_join(group) for group in groups))

    def merged_at(self, ends: Sequence[int], workers: int) -> "GradientProfile":
        """Return the profile with one layer per run of layers; runs start at ``ends``.

        An all-reduce of ``workers`` sends each run as one message, so its cost does not change.
        """
        layers = [
            replace(layer, parameter_bytes=layer.reduced_bytes(workers), table_bytes=0.0) for layer in self.layers
        ]
        begins = sorted({0, *ends})
        runs = zip(begins, [*begins[1:], len(layers)], strict=True)
        return replace(self, layers=tuple(_join(layers[begin:end]) for begin, end in runs))


def _join(group: Sequence[GradientLayer]) -> GradientLayer:
    name = group[0].name if len(group) == 1 else f"{group[0].name}..{group[-1].name}"
    return GradientLayer(
        name=name,
        parameter_bytes=math.fsum(layer.parameter_bytes for layer in group),
        forward_s=math.fsum(layer.forward_s for layer in group),
        backward_s=math.fsum(layer.backward_s for layer in group),
    )
