"""Profile of the messages of a replayed run."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from math import isnan
from typing import cast, get_args

import numpy as np

from forerun.search.measured.profiling.document import Line, Profile
from forerun.simulator.costs import Collective, collective_time_s
from forerun.simulator.replay import Analysis
from forerun.simulator.replay.learned import served_exchanges
from forerun.simulator.replay.matching import MatchedMessage
from forerun.spaces.clusters import Cluster
from forerun.spaces.errors import RequestError

_NAMES = {"pair": "send_recv"}
FAR = 20.0
"""Factor on the fitted time of messages from which a warning is given; contention explains smaller factors."""


def replayed_profile(analysis: Analysis, cluster: Cluster) -> Profile:
    """Return the messages of a run by kind, bytes, ranks and stride: the median from the last arrival to the median
    end.

    Ranks are assumed to be numbered node by node, as by launchers. Messages of unknown size, of kinds without a cost
    rule, or between ranks that are not evenly spaced are counted as skipped.

    Raises:
        RequestError: the run has no usable message.
    """
    graph = analysis.replay.graph
    seconds: dict[tuple[str, float, int, int], list[float]] = defaultdict(list)
    skipped: dict[str, int] = defaultdict(int)
    served = served_exchanges(graph)
    if len(served) < len(graph.matching.exchanges):
        skipped["ended before the last rank came"] = len(graph.matching.exchanges) - len(served)
    for one, took_s in served:
        kind = _NAMES.get(one.operation, one.operation)
        ranks = [graph.traces[place].rank for place, _ in one.members]
        stride = stride_of(ranks)
        reason = _reason(kind, one, stride)
        if reason:
            skipped[reason] += 1
        else:
            seconds[kind, one.size_bytes, len(ranks), stride].append(took_s)
    if not seconds:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in skipped.items()) or "there are none"
        raise RequestError(f"no message of the run can be kept in a profile: {reasons}; record shapes, trace all ranks")
    return Profile(
        source="replay",
        device=cluster.device.name,
        made={
            "by": "forerun replay",
            "on": date.today().isoformat(),
            "traces": len(graph.traces),
            "steps": len(analysis.replay.measured_s),
            "cluster": cluster.name,
        },
        operators=(),
        collectives=tuple(_line(cluster, *key, times) for key, times in sorted(seconds.items())),
        skipped=dict(skipped),
    )


def strange_pace(profile: Profile) -> str:
    """Return a warning if message times are far from the cluster's links, which indicates another cluster."""
    ratio = float(np.median([line.seconds / line.fitted_s for line in profile.collectives]))
    if 1 / FAR < ratio < FAR:
        return ""
    times = f"{ratio:,.0f} times" if ratio > 1 else f"a {1 / ratio:,.0f}th of"
    return (
        f"messages took {times} what they should between devices of {profile.made['cluster']}; was the run on that "
        "cluster, and did its GPUs exchange them (not gloo on the host)?"
    )


def stride_of(ranks: Sequence[int]) -> int:
    """Return the stride of evenly spaced ranks, 0 for other ranks.

    >>> stride_of([8, 0, 16]), stride_of([0, 1, 3])
    (8, 0)
    """
    gaps = set(np.diff(sorted(ranks)).tolist())
    return gaps.pop() if len(gaps) == 1 else 0


def _reason(kind: str, one: MatchedMessage, stride: int) -> str:
    """Return the reason why a message is unusable; "" for a usable one."""
    if kind not in get_args(Collective):
        return f"cost rules know no {kind}"
    if isnan(one.size_bytes) or one.size_bytes <= 0:
        return "size unknown"
    if len(one.members) < one.size:
        return "ranks without a trace take part"
    return "" if stride > 0 else "ranks unevenly spaced"


def _line(cluster: Cluster, kind: str, size: float, ranks: int, stride: int, times: list[float]) -> Line:
    reach = stride if kind == "send_recv" else (ranks - 1) * stride
    place = "network" if reach >= cluster.devices_per_node else "node"
    middle = float(np.median(times))
    low, high = np.percentile(times, [25, 75])
    fitted = float(collective_time_s(cluster, cast(Collective, kind), size, float(ranks), float(stride)))
    return Line(
        name=f"{kind} {place}",
        shape=(size, float(ranks), float(stride)),
        seconds=middle,
        spread=float(high - low) / 2 / middle,
        fitted_s=fitted,
    )
