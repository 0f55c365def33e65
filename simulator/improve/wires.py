"""Seconds of a message of gradients: all-reduce by the cost rules or a measured line, or parameter servers."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.opgraph.messages import reduce_s
from forerun.spaces.clusters import Cluster
from forerun.spaces.errors import RequestError

Floats = NDArray[np.float64]
MOST_PIECES = 64
"""Limit of pieces of a message."""


class Wire(Protocol):
    """The connection over which gradients travel. ``seconds`` accepts arrays; more bytes never take less time."""

    def seconds(self, size_bytes: ArrayLike, pieces: ArrayLike = 1) -> Floats:
        """Return the seconds of messages of the given bytes and pieces."""
        ...

    def best_pieces(self, size_bytes: ArrayLike) -> NDArray[np.int64]:
        """Return the fastest number of pieces for each message: one, where pieces are sent in sequence."""
        return np.ones(np.shape(size_bytes), dtype=np.int64)

    def faster(self, factor: float) -> Self:
        """Return the wire with ``factor`` times the bandwidth."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWire(Wire):
    """A measured wire: ``latency_s + bytes / bytes_per_s``.

    ``host_s_per_byte``: part of the seconds per byte in which hosts copy and sum; a faster link does not change it.
    """

    latency_s: float
    bytes_per_s: float
    host_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bytes_per_s > 0):
            raise RequestError(
                f"a wire has a latency of at least 0 and a rate above 0, but got {self.latency_s} s and "
                f"{self.bytes_per_s} B/s"
            )

    def seconds(self, size_bytes: ArrayLike, pieces: ArrayLike = 1) -> Floats:
        """Return seconds of messages."""
        size, cut = np.asarray(size_bytes, dtype=np.float64), np.asarray(pieces, dtype=np.float64)
        result: Floats = cut * self.latency_s + size / self.bytes_per_s
        return result

    def faster(self, factor: float) -> "LineWire":
        """Return the wire with more bandwidth."""
        link_s = 1 / self.bytes_per_s - self.host_s_per_byte
        return replace(self, bytes_per_s=1 / (self.host_s_per_byte + link_s / factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWire(Wire):
    """All-reduce between ``ranks`` devices of a cluster, by the cost rules.

    ``factor``: factor on the cluster's bandwidth; the time of an empty message does not change. ``share``: share of the
    rule's rate between nodes that the framework reaches.
    """

    cluster: Cluster
    ranks: int
    stride: int = 1
    factor: float = 1.0
    share: float = 1.0

    def seconds(self, size_bytes: ArrayLike, pieces: ArrayLike = 1) -> Floats:
        """Return the seconds of messages; pieces are sent in sequence."""
        size, cut = np.broadcast_arrays(np.asarray(size_bytes, dtype=np.float64), np.asarray(pieces, dtype=np.float64))
        ranks, stride = np.array(float(self.ranks)), np.array(float(self.stride))
        reduce_time_s = reduce_s(self.cluster, size / cut, ranks, stride, self.share)
        least = float(reduce_s(self.cluster, np.array(1.0), ranks, stride, self.share))
        result: Floats = cut * (least + (reduce_time_s - least) / self.factor)
        return result

    def faster(self, factor: float) -> "RuleWire":
        """Return the wire with more bandwidth."""
        return replace(self, factor=self.factor * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWire(Wire):
    """Gradients pushed to servers and parameters pulled back, in both directions at the same time.

    Every piece is pushed, summed and pulled; the next piece is pushed during the pull. ``push_s``, ``pull_s``: per
    message; ``push_bytes_per_s``, ``pull_bytes_per_s``: a worker's rate in each direction.
    """

    push_s: float
    pull_s: float
    push_bytes_per_s: float
    pull_bytes_per_s: float

    def seconds(self, size_bytes: ArrayLike, pieces: ArrayLike = 1) -> Floats:
        """Return the seconds of messages: k - 1 pieces of the slower direction, and one of both."""
        size, cut = np.asarray(size_bytes, dtype=np.float64), np.asarray(pieces, dtype=np.float64)
        push = self.push_s + size / cut / self.push_bytes_per_s
        pull = self.pull_s + size / cut / self.pull_bytes_per_s
        result: Floats = (cut - 1) * np.maximum(push, pull) + push + pull
        return result

    def best_pieces(self, size_bytes: ArrayLike) -> NDArray[np.int64]:
        """Return the best number of pieces for each message.

        The number is next to the root of bytes times the faster direction's slope over the slower one's latency.
        """
        size = np.atleast_1d(np.asarray(size_bytes, dtype=np.float64))
        push, pull = (self.push_s, 1 / self.push_bytes_per_s), (self.pull_s, 1 / self.pull_bytes_per_s)
        slow, fast = (push, pull) if push[1] >= pull[1] else (pull, push)
        root = np.sqrt(size * fast[1] / max(slow[0], 1e-12))
        choices = np.clip(np.stack([np.floor(root), np.ceil(root), np.ones_like(root)]), 1, MOST_PIECES)
        best = np.argmin(self.seconds(size, choices), axis=0)
        result: NDArray[np.int64] = np.take_along_axis(choices, best[None], axis=0)[0].astype(np.int64)
        return result.reshape(np.shape(size_bytes))

    def faster(self, factor: float) -> "ServerWire":
        """Return the wire with more bandwidth in both directions."""
        return replace(
            self, push_bytes_per_s=self.push_bytes_per_s * factor, pull_bytes_per_s=self.pull_bytes_per_s * factor
        )
