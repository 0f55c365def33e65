"""Activity of a rank, whatever profiler wrote it down: spans on lanes, as arrays.

A *lane* runs one span at a time, as measured: a thread of the host, a stream of a device, a channel of the network.
Times are seconds of the rank's own clock, from a moment that is common to all traces of one reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


LEAST_S = 20e-6
"""Shortest gap that is explained by a wait: launches and calls of an interpreter take as long."""
LATE = 0.1
"""Share of a message's duration (or of the wait for it) by which the host's stamp of its end may be late: the thread
that takes it was not scheduled at once."""


class SpanKind(IntEnum):
    """Kinds of spans. ``HOST`` is the work of a host that drives a device; a host that computes itself has
    ``COMPUTE``."""

    COMPUTE = 0
    COPY = 1
    HOST = 2
    COLLECTIVE = 3
    SEND = 4
    RECEIVE = 5


MESSAGES = (SpanKind.COLLECTIVE, SpanKind.SEND, SpanKind.RECEIVE)
"""Spans that more than one rank takes part in."""


class SpanPhase(IntEnum):
    """Part of a step that a span belongs to."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    OTHER = 3


class Place(IntEnum):
    """Where a lane is."""

    HOST = 0
    DEVICE = 1
    NETWORK = 2


LARGEST_BYTES = 1e15
"""A message of more bytes is an error of the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanMessage:
    """Message of a span. ``operation``: as ``all_reduce``, ``send``. ``size_bytes``: of the whole tensor, for
    all-gather and reduce-scatter the larger side; NaN where the trace does not say, or says more than
    ``LARGEST_BYTES``. ``ranks``: who takes part, None where the trace does not say; of a send or receive (source,
    destination). ``label``: what tells messages of the same ranks apart (process group, tensor, tag)."""

    operation: str
    size_bytes: float
    ranks: tuple[int, ...] | None
    label: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.size_bytes <= LARGEST_BYTES:
            object.__setattr__(self, "size_bytes", float("nan"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One rank. Arrays have one entry per span, in order of (lane, start).

    ``cause``: span whose end lets this one start (a kernel's launch), -1 where none is known. ``synced``: whether the
    gap before a span is a call that waits for the device. ``step``: number of the
    step. ``after``: all that a span waits for, where the trace says so itself (then order on lanes is not measured but
    free); None elsewhere. ``variant``: number of the shapes or grid of a span among ``variants``, so that only alike
    are compared. ``marked``: whether the trace says where steps begin.
    ``gradient_s``, ``gradient_bytes``: when each gradient was ready, and its bytes.
    """

    rank: int
    host: str
    source: str
    version: str
    lanes: tuple[str, ...]
    places: tuple[Place, ...]
    names: tuple[str, ...]
    start_s: Floats
    end_s: Floats
    lane: Integers
    name: Integers
    kind: Integers
    phase: Integers
    step: Integers
    cause: Integers
    synced: Booleans
    variant: Integers
    variants: tuple[str, ...]
    messages: Mapping[int, SpanMessage]
    groups: tuple[tuple[int, ...], ...] = ()
    world: int = 0
    after: tuple[tuple[int, ...], ...] | None = None
    marked: bool = True
    gradient_s: Floats = field(default_factory=lambda: np.empty(0))
    gradient_bytes: Floats = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.start_s)

    @property
    def steps(self) -> int:
        """Number of steps of the trace."""
        return int(self.step.max()) + 1 if len(self.step) else 0

    @property
    def has_device(self) -> bool:
        """Whether a device computes, and not the host."""
        return Place.DEVICE in self.places

    def title(self, span: int) -> str:
        """Return the name of a span in reports."""
        return self.names[int(self.name[span])]
