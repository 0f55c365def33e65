"""Single messages that took much longer than similar ones, because of congestion, a retry or a busy host."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.learned import served_exchanges
from forerun.simulator.replay.matching import MatchedMessage

_FEWEST = 4
"""Smallest number of similar messages that define the usual duration."""
_FACTOR, _LEAST_SHARE = 2.0, 0.01
"""Multiple of the median, and lost share of a step, from which a message is an outlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMessage:
    """``took_s``: duration from the last arrival; ``usual_s``: median of similar messages (same operation, bytes and
    ranks); ``at_s``: time since the start of the run.
    """

    operation: str
    ranks: tuple[int, ...]
    size_bytes: float
    step: int
    at_s: float
    took_s: float
    usual_s: float


def slow_messages(graph: ReplayGraph) -> tuple[SlowMessage, ...]:
    """Return the outliers, largest loss first."""
    by_kind: dict[tuple[object, ...], list[tuple[MatchedMessage, float]]] = defaultdict(list)
    for one, took_s in served_exchanges(graph):
        ranks = tuple(graph.traces[place].rank for place, _ in one.members)
        by_kind[one.operation, str(one.size_bytes), ranks].append((one, took_s))
    least_s = _LEAST_SHARE * float(graph.finish_s[-1]) / len(graph.finish_s)
    slow = []
    for messages in by_kind.values():
        usual_s = float(np.median([took_s for _, took_s in messages]))
        for one, took_s in messages if len(messages) >= _FEWEST else ():
            if took_s > _FACTOR * usual_s and took_s - usual_s > least_s:
                place, span = one.members[0]
                slow.append(
                    SlowMessage(
                        operation="send and receive" if one.operation == "pair" else one.operation,
                        ranks=tuple(graph.traces[member].rank for member, _ in one.members),
                        size_bytes=one.size_bytes,
                        step=int(graph.traces[place].step[span]),
                        at_s=float(graph.start_s[place][span]),
                        took_s=took_s,
                        usual_s=usual_s,
                    )
                )
    return tuple(sorted(slow, key=lambda one: (one.usual_s - one.took_s, one.at_s)))
