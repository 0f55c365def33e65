"""Groups of ranks in racks whose nodes share the fast fabric: what stays inside one, against a count of ranks."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.search.api import search_request
from forerun.search.board.rows import rows_of
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.simulator.events import event_scores
from forerun.spaces.clusters import Cluster, load_cluster
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, Strategy, parse_strategy, table_of
from forerun.spaces.strategies.racks import SPANS, domains, rack_devices, rack_use, spread_use
from forerun.spaces.workload import Workload

RACK = 72
MANY = [
    "tp1 pp1 dp576 ep64 mbs1",
    "tp1 pp1 dp576 ep24 mbs1",
    "tp16 pp1 dp36 mbs1",
    "tp8 pp2 dp36 ep32 mbs1",
    "tp4 pp1 dp36 cp4 mbs1",
    "tp1 pp9 dp64 ep64 mbs1",
    "tp1 pp1 dp544 ep8 mbs1",
    "tp1 pp1 dp512 ep128 mbs1",
]


def gb300(racks: int | None = None) -> Cluster:
    cluster = load_cluster("gb300-nvl72")
    return cluster if racks is None else replace(cluster, max_devices=RACK * racks)


def experts(cluster: Cluster) -> Context:
    return Context(
        model=load_model("kimi-k2"),
        cluster=cluster,
        workload=Workload(global_batch=2304, seq_len=4096),
        framework=switched(load_framework("megatron-lm"), {"dispatcher": "alltoall"}),
    )


def cut(span: int, devices: int, per_rack: int) -> list[int]:
    """Return the largest part inside one rack of every group of ``span`` consecutive ranks."""
    parts = []
    for start in range(0, devices - devices % span, span):
        racks = [rank // per_rack for rank in range(start, start + span)]
        parts.append(max(racks.count(rack) for rack in set(racks)))
    return parts


@pytest.mark.parametrize("text", MANY)
def test_groups_are_inside_only_where_all_of_them_are(text: str) -> None:
    strategy = parse_strategy(text)
    use = rack_use(gb300(), strategy)
    assert use is not None
    spans = {strategy.tp, strategy.tp * strategy.cp, strategy.ep * strategy.etp}
    for span in (one for one in spans if 1 < one <= RACK):
        parts = cut(span, strategy.devices, use.used)
        assert (set(parts) == {span}) is (span <= use.domain and use.domain % span == 0), (span, use)
        if set(parts) != {span}:
            assert use.domain <= min(parts), (span, use)
    assert use.racks == -(-strategy.devices // RACK)
    if use.segment:
        assert strategy.devices % use.segment == 0 and use.segment <= use.used <= RACK
        assert use.racks * use.used >= strategy.devices > (use.racks - 1) * use.used


@pytest.mark.parametrize("text", MANY)
def test_more_racks_keep_all_groups_whole_or_there_are_too_few(text: str) -> None:
    strategy, enough = parse_strategy(text), gb300()
    use, spread = rack_use(enough, strategy), spread_use(enough, strategy)
    assert use is not None
    if spread is None:
        return
    assert spread.racks > use.racks and spread_use(gb300(use.racks), strategy) is None
    for span in (strategy.tp, strategy.tp * strategy.cp, strategy.ep * strategy.etp):
        assert span > RACK or set(cut(span, strategy.devices, spread.used)) == {span}


def test_one_group_of_64_in_nine_is_inside_a_rack_of_72() -> None:
    parts = cut(64, 576, RACK)
    assert parts.count(64) == 2 and len(parts) == 9  # the first and the last
    assert min(parts) == 32


def test_columns_agree_with_strategies() -> None:
    strategies = [parse_strategy(text) for text in MANY]
    table = table_of(strategies)
    uses = [rack_use(gb300(), strategy) for strategy in strategies]
    found = domains(gb300(), {axis: table.column(axis) for axis in SPANS})
    assert found.tolist() == [use.domain for use in uses if use is not None]


def test_nodes_with_a_fabric_of_their_own_are_no_racks() -> None:
    for name in ("dgx-h100", "tpu-v5p-pod", "rtx4090-box"):
        assert not rack_devices(load_cluster(name))
        assert rack_use(load_cluster(name), parse_strategy("tp8 pp1 dp8 mbs1")) is None


def test_the_cost_is_that_of_the_placement() -> None:
    """Groups of 64 are cut by 8 whole racks, not by 64 of each 72 in as many, which cost what nodes of 64 do."""
    many, few = (parse_strategy(f"tp1 pp{pp} dp64 ep64 mbs1 zero1 recompute=full split=balanced") for pp in (9, 8))
    context = experts(gb300())

    def expert_s(context: Context, strategy: Strategy) -> float:
        table = table_of([strategy])
        closed, events = score(context, table).time_s["expert"], event_scores(context, table).time_s["expert"]
        assert float(events[0]) == pytest.approx(float(closed[0]), rel=0.05)
        return float(closed[0])

    def with_nodes_of(size: int) -> Context:
        levels = (replace(context.cluster.levels[0], size=size), *context.cluster.levels[1:])
        return replace(context, cluster=replace(context.cluster, levels=levels, devices_per_node=size))

    assert expert_s(context, many) > 1.5 * expert_s(with_nodes_of(64), many)
    assert expert_s(context, few) == pytest.approx(expert_s(with_nodes_of(64), few))
    assert expert_s(context, many) == pytest.approx(expert_s(with_nodes_of(32), many))


def test_company_changes_no_row() -> None:
    context = experts(gb300())
    strategies = [parse_strategy(f"{text} zero1 recompute=full") for text in MANY[:2] + MANY[5:6]]
    together = score(context, table_of(strategies)).step_time_s
    alone = [float(score(context, table_of([one])).step_time_s[0]) for one in strategies]
    assert together == pytest.approx(np.array(alone), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "crosses", "part"),
    [
        ("tp1 pp8 dp64 ep64 mbs1 zero1 recompute=full", False, "64 of each 72 GPUs in 8 racks"),
        ("tp1 pp9 dp64 ep64 mbs1 zero1 recompute=full", True, ""),
        ("tp1 pp3 dp192 ep24 mbs1 zero1 recompute=full", False, ""),
    ],
)
def test_marks_say_what_the_cost_assumes(text: str, crosses: bool, part: str) -> None:
    (row,) = rows_of(experts(gb300()), [parse_strategy(text)])
    assert ("ep crosses scale-up domains" in row.marks) is crosses
    assert [mark for mark in row.marks if "of each" in mark] == ([part] if part else [])


@pytest.mark.parametrize(
    ("gpus", "words"), [(576, ""), (64, ""), (98304, "1,365.3 racks of 72;"), (512, "64 of each in 8;")]
)
def test_numbers_that_are_no_whole_racks_are_named(gpus: int, words: str) -> None:
    request = Request(model="llama3-8b", cluster="gb300-nvl72", gpus=str(gpus), global_batch=gpus, seq_len=4096)
    warnings = resolve(request).warnings
    assert len(warnings) == bool(words) and all(words in text for text in warnings)


@pytest.mark.slow
def test_part_of_each_rack_is_offered_where_it_pays() -> None:
    asked = {"model": "kimi-k2", "cluster": "gb300-nvl72", "gpus": "576", "global_batch": 2304, "seq_len": 4096}
    only = {"tp": [1], "pp": [9], "ep": [64], "mbs": [1], "zero": [1], "recompute": ["full"]}
    slow = Request(**asked, overrides=only, switches={"dispatcher": "alltoall"})
    notes = search_request(slow).notes
    assert any("on 64 of each 72 GPUs of 9 racks in place of 8" in note and "--segment=16" in note for note in notes)
    whole = Request(**asked, overrides={**only, "pp": [3], "ep": [24]})
    assert not any("of each 72" in note for note in search_request(whole).notes)
