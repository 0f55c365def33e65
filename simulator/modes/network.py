"""The network between workers and servers in training modes."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from forerun.simulator.opgraph.messages import reduce_s, rendezvous_s
from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.clusters.spec import NETWORK_KINDS
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.profile import GraphProfile

HOST_BYTES_PER_S = 10e9
"""Rate at which a host with the parameters receives, or sends, for all its devices together. The value is the rate
between the sockets of a machine (NCCL: 10 GB/s for Skylake), as VGG-16 on eight K80 shows (tensorflow.org benchmarks,
May 2017)."""
HOST_LATENCY_S = 10e-6
"""A copy between host and device (CUDA: about 10 us with its launch)."""
MOST_LATENCY_S = 3600.0
"""Limit of a NIC's latency: more than an hour is a mistake."""


class ModeNetwork(Protocol):
    """A network for training modes. Rates are per direction (full duplex)."""

    @property
    def worker_bytes_per_s(self) -> float:
        """Rate of a worker's NIC."""

    @property
    def server_bytes_per_s(self) -> float:
        """Rate of a server's NIC."""

    @property
    def latency_s(self) -> float:
        """Seconds before the first byte of a message arrives."""

    @property
    def ring(self) -> bool:
        """Whether an all-reduce is a ring over the workers' NICs, which the event level runs round by round."""

    def all_reduce_s(self, size_bytes: float, workers: int) -> float:
        """Compute the seconds of an all-reduce of ``size_bytes`` per worker."""

    def blocked_s(self, workers: int) -> float:
        """Compute the seconds for which each overlapped all-reduce blocks computation."""

    def rendezvous_s(self, workers: int) -> float:
        """Compute the seconds that workers of several nodes need in each step to agree on the exchange."""

    def faster(self, factor: float) -> "ModeNetwork":
        """Return the network with ``factor`` times the bandwidth and the same latencies."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NicNetwork:
    """Nodes of one NIC each behind a non-blocking switch.

    Raises:
        RequestError: a rate is below a byte per second, the latency is negative or an hour, or a rate is not finite.
    """

    worker_bytes_per_s: float
    server_bytes_per_s: float
    latency_s: float = 0.0
    ring: bool = True

    def __post_init__(self) -> None:
        for name in ("worker_bytes_per_s", "server_bytes_per_s"):
            if not 1.0 <= getattr(self, name) < math.inf:
                raise RequestError(f"{name} must be at least 1 and finite, but got {getattr(self, name)}")
        if not 0 <= self.latency_s <= MOST_LATENCY_S:
            raise RequestError(f"latency_s must be at least 0 and at most {MOST_LATENCY_S:g}, but got {self.latency_s}")

    def all_reduce_s(self, size_bytes: float, workers: int) -> float:
        """Compute a ring: 2 (W - 1) rounds of one W-th each (Patarasuk and Yuan 2009)."""
        return 2 * (workers - 1) * (self.latency_s + size_bytes / (workers * self.worker_bytes_per_s))

    def blocked_s(self, workers: int) -> float:
        """Return 0: a ring over NICs blocks no computation."""
        return 0.0

    def rendezvous_s(self, workers: int) -> float:
        """Return 0: a ring needs no agreement on the exchange."""
        return 0.0

    def faster(self, factor: float) -> "NicNetwork":
        """Return the network with ``factor`` times the bandwidth."""
        worker, server = factor * self.worker_bytes_per_s, factor * self.server_bytes_per_s
        return replace(self, worker_bytes_per_s=worker, server_bytes_per_s=server)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNetwork:
    """A cluster of the catalogue: a worker is a device, a server a separate node at the same switches.

    All-reduces follow the collective rule for consecutive nodes. A worker's NIC is its share of its node's NICs; a
    server's NIC is all NICs of its node. In a cluster of one node workers reach servers, which are the host, over PCIe.
    ``rules``: rules of the software that exchanges gradients. ``factor``: factor on all bandwidths.
    """

    cluster: Cluster
    rules: GraphProfile
    factor: float = 1.0

    @property
    def worker_bytes_per_s(self) -> float:
        """A device's share of its node's NICs, or of PCIe in a cluster of one node."""
        level = self._outer
        return self.factor * (self.cluster.device.host_bytes_per_s if level is None else level.bytes_per_s)

    @property
    def server_bytes_per_s(self) -> float:
        """All NICs of a node; the host's rate in a cluster of one node."""
        level = self._outer
        return self.factor * (HOST_BYTES_PER_S if level is None else level.bytes_per_s * self.cluster.devices_per_node)

    @property
    def latency_s(self) -> float:
        """Seconds of one step of a collective."""
        level = self._outer
        return HOST_LATENCY_S if level is None else level.latency_s

    @property
    def ring(self) -> bool:
        """The rule chooses the algorithm."""
        return False

    @property
    def _outer(self) -> Level | None:
        levels = [level for level in self.cluster.levels if level.kind in NETWORK_KINDS]
        return levels[0] if levels else None

    def all_reduce_s(self, size_bytes: float, workers: int) -> float:
        """Apply the collective rule.

        Raises:
            RequestError: there are more workers than devices.
        """
        if workers > self.cluster.max_devices:
            raise RequestError(
                f"{self.cluster.name} has at most {self.cluster.max_devices} devices, but got {workers} workers"
            )
        ranks, stride = np.array(float(workers)), np.array(1.0)
        share = self.rules.gradient_share
        return float(reduce_s(self.cluster, np.array(size_bytes / self.factor), ranks, stride, share))

    def blocked_s(self, workers: int) -> float:
        """Return the profile's share of an empty all-reduce."""
        return self.rules.blocked_share * self.all_reduce_s(self.factor, workers) if workers > 1 else 0.0

    def rendezvous_s(self, workers: int) -> float:
        """Return the profile's rendezvous time for the nodes of these workers."""
        return float(rendezvous_s(self.rules, -(-workers // self.cluster.devices_per_node)))

    def faster(self, factor: float) -> "ClusterNetwork":
        """Return the network with ``factor`` times the bandwidth."""
        return replace(self, factor=self.factor * factor)
