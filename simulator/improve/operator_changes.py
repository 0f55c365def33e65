"""What-if questions about operators of a replayed run: scaled or delayed, on all ranks or on one."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from forerun.simulator.improve.run_questions import Question, answered
from forerun.simulator.replay.analysis import Analysis
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import MESSAGES, RankTrace, SpanKind
from forerun.spaces.errors import RequestError, unknown

GROUPS = {"computation": (SpanKind.COMPUTE, SpanKind.COPY), "communication": MESSAGES, "host": (SpanKind.HOST,)}
"""Names of groups of operators of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """A change of operators.

    ``operators``: a name of ``GROUPS``, an operation of messages (``all_reduce``), an operator's name, or a pattern
    with ``*``; ``rank``: limit to this rank (None: all).

    The duration is multiplied by ``factor`` and increased by ``delay_s``, but never negative.
    """

    operators: str
    rank: int | None = None
    factor: float = 1.0
    delay_s: float = 0.0


def changed_steps(analysis: Analysis, changes: Sequence[OperatorChange]) -> tuple[Question, ...]:
    """Return the step with each of the changes, and with all of several changes together.

    Raises:
        RequestError: no operator or rank of the run matches, or the traces have dependencies but no order of execution.
    """
    graph = analysis.replay.graph
    together: dict[int, float] = {}
    asked: list[tuple[str, dict[int, float]]] = []
    for change in changes:
        tasks = _tasks(graph, change)
        asked.append((change.operators, _durations(graph, change, tasks, {})))
        together |= _durations(graph, change, tasks, together)
    if len(changes) > 1:
        asked.append(("all of these", together))
    steps = len(analysis.replay.measured_s)
    named = ((name, f"{len(durations) / steps:g} operators per step", durations) for name, durations in asked)
    return tuple(answered(analysis, named))


def _durations(
    graph: ReplayGraph, change: OperatorChange, tasks: list[int], before: dict[int, float]
) -> dict[int, float]:
    """Return the durations of tasks with a change, in addition to the changes of ``before``."""
    took = graph.graph.duration_s
    return {task: max(before.get(task, took[task]) * change.factor + change.delay_s, 0.0) for task in tasks}


def _tasks(graph: ReplayGraph, change: OperatorChange) -> list[int]:
    """Return the tasks that match a change.

    Raises:
        RequestError: there are none.
    """
    ranks = [trace.rank for trace in graph.traces]
    if change.rank is not None and change.rank not in ranks:
        raise RequestError(f"the traces are of ranks {min(ranks)} to {max(ranks)}, but a change is for {change.rank}")
    tasks: list[int] = []
    for place, trace in enumerate(graph.traces):
        if change.rank in (None, trace.rank):
            tasks += graph.task[place][_meant(trace, change.operators)].tolist()
    if not tasks:
        raise _nothing_meant(graph, change.operators)
    return tasks


def _nothing_meant(graph: ReplayGraph, operators: str) -> RequestError:
    """Return the error for an operator without a span: an unknown one, or one that others call."""
    titles = {trace.title(span) for trace in graph.traces for span in range(len(trace))}
    if any(operators in trace.names for trace in graph.traces):
        return RequestError(
            f"changes are made to what is not called by another operator, but {operators!r} always is; name its "
            "caller, as `forerun replay --statistics` lists them"
        )
    messages = {message.operation for trace in graph.traces for message in trace.messages.values()}
    return unknown("operator of the traces", operators, {*titles, *messages, *GROUPS})


def _meant(trace: RankTrace, operators: str) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return the spans of a trace that match a name or a pattern."""
    if operators in GROUPS:
        return np.isin(trace.kind, GROUPS[operators])
    numbers = [number for number, name in enumerate(trace.names) if fnmatchcase(name, operators)]
    exchanging = [span for span, message in trace.messages.items() if message.operation == operators]
    meant = np.isin(trace.name, numbers)
    meant[exchanging] = True
    return meant
