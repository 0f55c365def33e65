"""Closed forms, groups on levels, and agreement of the vectorised rule with a plain scalar reference."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.simulator.costs import (
    block_stride,
    collective_time_s,
    members_per_level,
    point_to_point_time_s,
    stride_of,
)
from forerun.simulator.costs.collectives.constants import constants_of, table
from forerun.simulator.costs.collectives.rule import Collective
from forerun.simulator.layouts import Transfer, transfer_time_s
from forerun.spaces.clusters.catalogue import cluster_names, load_cluster
from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.clusters.device import load_device
from forerun.spaces.clusters.spec import NETWORK_KINDS
from forerun.spaces.errors import RequestError

_DGX_H100 = load_cluster("dgx-h100")
MIB = 2.0**20


def cluster_of(*levels: Level, device: str = "h100-sxm") -> Cluster:
    return replace(_DGX_H100, levels=levels, device=load_device(device))


def level(kind: str, size: int, rate: float, port: float | None = None, **more: Any) -> Level:
    port = rate if port is None else port
    more = {"latency_s": 1e-6, **more}
    return Level(name=kind, size=size, kind=kind, bytes_per_s=rate, port_bytes_per_s=port, **more)


DGX = cluster_of(level("nvswitch", 8, 450e9, in_switch=True), level("infiniband", 1024, 50e9, latency_s=3e-6))
FLAT = cluster_of(level("nvswitch", 8, 300e9), device="a100-sxm4-80")
DEEP = cluster_of(
    level("nvswitch", 4, 300e9),
    level("pcie", 8, 32e9),
    level("roce", 64, 12.5e9, 25e9),
    level("ethernet", 512, 1e9, 2e9),
    device="a100-sxm4-80",
)
MESH = cluster_of(level("xgmi-mesh", 8, 448e9, 64e9), level("slingshot", 256, 12.5e9, 25e9), device="mi300x")
STAGED = cluster_of(level("pcie", 4, 6e9, 24e9), level("pcie", 8, 4e9, 16e9), level("efa", 64, 3e9), device="l40s")
CLUSTERS = [DGX, FLAT, DEEP, MESH, STAGED]


def scalar_time_s(cluster: Cluster, collective: str, size: float, ranks: int, stride: int, lone: bool = False) -> float:
    """The same rule with plain numbers, one group at a time."""
    if ranks == 1:
        return 0.0
    members = [min(max(lv.size // stride, 1), ranks) for lv in cluster.levels[:-1]] + [ranks]
    rows = [constants_of(lv, cluster.device.architecture) for lv in cluster.levels]
    used = []
    inside = 1
    inner_sizes = [1] + [lv.size for lv in cluster.levels[:-1]]
    for lv, row, here, inner_size in zip(cluster.levels, rows, members, inner_sizes, strict=True):
        if here > inside:
            rate = lv.bytes_per_s
            joined = here / inside
            if row.mesh:
                rate = min(rate, (joined - 1) * lv.port_bytes_per_s)
            elif lone:
                idle = lv.size / joined if inner_size == 1 else inner_size / inside
                rate = max(rate, min(lv.port_bytes_per_s, rate * idle))
            if row.crowding:
                rate *= (2 / max(joined, 2)) ** row.crowding
            used.append((lv, row, inside, joined, rate))
        inside = here
    if collective == "send_recv":
        inner = [lv for lv in cluster.levels if lv.size > stride]
        lv = inner[0] if inner else cluster.levels[-1]
        row = rows[cluster.levels.index(lv)]
        rate = lv.port_bytes_per_s
        if not (lone or row.mesh):
            rate = min(rate, lv.bytes_per_s)
        return min(
            row.base_s[p] + row.steps_s(lv.latency_s)[p] + size / (rate * row.efficiency["send_recv"] * row.fraction[p])
            for p in range(3)
        )

    def step_of(lv: Level, row: Any, p: int, tree: bool = False) -> float:
        return float(row.steps_s(lv.latency_s, tree=tree)[p])

    def ring(passes: int, name: str) -> float:
        best = math.inf
        for p in range(3):
            steps = sum(passes * (ranks / i - ranks / (i * j)) * step_of(lv, row, p) for lv, row, i, j, _ in used)
            worst = 0.0
            for k, (_, row, i, _, rate) in enumerate(used):
                moved = passes * size * (ranks - 1) / ranks + (row.own_share * size / ranks if k == 0 else 0.0)
                worst = max(worst, moved / (rate * row.efficiency[name] * i * row.fraction[p]))
            best = min(best, max(row.base_s[p] for _, row, *_ in used) + steps + worst)
        return best

    def outer(p: int) -> tuple[float, float]:
        steps = worst = 0.0
        for lv, row, i, j, rate in used:
            if lv is cluster.levels[0]:
                continue
            steps += 2 * math.ceil(math.log2(j) - 1e-9) * step_of(lv, row, p, tree=True)
            worst = max(worst, 2.0 * size / (rate * row.efficiency["all_reduce"] * i * row.fraction[p]))
        return steps, worst

    def tree() -> float:
        best = math.inf
        for p in range(3):
            steps, worst = outer(p)
            lv, row, _, j, rate = used[0]
            if lv is cluster.levels[0]:
                steps += 2 * (j - 1) * step_of(lv, row, p)
                worst = max(worst, 2 * size / (rate * row.efficiency["all_reduce"] * row.fraction[p]))
            best = min(best, max(row.base_s[p] for _, row, *_ in used) + steps + worst)
        return best

    def in_switch() -> float:
        lv, row, _, j, rate = used[0]
        if lv is not cluster.levels[0] or not lv.in_switch or j < row.in_switch_members:
            return math.inf
        steps, worst = outer(2)
        wire = 2 * size * (j - 1) / j / (rate * row.in_switch_efficiency)
        return row.in_switch_base_s + lv.latency_s - row.nominal_latency_s + steps + max(wire, worst)

    def spread(passes: int) -> float:
        best = math.inf
        for p in range(3):
            steps = worst = 0.0
            for k, (lv, row, i, j, rate) in enumerate(used):
                if collective == "broadcast":
                    steps += (ranks / i - ranks / (i * j)) * step_of(lv, row, p)
                    worst = max(worst, size / (rate * row.efficiency["all_gather"] * i * row.fraction[p]))
                else:
                    peers = i * (j - 1)
                    steps += peers * row.peer_s + step_of(lv, row, p)
                    # What crosses a spine has left its node by the links of the first network level.
                    # Where sub-groups are not full, those in the last one have most peers elsewhere.
                    reached = (ranks if lv.kind in NETWORK_KINDS else i * j) - (ranks % i or i)
                    moved = size / ranks * (reached + (row.own_share if k == 0 else 0.0))
                    worst = max(worst, moved / (rate * row.efficiency["all_to_all"] * row.fraction[p]))
            best = min(best, max(row.base_s[p] for _, row, *_ in used) + steps + worst)
        return best

    if collective == "all_reduce":
        choices = [ring(2, collective), in_switch()]
        return min([*choices, tree()]) if len(cluster.levels) > 1 else min(choices)
    if collective in ("broadcast", "all_to_all"):
        return spread(1)
    return ring(1, collective)


@pytest.mark.parametrize(
    "collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
)
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("lone", [False, True])
def test_vectorised_equals_scalar(cluster: Cluster, collective: Any, lone: bool) -> None:
    generator = np.random.default_rng(7)
    size = np.exp(generator.uniform(np.log(64), np.log(4e9), 400))
    largest = int(np.log2(cluster.max_devices))
    stride = 2 ** generator.integers(0, largest, 400)
    ranks = np.minimum(generator.integers(1, 40, 400), cluster.max_devices // stride)
    got = collective_time_s(cluster, collective, size, ranks, stride, lone=lone)
    want = [scalar_time_s(cluster, collective, *row, lone=lone) for row in zip(size, ranks, stride, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_members_follow_stride() -> None:
    # tp=4 next to each other, dp=16 outside tp=4, dp=64 outside tp=8 on nodes of 8.
    inner, outer = members_per_level(DGX.levels, [4, 16, 64], [1, 4, 8])
    assert inner.tolist() == [4, 2, 1]
    assert outer.tolist() == [4, 16, 64]


def test_long_ring_all_reduce_over_nodes_moves_twice_the_bytes_over_all_nics() -> None:
    size, nodes = 64e9, 16
    row = table().links["infiniband"]
    rate = 8 * 50e9 * row.efficiency["all_reduce"]
    ring_s = 2 * size * (8 * nodes - 1) / (8 * nodes) / rate
    assert float(collective_time_s(DGX, "all_reduce", size, 8 * nodes)) == pytest.approx(ring_s, rel=0.02)


def test_groups_of_one_member_per_node_share_the_nics() -> None:
    # dp outside tp=8: one NIC per group, an eighth of what a group that owns the node reaches.
    slow = cluster_of(level("nvswitch", 8, 450e9), level("infiniband", 1024, 25e9))
    whole = float(collective_time_s(slow, "all_gather", 64e9, 128, 1))
    shared = float(collective_time_s(slow, "all_gather", 64e9, 16, 8))
    assert shared / whole == pytest.approx(8 * (15 / 16) / (127 / 128), rel=0.02)


def test_small_all_reduce_over_many_nodes_takes_the_tree() -> None:
    # A ring of 512 needs 1,022 steps; a tree over 64 nodes needs 12 over the network.
    row = table().links["infiniband"]
    assert float(collective_time_s(DGX, "all_reduce", 1024, 512)) < 128 * row.ring_step_s[0]


def test_in_switch_reduction_wins_for_long_messages_in_a_full_node() -> None:
    plain = cluster_of(level("nvswitch", 8, 450e9))
    sharp = cluster_of(level("nvswitch", 8, 450e9, in_switch=True))
    times = [float(collective_time_s(c, "all_reduce", 4e9, 8)) for c in (plain, sharp)]
    assert times[1] < 0.9 * times[0]
    assert collective_time_s(plain, "all_reduce", 4e9, 4) == collective_time_s(sharp, "all_reduce", 4e9, 4)


def test_mesh_bandwidth_grows_with_the_group() -> None:
    # Published for MI300X: 47.7 GB/s of bus bandwidth with 2 devices, 313 with 8 (ml-engineering, network).
    mesh = cluster_of(level("xgmi-mesh", 8, 448e9, 64e9), device="mi300x")
    ranks = np.array([2.0, 8.0])
    bus = 2 * (ranks - 1) / ranks * 16e9 / collective_time_s(mesh, "all_reduce", 16e9, ranks)
    np.testing.assert_allclose(bus, [47.7e9, 313e9], rtol=0.06)


def test_point_to_point_uses_the_level_that_the_stride_reaches() -> None:
    times = point_to_point_time_s(DGX, 1e9, [1, 4, 8, 64])
    assert times[0] == times[1] < times[2] == times[3]
    assert times[2] == collective_time_s(DGX, "send_recv", 1e9, 2, 8)


def test_lone_sender_gets_the_whole_port() -> None:
    shared_port = cluster_of(level("nvswitch", 8, 300e9), level("infiniband", 64, 6.25e9, 25e9))
    together, alone = (float(point_to_point_time_s(shared_port, 1e9, 8, lone=flag)) for flag in (False, True))
    assert together == pytest.approx(4 * alone, rel=0.01)


@pytest.mark.parametrize(
    ("ranks", "mebibytes", "bus_gbytes_per_s"),
    # H200 x 8, NVLS and ring, ml-engineering network benchmarks: an independent machine.
    [(8, 16, 220), (8, 64, 347), (8, 256, 436)],
)
def test_published_all_reduce_on_eight_h200(ranks: int, mebibytes: int, bus_gbytes_per_s: float) -> None:
    size = mebibytes * MIB
    bus = 2 * (ranks - 1) / ranks * size / float(collective_time_s(DGX, "all_reduce", size, ranks))
    assert bus == pytest.approx(bus_gbytes_per_s * 1e9, rel=0.15)


def test_shapes_broadcast() -> None:
    size = np.geomspace(1e3, 1e9, 5)[:, None]
    assert collective_time_s(DGX, "all_reduce", size, np.array([1, 2, 8, 64])[None, :]).shape == (5, 4)
    assert collective_time_s(DGX, "all_reduce", 1e6, 8).shape == ()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(RequestError, match="all_reduce"):
        collective_time_s(DGX, "allreduce", 1.0, 2)  # type: ignore[arg-type]
    odd = cluster_of(level("carrier-pigeon", 8, 1.0))
    with pytest.raises(RequestError, match="kind of link"):
        collective_time_s(odd, "all_reduce", 1.0, 2)


def test_a_cluster_of_one_device_has_no_links() -> None:
    one = cluster_of()
    assert collective_time_s(one, "all_reduce", [1e6, 1e9], 1).tolist() == [0.0, 0.0]
    with pytest.raises(RequestError, match="needs links"):
        collective_time_s(one, "all_reduce", 1e6, [1, 2])


@pytest.mark.parametrize("name", cluster_names())
def test_every_catalogued_cluster_has_constants(name: str) -> None:
    cluster = load_cluster(name)
    ranks = min(cluster.max_devices, 16)
    times = collective_time_s(cluster, "all_reduce", [1e3, 1e6, 1e9], ranks)
    assert np.all(np.isfinite(times))
    assert ranks == 1 or np.all(times > 1e-6)


@given(
    collective=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    members=st.sets(st.integers(0, 7), min_size=2, max_size=8),
    rate=st.sampled_from([3e9, 12.5e9, 50e9]),
)
def test_a_group_inside_a_node_never_depends_on_the_network(collective: str, members: set[int], rate: float) -> None:
    one = DGX
    other = cluster_of(one.levels[0], level("infiniband", 1024, rate, latency_s=5e-6))
    transfer = Transfer(kind=collective, groups=(tuple(sorted(members)),), elements=(1e6,))
    assert transfer_time_s(one, transfer, 4.0) == transfer_time_s(other, transfer, 4.0)


@given(members=st.sets(st.integers(0, 31), min_size=2, max_size=8))
def test_the_spacing_of_a_group_puts_as_many_members_into_a_node_as_the_emptiest_has(members: set[int]) -> None:
    group = tuple(sorted(members))
    fewest = min(Counter(member // 8 for member in group).values())
    inside, _ = members_per_level(DGX.levels, len(group), stride_of(DGX.levels, group))
    assert inside == fewest


@pytest.mark.parametrize(("pp", "dp", "tp"), [(4, 2, 1), (3, 2, 1), (4, 1, 2), (8, 1, 1), (2, 4, 1)])
def test_a_tied_table_inside_a_node_is_added_up_inside_it(pp: int, dp: int, tp: int) -> None:
    at_each = [
        collective_time_s(cluster_of(DGX.levels[0], level("infiniband", 1024, rate)), "all_reduce", 1e8, 2, stride)
        for rate in (3e9, 50e9)
        for stride in [block_stride(np.float64(pp * dp * tp))]
    ]
    assert at_each[0] == at_each[1]
    beyond = block_stride(np.float64(16.0))
    assert collective_time_s(DGX, "all_reduce", 1e8, 2, beyond) > at_each[0]


@pytest.mark.parametrize(
    ("cluster", "collective", "busbw_gb_per_s"),
    [
        # SimuMax a100_pcie.json, fits of nccl-tests with 8 devices.
        ("a100-pcie", "all_reduce", 12.5),
        ("a100-pcie", "all_gather", 13.5),
        ("a100-pcie", "reduce_scatter", 11.1),
        ("a100-pcie", "all_to_all", 8.26),
        # aiconfigurator nccl_perf, 8 L40S, 64 MiB.
        ("l40s-pcie", "all_gather", 1.185),
        ("l40s-pcie", "all_to_all", 1.533),
    ],
)
def test_groups_on_both_sockets_are_as_slow_as_measured(
    cluster: str, collective: Collective, busbw_gb_per_s: float
) -> None:
    size, ranks = 2.0**26, 8
    passes = 2 if collective == "all_reduce" else 1
    taken_s = float(collective_time_s(load_cluster(cluster), collective, size, ranks, lone=True))
    assert passes * size * (ranks - 1) / ranks / taken_s / 1e9 == pytest.approx(busbw_gb_per_s, rel=0.1)
