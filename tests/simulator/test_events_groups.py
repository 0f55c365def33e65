"""Stages on groups of nodes that differ: groups that do not differ change nothing, slow ones slow their own stages."""

from dataclasses import replace
from pathlib import Path

import pytest
from forerun_examples import dense_model
from forerun_examples import request as small_request

from forerun.search.cli import main
from forerun.search.explore.groups.simulated_plans import simulate_groups
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.events import simulate
from forerun.spaces.clusters import Cluster, NodeGroup, load_cluster, resolve_cluster, stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, parse_strategy

HALVES = "groups:\n  - {cluster: dgx-h100, devices: 32}\n  - {cluster: dgx-a100-80, devices: 32}\n"


def grouped(*names: str, stages: int | None = None) -> Cluster:
    groups = tuple(NodeGroup(cluster=load_cluster(name), devices=32, stages=stages) for name in names)
    return replace(groups[0].cluster, groups=groups, max_devices=32 * len(groups))


def on(cluster: Cluster) -> Context:
    return small_request(cluster=cluster, framework="generic", global_batch=64)


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "mixed.yaml").write_text(text, encoding="utf-8")
    return str(tmp_path / "mixed.yaml")


@pytest.mark.parametrize("text", ["tp2 pp4 dp8 mbs1 zero1", "tp4 pp4 dp4 mbs1 vpp2 schedule=interleaved zero2"])
def test_groups_that_do_not_differ_change_nothing(text: str) -> None:
    strategy = parse_strategy(text)
    one, two = on(load_cluster("dgx-h100")), on(grouped("dgx-h100", "dgx-h100"))

    assert simulate(two, strategy).step_time_s == pytest.approx(simulate(one, strategy).step_time_s, rel=1e-12)


def test_every_stage_costs_what_it_costs_on_its_own_group() -> None:
    strategy = parse_strategy("tp2 pp4 dp8 mbs1 zero1")
    costs = step_costs(assign(on(grouped("dgx-h100", "dgx-a100-80")), strategy))
    fast, slow = (step_costs(assign(on(grouped(name, name)), strategy)) for name in ("dgx-h100", "dgx-a100-80"))

    assert costs.chunks == (*fast.chunks[:2], *slow.chunks[2:])
    assert costs.stages == (*fast.stages[:2], *slow.stages[2:])
    assert costs.each_p2p_s[0] == fast.each_p2p_s[0]
    assert costs.each_p2p_s[1] == costs.each_p2p_s[2] == slow.each_p2p_s[2] > fast.each_p2p_s[0]


def test_fewer_layers_on_the_slow_group_are_faster() -> None:
    large = dense_model(layers=48, heads=64)
    context = replace(on(grouped("dgx-h100", "dgx-a100-80")), model=large)
    times = [
        simulate(context, parse_strategy(f"tp2 pp4 dp8 mbs1 zero1 layers={layers}")).step_time_s
        for layers in ("12,12,12,12", "16,16,8,8")
    ]

    assert times[1] < 0.9 * times[0]


def test_stages_are_placed_in_order_and_must_fill_the_groups() -> None:
    cluster = grouped("dgx-h100", "dgx-a100-80")
    assert stage_groups(cluster, 4, 16) == (0, 0, 1, 1)
    assert stage_groups(grouped("dgx-h100", "dgx-a100-80", stages=1), 2, 16) == (0, 1)
    with pytest.raises(RequestError, match=r"4 stages of 16 devices \(dp \* tp \* cp\), but got pp=2; use pp=4"):
        stage_groups(cluster, 2, 16)
    with pytest.raises(RequestError, match=r"group 0 \(dgx-h100\) of 32 devices cannot run whole stages of 24"):
        stage_groups(cluster, 2, 24)
    with pytest.raises(RequestError, match="cannot run 3 stages of 16"):
        stage_groups(grouped("dgx-h100", "dgx-a100-80", stages=3), 6, 16)


def test_memory_is_that_of_the_stage_with_least_room(tmp_path: Path) -> None:
    text = HALVES.replace("dgx-a100-80", "dgx-a100-40")
    setting = resolve(
        Request(model="llama3-8b", cluster=written(tmp_path, text), global_batch=64, seq_len=4096), groups=True
    )
    row, result = simulate_groups(setting, "tp4 pp4 dp4 mbs1 zero1 sp layers=4,4,4,20")

    assert row.peak_stage == 3
    assert row.memory_limit_gib == pytest.approx(load_cluster("dgx-a100-40").device.memory_bytes / 2**30)
    assert row.step_time_s == result.step_time_s
    assert sum(row.memory_gib.values()) == pytest.approx(row.peak_memory_gib)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HALVES.replace("32", "31", 1), r"mixed\.yaml, line 2, groups\.0: a group has whole nodes of 8 .* got 31; use"),
        (HALVES.replace("dgx-a100-80", "p40-box"), r"groups\.1: .*"),
        (HALVES.replace("dgx-h100", "rtx4090-box"), r"groups\.0: .* 8 at most, but got 32; use 8$"),
        (HALVES.replace("dgx-a100-80", "dgx-a1000"), "unknown cluster 'dgx-a1000'; did you mean"),
        ("groups:\n  - {cluster: dgx-h100, devices: 32}\n", "groups"),
        (HALVES.replace("devices: 32}", "devices: 32, stages: 2}", 1), "either all groups have stages: or none"),
        (HALVES + "nodes: 3\n", r"line 4, nodes"),
    ],
)
def test_wrong_groups_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        resolve_cluster(written(tmp_path, text), groups=True)


def test_a_group_may_be_described_in_place_or_in_a_file(tmp_path: Path) -> None:
    network = "nics_per_node: 1, nic_rate: 50Gb/s"
    own = f"device: t4\ndevices_per_node: 4\nmax_devices: 8\nnetwork: {{kind: ethernet, {network}}}\n"
    (tmp_path / "own.yaml").write_text(own, encoding="utf-8")
    inline = f"{{device: t4, devices_per_node: 4, max_devices: 8, network: {{kind: roce, {network}}}}}"
    text = f"groups:\n  - {{cluster: own.yaml, devices: 8}}\n  - {{cluster: {inline}, devices: 4}}\n"
    cluster = resolve_cluster(written(tmp_path, text), groups=True)

    assert [group.cluster.device.name for group in cluster.groups] == ["t4", "t4"]
    assert [group.cluster.levels[-1].kind for group in cluster.groups] == ["ethernet", "roce"]
    assert cluster.max_devices == 12


@pytest.mark.parametrize("verb", ["compare", "explain"])
def test_verbs_that_need_equal_nodes_say_so(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [verb, "llama3-8b", "--cluster", written(tmp_path, HALVES), "--global-batch", "64", "--seq-len", "4096"]
    more = ["--strategy", "tp4 pp4 dp4 mbs1"] * (2 if verb == "compare" else 1)

    assert main([*arguments, *more]) == 2
    assert "only search and simulate know groups of nodes that differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--fidelity", "analytic"], "groups of nodes that differ are simulated event by event"),
        (["--contention"], "have no common graph of links; drop the contention"),
    ],
)
def test_simulate_says_what_groups_cannot_have(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", "llama3-8b", "--cluster", written(tmp_path, HALVES), "--global-batch", "64"]
    assert main([*arguments, "--seq-len", "4096", "--strategy", "tp4 pp4 dp4 mbs1 zero1", *more]) == 2
    assert message in capsys.readouterr().err
