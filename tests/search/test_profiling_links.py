"""A profile of two ranks says whether short messages are slow once or at every step, and so speaks of more ranks."""

from dataclasses import replace

import pytest
from forerun_examples import request, small_cluster, small_device

from forerun.search.measured.profiling import Line, Profile
from forerun.search.measured.profiling.links import Short, with_measured_steps
from forerun.simulator.costs import Collective, collective_time_s
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.strategies import Context

STEP_S, ONCE_S = 2e-3, 0.2e-3
STEPS = {
    "all_reduce": lambda ranks: 2 * (ranks - 1),
    "all_gather": lambda ranks: ranks - 1,
    "send_recv": lambda ranks: 1,
}


def fitted(cluster: Cluster, kind: Collective, size: float, ranks: float, stride: float) -> float:
    return float(collective_time_s(cluster, kind, size, ranks, stride))


def truth(cluster: Cluster, kind: Collective, size: float, ranks: float) -> float:
    """A network on which every call takes longer, and every step too."""
    return fitted(cluster, kind, size, ranks, 8) + ONCE_S + STEP_S * STEPS[kind](ranks)


def profiled(lines: list[tuple[Collective, float, float]]) -> Context:
    context = request()
    cluster = context.cluster
    collectives = tuple(
        Line(
            name=f"{kind} network",
            shape=(size, ranks, 8.0),
            seconds=truth(cluster, kind, size, ranks),
            spread=0.0,
            fitted_s=fitted(cluster, kind, size, ranks, 8),
        )
        for kind, size, ranks in lines
    )
    profile = Profile(source="p.yaml", device="h100-sxm", made={}, operators=(), collectives=collectives, skipped={})
    return profile.applied(context)[0]


def test_two_ranks_speak_of_sixteen() -> None:
    """Rings only: over many ranks the rule of an all-reduce takes the tree where that is faster."""
    sizes: tuple[float, ...] = (1024.0, 65536.0, 2.0**22)
    kinds: tuple[Collective, ...] = ("all_reduce", "all_gather", "send_recv")
    context = profiled([(kind, size, 2.0) for size in sizes for kind in kinds])
    for size in sizes:
        found = fitted(context.cluster, "all_gather", size, 16.0, 8)
        assert found == pytest.approx(truth(small_cluster(), "all_gather", size, 16.0), rel=0.15)
    assert fitted(context.cluster, "all_reduce", 1024.0, 2.0, 8) == pytest.approx(
        truth(small_cluster(), "all_reduce", 1024.0, 2.0), rel=1e-6
    )


def test_what_is_spent_once_is_not_spent_at_every_step() -> None:
    both = profiled([("all_reduce", 1024.0, 2.0), ("send_recv", 1024.0, 2.0)])
    level = both.cluster.levels[-1]
    assert level.latency_s - small_cluster().levels[-1].latency_s == pytest.approx(STEP_S, rel=0.05)
    assert both.cluster.levels[0] == small_cluster().levels[0]


def test_links_that_are_faster_keep_their_latency() -> None:
    cluster = small_cluster()
    quick = [Short(kind="all_reduce", shape=(1024.0, 2.0, 8.0), seconds=1e-6)]
    assert with_measured_steps(cluster, quick, "network") is cluster
    assert with_measured_steps(cluster, [], "network") is cluster
    long = [Short(kind="all_reduce", shape=(2.0**30, 2.0, 8.0), seconds=10.0)]
    assert with_measured_steps(cluster, long, "network") is cluster


def test_operators_alone_leave_the_links() -> None:
    context = request()
    line = Line(name="gemm forward bf16", shape=(64, 64, 64, 1), seconds=1e-3, spread=0.0, fitted_s=1e-5)
    profile = Profile(source="p.yaml", device="h100-sxm", made={}, operators=(line,), collectives=(), skipped={})
    cluster = profile.applied(context)[0].cluster
    assert cluster.measured is None
    assert replace(cluster, device=small_device()) == replace(context.cluster, device=small_device())
