"""The ParaDL oracle as its authors compute it (arXiv 2104.09075, table 3 and the published tool), per epoch.

Kept apart from forerun's own costs, for comparison: computation shrinks with the devices, nothing overlaps, updates and
input are free. Where the tool differs from the publication, the tool is followed, because its figures are what is
published; ``filter`` divides parameters that are already divided once more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.net_file import NetLayer

DELTA = 4
"""Bytes per element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Latency and rate between ``p`` ranks: ``alpha_s`` per step, bytes per second of the narrowest link."""

    alpha_s: float
    bytes_per_s: float

    @property
    def beta_s(self) -> float:
        """Seconds per byte."""
        return 1.0 / self.bytes_per_s


Network = Callable[[int], Path]


def abci_network(cable_s: float = 15e-6) -> Network:
    """ABCI as the tool describes it: a node of four, racks of 17 nodes, pairs of racks, all; ``cable_s`` per hop.

    15 us reproduces the published logs, 20 us is what the tool's present file has.
    """
    hop = 2 * (cable_s + 110e-9)

    def path(ranks: int) -> Path:
        if ranks <= 4:
            return Path(alpha_s=9e-6, bytes_per_s=50e9)
        switches = 90e-9 if ranks <= 68 else 3 * 90e-9 if ranks <= 136 else 400e-9 + 360e-9
        return Path(alpha_s=hop + switches, bytes_per_s=12.5e9)

    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleCost:
    """Seconds per epoch, and bytes on one device."""

    compute_s: float
    communication_s: float
    memory_bytes: float

    @property
    def total_s(self) -> float:
        """Both parts of an epoch."""
        return self.compute_s + self.communication_s


def layer_flops(layer: NetLayer) -> float:
    """Operations that the tool counts for a layer, forward and backward and update."""
    out, window = layer.output_elements, math.prod(layer.weight[2:])
    match layer.kind:
        case "CONV":
            once = 2.0 * layer.weight[0] * window * out
        case "MPOOL" | "APOOL":
            once = float(layer.input[0] * window * out)  # channels times filters, as coded
        case "RELU" | "ADD":
            once = float(out)
        case "FC":
            once = float(layer.weight_elements)
        case "BNORM":
            once = 4.0 * layer.input_elements
        case _:
            once = 0.0
    return 2 * once + layer.weight_elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Costs of a network on a machine.

    ``samples``: of the data set. ``seconds_per_sample``: measured forward and backward pass on one device, dealt out to
    the layers by their operations. ``split``: names of the layers that filter, channel and hybrids split.
    """

    layers: Sequence[NetLayer]
    samples: int
    seconds_per_sample: float
    split: frozenset[str]
    network: Network
    per_node: int = 4

    @property
    def _weights(self) -> int:
        return sum(layer.weight_elements for layer in self.layers)

    @property
    def _activations(self) -> int:
        """Elements of all inputs and outputs of a sample; activations and norms work in place."""
        counted = [layer for layer in self.layers if layer.kind not in ("RELU", "BNORM", "DROPOUT")]
        return sum(layer.input_elements + layer.output_elements for layer in counted)

    @property
    def _chosen(self) -> list[NetLayer]:
        return [layer for layer in self.layers if layer.name in self.split]

    def _steps(self, batch: int) -> int:
        return math.ceil(self.samples / batch)

    def _compute_s(self, parts: int) -> float:
        """Seconds per epoch when the chosen layers are split and the others are not."""
        total = sum(layer_flops(layer) for layer in self.layers)
        chosen = sum(layer_flops(layer) for layer in self._chosen)
        whole = self.samples * self.seconds_per_sample
        return whole * (chosen / parts + total - chosen) / total

    def serial(self, batch: int) -> OracleCost:
        """One device."""
        memory = 2.0 * DELTA * (batch * self._activations + self._weights)
        return OracleCost(compute_s=self.samples * self.seconds_per_sample, communication_s=0.0, memory_bytes=memory)

    def data(self, ranks: int, per_device: int) -> OracleCost:
        """Data parallel: ``per_device`` samples on each of ``ranks``."""
        path = self.network(ranks)
        ring = 2 * (ranks - 1) * (path.alpha_s + self._weights * DELTA * path.beta_s / ranks)
        return OracleCost(
            compute_s=self.samples * self.seconds_per_sample / ranks,
            communication_s=self._steps(per_device * ranks) * ring,
            memory_bytes=2.0 * DELTA * (per_device * self._activations + self._weights),
        )

    def filter(self, ranks: int, batch: int) -> OracleCost:
        """Filter parallel, and channel parallel, which costs the same: ``batch`` samples in all."""
        held = self._held(ranks)
        return OracleCost(
            compute_s=self._compute_s(ranks),
            communication_s=self._steps(batch) * self._layers_s(ranks, batch),
            memory_bytes=2.0 * DELTA * (batch * self._activations + held / ranks),
        )

    def data_filter(self, ranks: int, per_node: int) -> OracleCost:
        """Filter inside each node of ``per_node`` samples, data between nodes; sharded gradients share the node's
        network port."""
        parts = self.per_node
        nodes = _nodes(ranks, parts)
        path = self.network(ranks)
        outer = 2 * (nodes - 1) * (path.alpha_s + self._held(parts) * DELTA * path.beta_s * parts / nodes)
        steps = self._steps(per_node * nodes)
        rounded = steps * per_node * nodes / self.samples  # hybrids count the last step as a whole one
        return OracleCost(
            compute_s=self._compute_s(parts) / nodes * rounded,
            communication_s=steps * (self._layers_s(parts, per_node) + outer),
            memory_bytes=2.0 * DELTA * (per_node * self._activations + self._held(parts)),
        )

    def data_spatial(self, ranks: int, per_node: int) -> OracleCost:
        """Strips of the picture inside each node, data between nodes: halos over the shared host link, the tail behind
        the last split layer gathered, gradients by ring in the node and among one leader of each."""
        parts = self.per_node
        nodes = _nodes(ranks, parts)
        inner, path = self.network(parts), self.network(ranks)
        shared = inner.beta_s * 2 * parts
        halo = sum(
            2 * 2 * (inner.alpha_s + _halo(layer) * per_node * DELTA * shared)
            for layer in self._chosen
            if len(layer.weight) > 2 and max(layer.weight[2:]) > 1
        )
        border = self._chosen[-1].output_elements
        tail = 2 * (parts - 1) * (inner.alpha_s + per_node * border * DELTA * inner.beta_s * 2 / parts)
        size = self._weights * DELTA
        local = 2 * (parts - 1) * (inner.alpha_s + size * inner.beta_s / parts)
        leaders = 2 * (nodes - 1) * (path.alpha_s + size * path.beta_s * 2 * parts / nodes)
        return OracleCost(
            compute_s=self._compute_s(parts) / nodes,
            communication_s=self._steps(per_node * nodes) * (halo + tail + local + leaders),
            memory_bytes=2.0 * DELTA * (per_node * self._activations / parts + self._weights),
        )

    def pipeline(self, stages: Sequence[Sequence[NetLayer]], batch: int, segments: int) -> OracleCost:
        """Whole layers dealt out to ``stages``, each batch in ``segments``."""
        ranks = len(stages)
        total = sum(layer_flops(layer) for layer in self.layers)
        slowest = max(sum(map(layer_flops, stage)) for stage in stages) / total
        path = self.network(ranks)
        border = max((stage[-1].output_elements for stage in stages[:-1]), default=0)
        hop = path.alpha_s + batch / segments * border * DELTA * path.beta_s
        laps = ranks + segments
        return OracleCost(
            compute_s=self.samples * (laps - 1) / segments * self.seconds_per_sample * slowest,
            communication_s=2 * self.samples * (laps - 2) / batch * hop if ranks > 1 else 0.0,
            memory_bytes=2.0
            * DELTA
            * max(
                sum(batch * (layer.input_elements + layer.output_elements) + layer.weight_elements for layer in stage)
                for stage in stages
            ),
        )

    def _held(self, parts: int) -> float:
        """Parameters that one of ``parts`` devices keeps."""
        chosen = sum(layer.weight_elements for layer in self._chosen)
        return chosen / parts + self._weights - chosen

    def _layers_s(self, ranks: int, batch: int) -> float:
        """Seconds per step to gather outputs forward and add up input gradients backward: three passes of a ring."""
        path = self.network(ranks)
        return sum(
            3 * (ranks - 1) * (path.alpha_s + batch * layer.output_elements * DELTA * path.beta_s / ranks)
            for layer in self._chosen
        )


def _nodes(ranks: int, per_node: int) -> int:
    if ranks % per_node:
        raise RequestError(f"hybrids fill whole nodes of {per_node}, but got {ranks} devices")
    return ranks // per_node


def _halo(layer: NetLayer) -> int:
    """Elements of one border: channels, half the window, the other extents."""
    return layer.input[0] * ((layer.weight[2] - 1) // 2) * math.prod(layer.input[2:])
