"""One whole step of small requests: what it is made of, and that it agrees with the closed forms of the core."""

import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import dense_model, moe_model
from forerun_examples import request as small_request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator import TIME_PARTS, score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import (
    EventResult,
    StageCost,
    event_scores,
    event_summary,
    simulate,
    simulate_costs,
    step_costs,
)
from forerun.simulator.stages.plan import stage_plans
from forerun.spaces.clusters import Overlap
from forerun.spaces.errors import RequestError
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, Schedule, Split, StrategySpace, default_choices, parse_strategy, table_of

STRATEGIES = (
    "tp2 pp4 dp4 mbs1 zero1",
    "tp4 pp2 dp4 mbs1 vpp3 schedule=interleaved sp",
    "dp8 mbs2",
    "dp8 mbs2 zero1",
    "dp8 mbs2 zero3",
    "dp8 mbs2 zero2 recompute=full",
    "pp8 dp2 mbs1",
    "pp8 dp2 mbs1 placement=tp-cp-ep-pp-dp",
    "pp4 dp2 schedule=gpipe recompute=selective",
    "pp4 dp2 schedule=zb-h1",
    "pp4 dp2 vpp2 schedule=zb-v",
    "pp4 dp2 schedule=dualpipe",
    "pp3 dp2 layers=9,8,7 mbs2",
    "tp2 cp2 pp2 dp2 mbs1",
)


def context(framework: str = "generic", **more: object) -> Context:
    made = small_request(framework=framework, global_batch=48, **more)  # type: ignore[arg-type]  # its keywords
    return replace(made, framework=replace(made.framework, host_layer_s=0.0, host_microbatch_s=0.0, host_expert_s=0.0))


