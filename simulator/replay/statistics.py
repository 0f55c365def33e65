"""Duration of each operator over all ranks and steps of a run, compared with another run, and longest gaps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import Place, RankTrace, SpanKind, SpanPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorUse:
    """One operator of a run: spans of one name, kind and phase.

    ``count``: spans of all ranks and steps; ``mean_s``, ``deviation_s``, ``least_s``, ``most_s``: seconds of one span;
    ``step_s``: seconds per step, mean over ranks; ``slowest_rank``: rank with the most seconds per step.
    """

    name: str
    kind: str
    phase: str
    count: int
    mean_s: float
    deviation_s: float
    least_s: float
    most_s: float
    step_s: float
    slowest_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDifference:
    """One operator in two runs: seconds per step, mean over ranks; 0 where a run does not have the operator."""

    name: str
    kind: str
    phase: str
    step_s: float
    other_step_s: float

    @property
    def difference_s(self) -> float:
        """Seconds per step in this run minus seconds in the other."""
        return self.step_s - self.other_step_s


def operator_uses(traces: Sequence[RankTrace]) -> tuple[OperatorUse, ...]:
    """Return all operators of a run, most seconds per step first."""
    steps = max(trace.steps for trace in traces)
    taken: dict[tuple[str, int, int], dict[int, list[float]]] = {}
    for trace in traces:
        seconds = trace.end_s - trace.start_s
        keys = np.stack([trace.name, trace.kind, trace.phase])
        for name, kind, phase in np.unique(keys, axis=1).T.tolist():
            of_key = (keys == np.array([[name], [kind], [phase]])).all(axis=0)
            taken.setdefault((trace.names[name], kind, phase), {})[trace.rank] = seconds[of_key].tolist()
    uses = []
    for (name, kind, phase), by_rank in taken.items():
        spans = np.concatenate([np.array(one) for one in by_rank.values()])
        uses.append(
            OperatorUse(
                name=name,
                kind=SpanKind(kind).name.lower(),
                phase=SpanPhase(phase).name.lower(),
                count=len(spans),
                mean_s=float(spans.mean()),
                deviation_s=float(spans.std()),
                least_s=float(spans.min()),
                most_s=float(spans.max()),
                step_s=float(spans.sum()) / steps / len(traces),
                slowest_rank=max(by_rank, key=lambda rank: sum(by_rank[rank])),
            )
        )
    return tuple(sorted(uses, key=lambda use: (-use.step_s, use.name, use.kind, use.phase)))


def operator_differences(uses: Sequence[OperatorUse], others: Sequence[OperatorUse]) -> tuple[OperatorDifference, ...]:
    """Return the operators of two runs in pairs, largest difference in seconds per step first."""
    here, other = ({(use.name, use.kind, use.phase): use.step_s for use in run} for run in (uses, others))
    differences = [
        OperatorDifference(
            name=key[0], kind=key[1], phase=key[2], step_s=here.get(key, 0.0), other_step_s=other.get(key, 0.0)
        )
        for key in here.keys() | other.keys()
    ]
    return tuple(sorted(differences, key=lambda one: (-abs(one.difference_s), one.name, one.kind, one.phase)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A lane without work for ``seconds``, ``at_s`` after the start of the run, between two spans."""

    rank: int
    lane: str
    step: int
    at_s: float
    seconds: float
    behind: str
    before: str


def largest_gaps(graph: ReplayGraph, count: int) -> tuple[Gap, ...]:
    """Return the longest gaps of all computing lanes (of the device, where the rank has one), longest first."""
    gaps = []
    for place, trace in enumerate(graph.traces):
        where = Place.DEVICE if trace.has_device else Place.HOST
        for lane, name in enumerate(trace.lanes):
            spans = np.flatnonzero(trace.lane == lane)
            if trace.places[lane] is not where or not np.any(trace.kind[spans] == SpanKind.COMPUTE):
                continue
            spans = spans[np.argsort(graph.start_s[place][spans], kind="stable")]
            ended = np.maximum.accumulate(graph.end_s[place][spans])[:-1]
            idle = graph.start_s[place][spans][1:] - ended
            for number in np.argsort(-idle, kind="stable")[:count].tolist():
                if idle[number] > 0:
                    first, then = int(spans[number]), int(spans[number + 1])
                    gaps.append(
                        Gap(
                            rank=trace.rank,
                            lane=name,
                            step=int(trace.step[then]),
                            at_s=float(ended[number]),
                            seconds=float(idle[number]),
                            behind=trace.title(first),
                            before=trace.title(then),
                        )
                    )
    return tuple(sorted(gaps, key=lambda gap: (-gap.seconds, gap.rank, gap.at_s))[:count])
