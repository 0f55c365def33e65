"""A rank's trace from any profiler: spans on lanes, as arrays.

A *lane* runs one span at a time, as measured: a thread of the host, a stream of a device, a channel of the network.
Times are seconds of the rank's own clock since a moment common to all traces of one reading.
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
"""Shortest gap explained by a wait: launches and calls of an interpreter take as long."""
LATE = 0.1
"""Share of a message's duration (or of the wait for it) by which the host's stamp of its end may be late. The receiving
thread may not have been scheduled at once."""


class SpanKind(IntEnum):
    """Kind of a span. ``HOST`` is the work of a host that drives a device; a computing host has ``COMPUTE``."""

    COMPUTE = 0
    COPY = 1
    HOST = 2
    COLLECTIVE = 3
    SEND = 4
    RECEIVE = 5


MESSAGES = (SpanKind.COLLECTIVE, SpanKind.SEND, SpanKind.RECEIVE)
"""Kinds of spans of more than one rank."""


class SpanPhase(IntEnum):
    """Phase of the step of a span."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    OTHER = 3


class Place(IntEnum):
    """Location of a lane."""

    HOST = 0
    DEVICE = 1
    NETWORK = 2


LARGEST_BYTES = 1e15
"""Limit of bytes of a message; more is an error of the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanMessage:
    """The message of a span.

    ``operation``: for example ``all_reduce`` or ``send``. ``size_bytes``: size of the entire tensor, for all-gather and
    reduce-scatter the larger side; NaN where the trace has none, or one above ``LARGEST_BYTES``. ``ranks``:
    participants, None where the trace has none; for a send or receive (source, destination). ``label``: distinguishes
    messages of the same ranks (process group, tensor, tag).
    """

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

    ``cause``: span whose end starts this one (a kernel's launch), -1 if unknown. ``synced``: whether the gap before a
    span is a call that waits for the device. ``step``: number of the step. ``after``: all dependencies of a span, where
    the trace has them (order on lanes is free in this case, not measured); None otherwise. ``variant``: index of a
    span's shapes or grid in ``variants``, so that only equal ones are compared. ``marked``: whether the trace has the
    starts of steps.
    ``gradient_s``, ``gradient_bytes``: time when each gradient was ready, and its bytes.
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
        """Number of steps in the trace."""
        return int(self.step.max()) + 1 if len(self.step) else 0

    @property
    def has_device(self) -> bool:
        """Whether a device, rather than the host, computes."""
        return Place.DEVICE in self.places

    def title(self, span: int) -> str:
        """Return the name of a span in reports."""
        return self.names[int(self.name[span])]
