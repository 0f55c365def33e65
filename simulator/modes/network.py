"""The network between workers and servers, as far as training modes see it."""

from dataclasses import dataclass
from typing import Protocol

from forerun.spaces.errors import RequestError


class Network(Protocol):
    """What a mode asks of a network. Rates are per direction (full duplex)."""

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
        """Whether an all-reduce is a ring over the workers' NICs, which the event level then runs round by round."""

    def all_reduce_s(self, size_bytes: float, workers: int) -> float:
        """Seconds of an all-reduce of ``size_bytes`` per worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NicNetwork:
    """Nodes of one NIC each behind a switch that is never full.

    Raises:
        RequestError: a rate is not above zero or the latency is negative.
    """

    worker_bytes_per_s: float
    server_bytes_per_s: float
    latency_s: float = 0.0
    ring: bool = True

    def __post_init__(self) -> None:
        for name in ("worker_bytes_per_s", "server_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise RequestError(f"{name} must be more than 0, but got {getattr(self, name)}")
        if not self.latency_s >= 0:
            raise RequestError(f"latency_s must be at least 0, but got {self.latency_s}")

    def all_reduce_s(self, size_bytes: float, workers: int) -> float:
        """Ring: 2 (W - 1) rounds of one W-th each (Patarasuk and Yuan 2009)."""
        return 2 * (workers - 1) * (self.latency_s + size_bytes / (workers * self.worker_bytes_per_s))
