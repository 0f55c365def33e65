"""What-if questions about a replayed run: faster links or kernels, no stragglers, no host waits, free messages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.simulator.improve.partial import GraphTimes
from forerun.simulator.replay.analysis import Analysis
from forerun.simulator.replay.graph import GAP
from forerun.simulator.replay.trace import MESSAGES, Place, SpanKind

_KERNELS = 5
"""Number of operators on the critical path with a question each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``step_s``: mean seconds of a step with the change; ``gain_s``: its saving; ``visited``: tasks computed again."""

    name: str
    what: str
    step_s: float
    gain_s: float
    visited: int


FREE_MESSAGES = "free messages"


def free_messages_s(answers: Iterable[Question]) -> float | None:
    """Return the seconds of a replayed step with free messages; None where the question was not answered."""
    return next((one.step_s for one in answers if one.name == FREE_MESSAGES), None)


def run_questions(analysis: Analysis) -> tuple[Question, ...]:
    """Return all questions with their answers, most gain first.

    Raises:
        RequestError: the traces have dependencies but no order of execution.
    """
    return tuple(sorted(answered(analysis, _changes(analysis)), key=lambda one: (-one.gain_s, one.name, one.what)))


def answered(analysis: Analysis, changes: Iterable[tuple[str, str, Mapping[int, float]]]) -> Iterator[Question]:
    """Yield the answer to each change, given by name, description and new durations of tasks.

    Raises:
        RequestError: the traces have dependencies but no order of execution.
    """
    timing, steps = GraphTimes(analysis.replay.graph.graph), len(analysis.replay.measured_s)
    for name, what, durations in changes:
        makespan_s = timing.what_if(durations)
        gain_s = (timing.makespan_s - makespan_s) / steps
        yield Question(name=name, what=what, step_s=makespan_s / steps, gain_s=gain_s, visited=timing.visited)


def _changes(analysis: Analysis) -> list[tuple[str, str, dict[int, float]]]:
    """Return (name, description, durations of tasks) of every question."""
    graph = analysis.replay.graph
    took = graph.graph.duration_s
    messages: list[int] = []
    for place, trace in enumerate(graph.traces):
        messages += graph.task[place][np.isin(trace.kind, MESSAGES)].tolist()
    changes: list[tuple[str, str, dict[int, float]]] = [
        ("faster link", "twice the bandwidth", {task: took[task] / 2 for task in messages}),
        (FREE_MESSAGES, "all that communication costs", dict.fromkeys(messages, 0.0)),
        ("host", "no time between operators", dict.fromkeys(_host_gaps(analysis), 0.0)),
    ]
    names = list(dict.fromkeys(part.name for part in analysis.path if part.kind in ("compute", "copy")))
    for name in names[:_KERNELS]:
        tasks: list[int] = []
        for place, trace in enumerate(graph.traces):
            number = trace.names.index(name) if name in trace.names else -1
            tasks += graph.task[place][(trace.name == number) & (trace.kind <= SpanKind.COPY)].tolist()
        changes.append(("faster kernel", f"{name[:60]} twice as fast", {task: took[task] / 2 for task in tasks}))
    work = {use.rank: use.compute_s for use in analysis.uses}
    for one in analysis.stragglers:
        place = next(place for place, trace in enumerate(graph.traces) if trace.rank == one.rank)
        trace = graph.traces[place]
        own = graph.task[place][(trace.kind <= SpanKind.COPY) & (trace.step >= one.since_step)].tolist()
        factor = max(1 - one.excess_s / work[one.rank], 0.0) if work[one.rank] else 1.0
        changes.append(
            ("no straggler", f"rank {one.rank} as fast as the others", {task: took[task] * factor for task in own})
        )
    return [change for change in changes if change[2]]


def _host_gaps(analysis: Analysis) -> list[int]:
    """Return the gaps on lanes of hosts, except those before the first operator of a lane."""
    graph = analysis.replay.graph
    hosts: set[int] = set()
    for place, trace in enumerate(graph.traces):
        hosts |= {lane for lane, spot in zip(graph.lanes[place], trace.places, strict=True) if spot == Place.HOST}
    seen: set[int] = set()
    gaps = []
    for task, kind in enumerate(graph.graph.kind):
        stream = graph.graph.stream[task]
        if kind == GAP and stream in hosts and stream in seen:
            gaps.append(task)
        seen.add(stream)
    return gaps
