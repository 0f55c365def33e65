"""Latency per ring step of a link, from short messages and all-reduces.

A profile of few ranks must predict many ranks. A ring over n ranks takes 2 (n - 1) steps; the time per step grows with
n, a constant time (a launch) does not. A message between two ranks is one step, an all-reduce of two ranks is two, so
that the difference of two short ones is a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.simulator.costs import collective_time_s
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.spec import NETWORK_KINDS

SHORT_BYTES = 65_536
"""Largest bytes of a short message; long messages depend on the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """The shortest all-reduce and message measured between the fewest ranks: seconds, and shape."""

    kind: str
    shape: tuple[float, float, float]
    seconds: float


def with_measured_steps(cluster: Cluster, shorts: Sequence[Short], place: str) -> Cluster:
    """Return the cluster with the latency of links in ``place`` (node, network) raised to a step's measured time.

    Links faster than the catalogue are unchanged, since their ratio covers this.
    """
    reduced = _least([one for one in shorts if one.kind == "all_reduce"])
    if reduced is None:
        return cluster
    sent = _least([one for one in shorts if one.kind == "send_recv"])
    steps = 2 * (reduced.shape[1] - 1)
    excess_s = reduced.seconds - _fitted_s(cluster, reduced)
    if sent is None:
        step_s = excess_s / steps
    else:
        step_s = min((excess_s - (sent.seconds - _fitted_s(cluster, sent))) / max(steps - 1, 1), excess_s / steps)
    if step_s <= 0:
        return cluster
    far = place == "network"
    levels = tuple(
        replace(level, latency_s=level.latency_s + step_s) if (level.kind in NETWORK_KINDS) == far else level
        for level in cluster.levels
    )
    return replace(cluster, levels=levels)


def _least(shorts: Sequence[Short]) -> Short | None:
    fitting = [one for one in shorts if one.shape[0] <= SHORT_BYTES]
    return min(fitting, key=lambda one: (one.shape[1], one.shape[2], one.shape[0])) if fitting else None


def _fitted_s(cluster: Cluster, one: Short) -> float:
    size, ranks, stride = one.shape
    return float(collective_time_s(cluster, one.kind, size, ranks, stride))  # type: ignore[arg-type]  # checked by the rule
