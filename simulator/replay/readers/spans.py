"""Growing spans of one rank as columns; times in microseconds from the trace's origin."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from forerun.simulator.replay.trace import Floats, Integers, SpanMessage


@dataclass(slots=True)
class Spans:
    """One entry per span and column.

    ``cause``: span whose end starts it (-1: none); ``synced``: whether the gap before it is a call that waits for the
    device; ``messages``: by span number.
    """

    start: "array[float]" = field(default_factory=lambda: array("d"))
    end: "array[float]" = field(default_factory=lambda: array("d"))
    lane: "array[int]" = field(default_factory=lambda: array("i"))
    name: "array[int]" = field(default_factory=lambda: array("i"))
    variant: "array[int]" = field(default_factory=lambda: array("i"))
    cause: "array[int]" = field(default_factory=lambda: array("q"))
    kind: "array[int]" = field(default_factory=lambda: array("b"))
    phase: "array[int]" = field(default_factory=lambda: array("b"))
    synced: "array[int]" = field(default_factory=lambda: array("b"))
    messages: dict[int, SpanMessage] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def add(
        self,
        start: float,
        end: float,
        lane: int,
        name: int,
        kind: int,
        phase: int,
        variant: int,
        *,
        synced: bool = False,
        cause: int = -1,
    ) -> int:
        """Add one span and return its number."""
        self.start.append(start)
        self.end.append(end)
        self.lane.append(lane)
        self.name.append(name)
        self.variant.append(variant)
        self.cause.append(cause)
        self.kind.append(kind)
        self.phase.append(phase)
        self.synced.append(synced)
        return len(self.start) - 1

    def extend(
        self, start: Floats, end: Floats, lane: int, name: Integers, kind: int, phase: Integers, variant: Integers
    ) -> None:
        """Add many spans of one lane without launches."""
        count = len(start)
        self.start.frombytes(np.ascontiguousarray(start).tobytes())
        self.end.frombytes(np.ascontiguousarray(end).tobytes())
        self.lane.frombytes(np.full(count, lane, dtype=np.int32).tobytes())
        self.name.frombytes(name.astype(np.int32).tobytes())
        self.variant.frombytes(variant.astype(np.int32).tobytes())
        self.cause.frombytes(np.full(count, -1, dtype=np.int64).tobytes())
        self.kind.frombytes(np.full(count, kind, dtype=np.int8).tobytes())
        self.phase.frombytes(phase.astype(np.int8).tobytes())
        self.synced.frombytes(bytes(count))
