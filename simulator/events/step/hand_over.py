"""Edges between tasks of different devices, in any order of writing."""

from array import array

from forerun.simulator.events.engine.graph import EventGraph
from forerun.simulator.events.engine.live_graph import place_of
from forerun.spaces.schedules import Pass

Made = tuple[bool, int, int]
"""Result of a pass: whether it is a gradient, its microbatch, and the virtual stage that computes it."""


class HandOver:
    """Dependencies between a pipeline's virtual stages; ``arrows``: transfers and the tasks that they start."""

    def __init__(self, graph: EventGraph, chunks: int, arrows: "array[int] | None") -> None:
        self._graph, self._chunks, self._arrows = graph, chunks, arrows
        self._made: dict[Made, tuple[int, bool]] = {}
        self._wanted: dict[Made, int] = {}

    def enter(self, kind: Pass, microbatch: int, chunk: int, task: int) -> None:
        """Let a pass wait for the output of the virtual stage before it (or after it, for a backward pass)."""
        gradient = kind != Pass.FORWARD
        source = chunk + 1 if gradient else chunk - 1
        if not 0 <= source < self._chunks:
            return
        key = gradient, microbatch, source
        if key in self._made:
            before, sent = self._made.pop(key)
            self._graph.need(task, before)
            self._draw(before, task, sent)
        else:
            self._graph.promise(task)
            self._wanted[key] = task

    def leave(self, kind: Pass, microbatch: int, chunk: int, task: int, *, sent: bool) -> None:
        """Hand on the output of a pass, available when ``task`` ends; ``sent``: ``task`` is a transfer."""
        gradient = kind != Pass.FORWARD
        if not 0 <= (chunk - 1 if gradient else chunk + 1) < self._chunks:
            return
        key = gradient, microbatch, chunk
        if key in self._wanted:
            after = self._wanted.pop(key)
            self._graph.fulfil(after, task)
            self._draw(task, after, sent)
        else:
            self._made[key] = task, sent

    def _draw(self, before: int, after: int, sent: bool) -> None:
        if sent and self._arrows is not None:
            self._arrows.extend((place_of(before), place_of(after)))


class Collectives:
    """Collectives of all replicas of a stage by key: the task, and the number of replicas still missing."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self._open: dict[tuple[object, ...], tuple[int, int]] = {}

    def find(self, key: tuple[object, ...]) -> int | None:
        """Return the collective for a further member; None for the first one."""
        if key not in self._open:
            return None
        task, missing = self._open.pop(key)
        if missing > 1:
            self._open[key] = task, missing - 1
        return task

    def begin(self, key: tuple[object, ...], task: int) -> int:
        """Record a collective added by its first member; return the number of missing members."""
        if self.replicas > 1:
            self._open[key] = task, self.replicas - 1
        return self.replicas - 1