@pytest.fixture(params=STRATEGIES, scope="module")
def text(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def result(text: str) -> EventResult:
    return simulate(context(), parse_strategy(text))


@pytest.mark.parametrize("words", ["", "zero1 ", "vpp2 schedule=interleaved "])
def test_the_end_of_a_pipeline_is_a_bubble_and_no_traffic(words: str) -> None:
    """The last stage is done first, and its gradient norm waits for the first: its passes, then its traffic."""
    context = small_request(dense_model(layers=32), global_batch=64)
    strategy = parse_strategy(f"tp2 pp4 dp4 mbs1 {words}sp")
    closed, played = score(context, table_of([strategy])), simulate(context, strategy)
    for part in ("bubble", "data"):
        assert played.time_s[part] == pytest.approx(closed.time_s[part][0], abs=0.02 * played.step_time_s), part
    assert closed.time_s["bubble"][0] > 0.05 * played.step_time_s


def test_parts_add_up_to_the_step_on_every_stage(result: EventResult) -> None:
    for stage in result.stages:
        assert set(stage.time_s) == set(TIME_PARTS)
        assert sum(stage.time_s.values()) == pytest.approx(result.step_time_s, rel=1e-9)
        assert stage.busy_s + stage.exposed_s + stage.idle_s == pytest.approx(result.step_time_s, rel=1e-9)
        assert all(value >= -1e-12 for value in stage.time_s.values())


def test_the_critical_path_has_no_gaps(result: EventResult) -> None:
    path, run = result.critical_path, result.records

    assert run.start_s[path[0]] == 0.0
    assert run.end_s[path[-1]] == result.step_time_s
    for before, after in itertools.pairwise(path):
        assert run.end_s[before] == run.start_s[after]
    assert sum(result.critical_s.values()) == pytest.approx(result.step_time_s, rel=1e-9)
    assert "bubble" not in result.critical_s


def test_the_summary_is_plain_data_without_gaps(result: EventResult) -> None:
    summary = json.loads(json.dumps(event_summary(result)))
    path = summary["critical_path"]

    assert path[0]["start_s"] == 0.0
    assert path[-1]["end_s"] == result.step_time_s
    assert all(before["end_s"] == after["start_s"] for before, after in itertools.pairwise(path))
    assert sum(entry["tasks"] for entry in path) == len(result.critical_path)
    assert sum(summary["critical_share"].values()) == pytest.approx(1.0)
    for stage in summary["stages"]:
        assert stage["busy_s"] + stage["exposed_s"] + stage["idle_s"] == pytest.approx(result.step_time_s)
        assert all(0 <= share <= 1 + 1e-12 for share in stage["stream_share"].values())


def test_memory_returns_to_what_never_moves(result: EventResult) -> None:
    for curve, cost in zip(result.memory, result.costs.stages, strict=True):
        assert curve.held_bytes[-1] == pytest.approx(cost.fixed_bytes, rel=1e-9)
        assert curve.held_bytes.min() >= cost.fixed_bytes * (1 - 1e-9)


def test_virtual_stages_hold_what_stage_plans_count(text: str) -> None:
    strategy = parse_strategy(text)
    table = table_of([strategy])
    for model in (dense_model(), moe_model()):
        setting = small_request(model)
        plan = stage_plans(setting, table, np.zeros(1, dtype=np.intp))
        devices = 2 if strategy.schedule == Schedule.DUALPIPE else 1
        held = sum(held.sum(axis=1) for held in assign(setting, strategy).blocks().values()) * devices

        assert held == pytest.approx((plan.blocks * plan.multiplicity).sum(axis=1)[:, 0])


def test_peak_memory_is_that_of_the_core(text: str, result: EventResult) -> None:
    expected = score(context(), table_of([parse_strategy(text)])).allocated_bytes[0]

    assert result.peak_memory_bytes == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("scattered", [True, False])
def test_a_transfer_costs_what_the_core_says(scattered: bool) -> None:
    """The core counts p2p transfers; without overlap 1F1B has 2 m + 2 pp - 5, or m + 1 for two stages. A last stage
    that is slower than all others (it has the head) sends in one direction only: one transfer per microbatch less."""
    for text in ("tp2 pp4 dp2 mbs1", "tp2 pp4 dp2 mbs1 sp", "tp2 cp2 pp2 dp2 mbs2 placement=tp-cp-ep-pp-dp"):
        strategy = parse_strategy(text)
        setting = context("megatron-deepspeed")
        setting = replace(setting, framework=replace(setting.framework, scatters_p2p=scattered))
        count = 48 // (strategy.dp * strategy.mbs)
        transfers = count + 1 if strategy.pp == 2 else 2 * count + 2 * strategy.pp - 5

        costs = step_costs(assign(setting, strategy))
        paces = [chunk.forward_s + chunk.backward_s for chunk in costs.chunks]
        spared_s = (count - 1) * min(costs.p2p_s, paces[-1] - max(paces[:-1])) if strategy.pp > 2 else 0.0
        assert score(setting, table_of([strategy])).time_s["pipeline"][0] == pytest.approx(
            transfers * costs.p2p_s - spared_s
        )


@pytest.mark.parametrize("framework", ["megatron-lm", "megatron-deepspeed", "torchtitan", "generic"])
@pytest.mark.parametrize("model", [dense_model(), moe_model()], ids=["dense", "moe"])
def test_random_candidates_agree_with_the_core(framework: str, model: Model) -> None:
    """Equal stages only; where they differ, or a schedule has a bound only, see docs/decisions/events.md."""
    setting = context(framework, model=model)
    space = StrategySpace(choices=default_choices(setting, (16,)), context=setting)
    table, _ = space.table(0, space.size)
    exact = np.isin(table.column("schedule"), [Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.GPIPE])
    exact &= (table.column("split") == Split.EVEN) & (table.column("zero") < 2)
    rows = random.Random(4).sample(list(np.flatnonzero(exact)), 10)
    expected = score(setting, table.take(np.array(rows))).step_time_s
    events = np.array([simulate(setting, table.strategy(row)).step_time_s for row in rows])
    apart = np.abs(events / expected - 1)

    assert np.median(apart) < 0.01
    assert np.quantile(apart, 0.9) < 0.05


def test_gradient_buckets_hide_under_the_last_backward_pass() -> None:
    """Reduction of 4 buckets in all under a backward pass of 8 s: the last bucket stands alone at the end, and what the
    framework cannot hide stands behind it."""
    costs = step_costs(assign(context(), parse_strategy("dp8 mbs6")))
    chunk = replace(costs.chunks[0], forward_s=2.0, backward_s=8.0)
    stage = StageCost(reduce_s=4.0, buckets=4, share={0: 1.0})
    plain = replace(
        costs, chunks=(chunk,), stages=(stage,), host_step_s=0.0, overlap_gradients=1.0, overlap_slowdown=1.0, zero=0
    )

    assert simulate_costs(plain).step_time_s == pytest.approx(2.0 + 8.0 + 1.0)
    assert simulate_costs(replace(plain, overlap_gradients=0.5)).step_time_s == pytest.approx(2.0 + 8.0 + 0.5 + 2.0)
    assert simulate_costs(replace(plain, overlap_gradients=0.0)).step_time_s == pytest.approx(2.0 + 8.0 + 4.0)
    # Three buckets of 1 s run under the pass at 1/1.5 of its speed, for 1 s of slowdown in all.
    slower = simulate_costs(replace(plain, overlap_slowdown=1.5)).step_time_s
    assert slower == pytest.approx(2.0 + 8.0 + 1.0 + 3 * (1 - 1 / 1.5))
    # At a third of its speed beside the pass the first bucket is sent from 4 s to 7 s, the second until the pass ends.
    late = simulate_costs(replace(plain, traffic_slowdown=3.0)).step_time_s
    assert late == pytest.approx(2.0 + 8.0 + 2.0)
    assert simulate_costs(replace(plain, traffic_slowdown=2.0)).step_time_s == pytest.approx(2.0 + 8.0 + 1.0)
    # What the framework cannot hide stands alone, at full speed.
    bare = replace(plain, overlap_gradients=0.0, overlap_slowdown=2.0, traffic_slowdown=3.0)
    assert simulate_costs(bare).step_time_s == pytest.approx(2.0 + 8.0 + 4.0)


@pytest.mark.parametrize("text", ["tp2 pp4 dp2 mbs1 sp", "tp2 pp4 dp2 mbs1 sp schedule=gpipe split=by-cost"])
def test_an_allocator_without_room_slows_passes_and_nothing_else(text: str) -> None:
    base, strategy = small_request(framework="nanotron", global_batch=48), parse_strategy(text)
    full = replace(base.cluster, device=replace(base.cluster.device, memory_bytes=1e9))
    slow = replace(base, cluster=full, framework=replace(base.framework, host_microbatch_s=1.0, allocator_stall=0.25))
    free = replace(slow, framework=replace(slow.framework, allocator_stall=0.0))
    closed = [float(score(made, table_of([strategy])).step_time_s[0]) for made in (free, slow)]
    events = [simulate(made, strategy).step_time_s for made in (free, slow)]

    assert closed[1] > closed[0]
    assert closed[1] - closed[0] == pytest.approx(events[1] - events[0], rel=0.03)


@pytest.mark.parametrize("text", ["dp8 mbs2", "dp8 mbs2 zero1", "pp2 dp8 mbs1", "dp8 mbs1 zero3"])
def test_both_levels_know_what_overlap_costs(text: str) -> None:
    """Traffic at two thirds of its speed under computation that runs at 1/1.2: both levels lose the same to it."""
    plain, strategy = context(), parse_strategy(text)
    overlap = Overlap(computation=1.2, communication=1.5)
    slow = replace(plain, cluster=replace(plain.cluster, overlap=overlap))
    events = [simulate(made, strategy).step_time_s for made in (plain, slow)]
    closed = [score(made, table_of([strategy])).step_time_s[0] for made in (plain, slow)]

    assert events[1] > events[0]
    assert events[1] / events[0] == pytest.approx(closed[1] / closed[0], rel=0.03)


def test_transfers_and_reductions_share_a_port() -> None:
    """A reduction of 3 s under a transfer of 1 s: both at half speed for 2 s, the rest of the reduction alone."""
    costs = step_costs(assign(context(), parse_strategy("pp2 dp4 mbs12")))
    chunk = replace(costs.chunks[0], forward_s=1.0, backward_s=1.0)
    stages = (StageCost(share={0: 1.0}), StageCost(share={1: 1.0}, reduce_s=3.0))
    apart = replace(
        costs,
        chunks=(chunk, chunk),
        stages=stages,
        p2p_s=1.0,
        tied_s=0.0,
        host_step_s=0.0,
        host_microbatch_s=0.0,
        overlap_gradients=1.0,
        overlap_p2p=True,
        one_port=False,
    )

    assert costs.shape.microbatches == 1
    # Forward, transfer, forward and backward end at 4; then a transfer, a reduction, the first stage's backward pass.
    assert simulate_costs(apart).step_time_s == pytest.approx(4.0 + 3.0)
    assert simulate_costs(replace(apart, one_port=True)).step_time_s == pytest.approx(4.0 + 2.0 + 2.0)


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("tp8 pp4 dp4 mbs1", True),
        ("tp2 pp2 dp2 mbs1", True),
        ("tp2 pp2 dp4 mbs1", False),
        ("tp4 pp2 dp8 mbs1 placement=tp-cp-ep-pp-dp", False),
        ("tp8 dp4 mbs1", False),
    ],
)
def test_a_port_is_shared_where_both_kinds_of_traffic_leave_by_the_same_level(text: str, shared: bool) -> None:
    """Nodes of eight: tp2 dp4 fill one, so that the next stage is farther than all replicas."""
    assert step_costs(assign(context(), parse_strategy(text))).one_port is shared


