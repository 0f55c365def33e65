"""Strategies whose stages differ: alike stages cost what the flat core says, others what the event engine says."""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import MEMORY_PARTS, TIME_PARTS, score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.core.staged import staged_score
from forerun.simulator.events import Disturbance, event_scores, simulate, step_costs
from forerun.simulator.layer.activations import layer_activations
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.times import block_times
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, StageRecompute, Strategy, StrategyTable, parse_strategy, table_of
from forerun.spaces.strategies.software import running
from forerun.spaces.strategies.stage_offload import OFFLOAD_WORDS

EXACT = 1e-9
MODELS = ["llama3-8b", "gpt-oss-120b", "deepseek-v3"]


def context_of(model: str = "llama3-8b", framework: str = "megatron-lm", **fields: object) -> Context:
    known = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096, "moe_imbalance": 1.2}
    return resolve(Request(model=model, framework=framework, **{**known, **fields})).context  # type: ignore[arg-type]


@pytest.mark.parametrize("framework", ["megatron-lm", "generic", "nemo"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow
def test_alike_stages_cost_what_the_flat_core_says(model: str, framework: str) -> None:
    setting = resolve(
        Request(model=model, cluster="dgx-h100", gpus="64", global_batch=64, seq_len=4096, framework=framework)
    )
    space = setting.space({"vpp": [1], "cp": [1, 2], "mbs": [1, 2]})
    table, _ = space.table(0, space.size)
    rows = np.flatnonzero(~np.isin(table.column("schedule"), [1, 4, 5]))
    table = table.take(rows[:: max(1, len(rows) // 400)])
    assert len(table) > 300
    software = table.column("software")
    for switches in np.unique(software):
        same = table.take(np.flatnonzero(software == switches))
        _costs_are_alike(running(space.context, int(switches)), same, score(space.context, same))


def _costs_are_alike(context: Context, table: StrategyTable, flat: ScoreTable) -> None:
    staged = staged_score(context, table)
    assert staged.step_time_s == pytest.approx(flat.step_time_s, rel=EXACT)
    assert staged.peak_memory_bytes == pytest.approx(flat.peak_memory_bytes, rel=EXACT)
    assert staged.allocated_bytes == pytest.approx(flat.allocated_bytes, rel=EXACT)
    assert (staged.peak_stage == flat.peak_stage).all() and (staged.fits == flat.fits).all()
    for part in TIME_PARTS:
        assert staged.time_s[part] == pytest.approx(flat.time_s[part], rel=EXACT, abs=EXACT * flat.step_time_s.min())
    for part in MEMORY_PARTS:
        assert staged.memory_bytes[part] == pytest.approx(flat.memory_bytes[part], rel=EXACT, abs=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "tp4 pp8 dp2 mbs1 zero1 sp recompute=selective",
        "tp2 pp4 dp4 mbs1 recompute=full layers=7,8,9,8 placement=tp-cp-ep-pp-dp",
        "tp2 pp4 dp4 mbs2 schedule=zb-h1 zero2",
        "tp2 pp4 dp4 mbs2 schedule=gpipe zero3 sp",
    ],
)
def test_alike_stages_are_compiled_to_what_flat_ones_are(text: str) -> None:
    context, strategy = context_of(framework="generic"), parse_strategy(text)
    named = dataclasses.replace(strategy, stage_recompute=(StageRecompute(strategy.recompute),) * strategy.pp)

    assert step_costs(assign(context, named)) == step_costs(assign(context, strategy))


recomputes = st.lists(st.sampled_from(["none", "selective", "full", "full:1", "full:3"]), min_size=4, max_size=4)
dealt = st.lists(st.integers(-2, 2), min_size=3, max_size=3).map(
    lambda shifts: (8 + shifts[0], 8 - shifts[0] + shifts[1], 8 - shifts[1] + shifts[2], 8 - shifts[2])
)


@settings(max_examples=tries(20))
@given(
    recompute=recomputes,
    layers=dealt,
    halves=st.sampled_from(["tp2 dp4 mbs2", "tp1/2 dp8 mbs1", "tp4/2 dp2 mbs2", "tp2/8 dp4 mbs1"]),
    rest=st.sampled_from(["", "zero1 sp", "zero1 placement=tp-cp-ep-pp-dp", "sp schedule=gpipe"]),
    framework=st.sampled_from(["generic", "megatron-lm"]),
)
def test_unlike_stages_cost_what_the_event_engine_says(
    recompute: list[str], layers: tuple[int, ...], halves: str, rest: str, framework: str
) -> None:
    text = f"{halves} pp4 {rest} layers={','.join(map(str, layers))} recompute={','.join(recompute)}"
    context, strategy = context_of(framework=framework), parse_strategy(text)
    closed, events = score(context, table_of([strategy])), event_scores(context, table_of([strategy]))

    assert closed.step_time_s[0] == pytest.approx(
        events.step_time_s[0], rel=0.06
    )  # 0.8 % on average, 3.2 % at most of a thousand drawn
    assert closed.peak_memory_bytes[0] == pytest.approx(events.peak_memory_bytes[0], rel=EXACT)
    assert sum(values[0] for values in closed.time_s.values()) == pytest.approx(closed.step_time_s[0], rel=EXACT)


shares = st.lists(st.sampled_from([0, 0.125, 0.5, 1]), min_size=4, max_size=4)


@settings(max_examples=tries(20))
@given(
    shares=st.tuples(shares, shares),
    layers=dealt,
    halves=st.sampled_from(["tp2 dp4 mbs2", "tp1/2 dp8 mbs1"]),
    rest=st.sampled_from(["", "zero1 sp recompute=full:2,none,full*2", "zero1", "sp schedule=gpipe"]),
    machine=st.sampled_from([("generic", "dgx-h100"), ("megatron-lm", "dgx-h100"), ("generic", "l40s-pcie")]),
)
def test_shares_on_the_host_cost_what_the_event_engine_says(
    shares: tuple[list[float], list[float]], layers: tuple[int, ...], halves: str, rest: str, machine: tuple[str, str]
) -> None:
    # Where gradients take half of a step, halves with other replicas are up to 9 % off without any shares.
    assume(machine[1] != "l40s-pcie" or "/" not in halves)
    words = zip(OFFLOAD_WORDS, shares, strict=True)
    hosted = " ".join(f"{word}={','.join(map(str, each))}" for word, each in words)
    context = context_of(framework=machine[0], cluster=machine[1])
    table = table_of([parse_strategy(f"{halves} pp4 {rest} layers={','.join(map(str, layers))} {hosted}")])
    closed, events = score(context, table), event_scores(context, table)

    # Most are within 2 %; 6.1 % off is a last stage that copies everything through a host beside sums (l40s-pcie).
    assert closed.step_time_s[0] == pytest.approx(events.step_time_s[0], rel=0.08)
    assert closed.peak_memory_bytes[0] == pytest.approx(events.peak_memory_bytes[0], rel=EXACT)


@pytest.mark.parametrize("text", ["tp2 pp4 dp2 mbs1 zero1 sp", "tp2 pp1 dp4 mbs2 zero1", "tp1 pp8 dp2 schedule=gpipe"])
@pytest.mark.parametrize("share", ["0.125", "1"])
def test_a_share_of_all_stages_is_the_switch(text: str, share: str) -> None:
    names = dict.fromkeys(OFFLOAD_WORDS, share)
    words = " ".join(f"{name}={share}" for name in names)
    switched = score(context_of(framework="generic", switches=names), table_of([parse_strategy(text)]))
    named = score(context_of(framework="generic"), table_of([parse_strategy(f"{text} {words}")]))

    assert named.step_time_s == pytest.approx(switched.step_time_s, rel=EXACT)
    assert named.memory_bytes["activations"] == pytest.approx(switched.memory_bytes["activations"], rel=EXACT)
    assert named.peak_memory_bytes == pytest.approx(switched.peak_memory_bytes, rel=EXACT)


def test_a_stage_frees_its_own_memory_alone() -> None:
    """Of four equal stages the first keeps most; what it has on the host costs the step its copies and its update."""
    texts = ["", "activation-offload=0.5,0*3", "activation-offload=0,0.5*3", "optimizer-offload=0.5,0*3"]
    found = score(context_of(), table_of([parse_strategy(f"tp2 pp4 dp2 mbs1 zero1 {text}") for text in texts]))

    plain, first, others, states = found.peak_memory_bytes
    assert (first < plain, others == plain, states < plain) == (True, True, True)
    assert (found.step_time_s[1:] >= found.step_time_s[0]).all()
    assert found.time_s["optimizer"][3] > found.time_s["optimizer"][0] == found.time_s["optimizer"][1]


@pytest.mark.parametrize("cluster", ["l40s-pcie", "dgx-h100"])
def test_copies_and_exchange_share_the_links_of_servers_without_others(cluster: str) -> None:
    """A pass that copies take longer than lasts as long as they do; where devices meet through the host, sums come
    on top."""
    context = context_of(cluster=cluster, framework="generic", seq_len=1024)
    layer = layer_kinds(context.model)[0]
    stays = shard_with(context, parse_strategy("tp4 pp1 dp2 mbs1"))
    away = shard_with(context, parse_strategy("tp4 pp1 dp2 mbs1 activation-offload=1"))
    slow = dataclasses.replace(
        context, cluster=dataclasses.replace(context.cluster, host={"bytes_per_s_per_device": 1e9})
    )
    copies_s = float(layer_activations(slow, layer, away).kept[0]) / 1e9
    before_s, after_s = (float(block_times(slow, shard).forward_s[0, 0]) for shard in (stays, away))

    assert copies_s > before_s
    if cluster == "dgx-h100":
        assert after_s == pytest.approx(copies_s, rel=EXACT)
    else:
        sums_s = float(block_times(slow, stays).parts["tensor"][0, 0]) / 2
        assert after_s == pytest.approx(copies_s + sums_s, rel=EXACT)


def test_flat_and_staged_rows_keep_their_places() -> None:
    context = context_of()
    texts = ["tp2 pp4 dp2 mbs1", "tp2 pp4 dp2 mbs1 recompute=full,none*3", "tp4 pp2 dp2 mbs1", "tp2/4 pp2 dp4 mbs1"]
    strategies = [parse_strategy(text) for text in texts]
    together = score(context, table_of(strategies))
    alone = [score(context, table_of([strategy])) for strategy in strategies]

    assert list(together.step_time_s) == pytest.approx([one.step_time_s[0] for one in alone], rel=EXACT)
    assert list(together.peak_stage) == [one.peak_stage[0] for one in alone]
    assert len(set(together.step_time_s)) == 4


def test_each_part_moves_what_it_should() -> None:
    """Recompute of one stage costs its forward passes and saves its activations; fewer layers of it cost less."""
    context = context_of()
    texts = ["none", "full:2,none*3", "full:5,none*3", "full"]
    found = score(context, table_of([parse_strategy(f"tp2 pp4 dp2 mbs1 recompute={text}") for text in texts]))

    assert (np.diff(found.step_time_s) > 0).all()
    assert (np.diff(found.peak_memory_bytes) <= 0).all() and found.peak_memory_bytes[3] < found.peak_memory_bytes[0]


def test_halves_of_one_tp_are_one_strategy() -> None:
    halves = Strategy(tp=2, second_tp=2, pp=4, dp=4)
    flat = dataclasses.replace(halves, second_tp=None)
    found = score(context_of(), table_of([halves, flat]))

    assert found.step_time_s[0] == pytest.approx(found.step_time_s[1], rel=EXACT)


def test_replicas_that_cross_are_not_disturbed() -> None:
    with pytest.raises(RequestError, match="no pipeline is disturbed alone"):
        simulate(context_of(), parse_strategy("tp1/2 pp2 dp4 mbs1"), Disturbance(jitter=0.1))
