"""Laws of communication: never negative, free for one rank, monotone in bytes, bandwidth and latency."""

from dataclasses import replace
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.costs import Collective, collective_time_s
from forerun.spaces.clusters.catalogue import load_cluster
from forerun.spaces.clusters.cluster import Cluster, Level

_DGX_H100 = load_cluster("dgx-h100")
_INNER = ["nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "pcie", "torus"]
_OUTER = ["infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet"]
_SIZES = np.array([0.0, 1.0, 512.0, 4e4, 1e6, 3e6, 2e7, 5e8, 1e10, 1e12])


def _cluster(levels: tuple[Level, ...]) -> Cluster:
    return replace(_DGX_H100, levels=levels)


@st.composite
def _clusters(draw: st.DrawFn) -> Cluster:
    rates = st.floats(1e9, 1e12)
    levels = []
    for kinds, size in ((_INNER, draw(st.sampled_from([1, 2, 8, 72]))), (_OUTER, 4096)):
        levels.append(
            Level(
                name="level",
                size=size,
                kind=draw(st.sampled_from(kinds)),
                bytes_per_s=draw(rates),
                port_bytes_per_s=draw(rates),
                latency_s=draw(st.floats(1e-7, 1e-4)),
                in_switch=draw(st.booleans()),
            )
        )
    return _cluster(tuple(levels))


_groups = st.tuples(st.integers(1, 256), st.sampled_from([1, 2, 3, 4, 8, 16]))
_collectives = st.sampled_from(get_args(Collective))
_law = settings(max_examples=tries(150))


@_law
@given(_clusters(), _collectives, _groups, st.booleans())
def test_time_is_finite_and_never_falls_with_bytes(cluster, collective, group, lone) -> None:
    times = collective_time_s(cluster, collective, _SIZES, *group, lone=lone)
    assert np.all(np.isfinite(times)) and np.all(times >= 0.0)
    assert np.all(np.diff(times) >= 0.0)
    assert group[0] == 1 or np.all(times > 0.0)


@_law
@given(_clusters(), _collectives, st.sampled_from([1, 2, 8, 64]))
def test_one_rank_is_free(cluster, collective, stride) -> None:
    assert np.all(collective_time_s(cluster, collective, _SIZES, 1, stride) == 0.0)


@_law
@given(_clusters(), _collectives, _groups, st.integers(0, 1), st.floats(1.0, 10.0), st.booleans())
def test_more_bandwidth_is_never_slower(cluster, collective, group, which, factor, lone) -> None:
    old = cluster.levels[which]
    new = replace(
        old, bytes_per_s=old.bytes_per_s * factor, port_bytes_per_s=old.port_bytes_per_s * factor, name="faster"
    )
    faster = _cluster(tuple(new if at == which else lv for at, lv in enumerate(cluster.levels)))
    slow, fast = (collective_time_s(c, collective, _SIZES, *group, lone=lone) for c in (cluster, faster))
    assert np.all(fast <= slow * (1 + 1e-12))


@_law
@given(_clusters(), _collectives, _groups, st.integers(0, 1), st.floats(0.0, 1.0))
def test_lower_latency_is_never_slower(cluster, collective, group, which, factor) -> None:
    old = cluster.levels[which]
    new = replace(old, latency_s=old.latency_s * factor)
    faster = _cluster(tuple(new if at == which else lv for at, lv in enumerate(cluster.levels)))
    slow, fast = (collective_time_s(c, collective, _SIZES, *group) for c in (cluster, faster))
    assert np.all(fast <= slow * (1 + 1e-12))


@_law
@given(_clusters(), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]), _groups)
def test_working_alone_is_never_slower(cluster, collective, group) -> None:
    together, alone = (collective_time_s(cluster, collective, _SIZES, *group, lone=flag) for flag in (False, True))
    assert np.all(alone <= together * (1 + 1e-12))


@_law
@given(_clusters(), st.integers(2, 8))
def test_long_all_reduce_costs_about_a_scatter_and_a_gather_inside_one_switch(cluster, ranks) -> None:
    inner = replace(cluster.levels[0], size=8, kind="nvswitch", in_switch=False)
    flat = _cluster((inner,))
    reduced, scattered, gathered = (
        collective_time_s(flat, name, _SIZES, ranks) for name in ("all_reduce", "reduce_scatter", "all_gather")
    )
    # Only inside a node: over nodes an all-reduce may take a tree, which scatter and gather cannot.
    assert np.all(reduced >= 0.98 * scattered)
    assert 0.75 < reduced[-1] / (scattered[-1] + gathered[-1]) < 1.05