def test_a_later_stage_hides_its_reduction_in_the_drain() -> None:
    """The last stage ends its last backward pass pp - 1 passes before the first one does; only the first stage's
    reduction, which nothing covers, makes the step longer."""
    costs = step_costs(assign(context(), parse_strategy("pp4 dp2 mbs2")))
    bare = replace(costs, stages=tuple(replace(s, reduce_s=0.0, gather_s=0.0) for s in costs.stages), host_step_s=0.0)
    without = simulate_costs(bare).step_time_s
    longest = bare.chunks[0].backward_s
    for stage, more in ((3, 0.0), (0, longest)):
        stages = [replace(s, reduce_s=longest * (number == stage)) for number, s in enumerate(bare.stages)]
        changed = replace(bare, stages=tuple(stages), overlap_gradients=0.0)
        assert simulate_costs(changed).step_time_s == pytest.approx(without + more, rel=1e-9)


@settings(max_examples=tries(15))
@given(text=st.sampled_from(STRATEGIES), factor=st.floats(1.0, 3.0), place=st.integers(0, 30))
def test_a_slower_virtual_stage_never_makes_the_step_shorter(text: str, factor: float, place: int) -> None:
    costs = step_costs(assign(context(), parse_strategy(text)))
    place %= len(costs.chunks)
    slow = replace(costs.chunks[place], forward_s=costs.chunks[place].forward_s * factor)
    chunks = (*costs.chunks[:place], slow, *costs.chunks[place + 1 :])

    assert simulate_costs(replace(costs, chunks=chunks)).step_time_s >= simulate_costs(costs).step_time_s * (1 - 1e-12)


def test_scores_by_events_are_a_score_table_that_adds_up() -> None:
    setting, strategies = context(), [parse_strategy(text) for text in STRATEGIES]
    core, events = (scorer(setting, table_of(strategies)) for scorer in (score, event_scores))

    assert sum(events.time_s.values()) == pytest.approx(events.step_time_s)
    assert sum(events.memory_bytes.values()) == pytest.approx(events.peak_memory_bytes)
    assert events.step_time_s[0] == simulate(setting, strategies[0]).step_time_s
    same = [number for number, strategy in enumerate(strategies) if strategy.schedule != Schedule.ZB_H1]
    assert events.peak_memory_bytes[same] == pytest.approx(core.peak_memory_bytes[same], rel=0.02)
    assert list(events.peak_stage[same]) == list(core.peak_stage[same])


def test_a_schedule_without_an_order_for_the_shape_is_an_error() -> None:
    with pytest.raises(RequestError, match="a multiple of 4 microbatches"):
        simulate(context(), parse_strategy("pp4 dp8 vpp2 schedule=interleaved"))
