"""The risk of running out of memory: a curve, its inverse, and searches that keep below it."""

import dataclasses
import functools
import itertools
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from forerun.search import search, search_request, simulate
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.low_oom_risk import SAFEST, safer_note
from forerun.search.answer.notes.uneven_experts import largest_imbalance, uneven_note, whole_experts_note
from forerun.search.answer.searches import explore_request
from forerun.search.board.found import Alternatives
from forerun.search.board.rows import TIGHT_MARK, Row
from forerun.search.cli import main
from forerun.search.explore.samplers import Exploring
from forerun.search.order.objectives import objective_named
from forerun.search.order.worth import FAILED_START, odds_of_failure, worth_of
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.simulator.events import event_scores
from forerun.simulator.memory.risk import RISKY, chance_above, oom_risk, share_at
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy, table_of

TRAINING = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096}
FEW = {"recompute": ["none", "full"], "recompute_layers": ["0"], "vpp": ["1"], "mbs": ["1", "2"]}
COMMAND = "search llama3-70b --cluster dgx-h100 --gpus 32 --global-batch 64 --seq-len 4096"


@functools.cache
def every_row() -> tuple[Row, ...]:
    return search("llama3-70b", **TRAINING, gpus="32", top=1000, all_variants=True, overrides=FEW).rows


def test_more_of_the_memory_is_more_risk() -> None:
    risks = [oom_risk(share) for share in np.linspace(0.0, 3.0, 100)]

    assert risks[0] == 0.0 and risks[-1] > 0.999
    assert all(low < high for low, high in pairwise(risks))


def test_cards_of_24_gb_that_a_posted_run_filled_are_at_risk(tmp_path: Path) -> None:
    box = tmp_path / "box.yaml"
    box.write_text(
        "device: rtx3090\ndevices_per_node: 8\nhost: {sockets: 2, socket_rate: 12GB/s, staged_rate: 12GB/s}\n"
    )
    job = {"cluster": str(box), "framework": "deepspeed", "precision": "fp16", "seq_len": 1024, "global_batch": 16}
    strategy = "dp8 mbs1 zero3 recompute=full"

    row = simulate("llama3-8b", strategy=strategy, **job)
    offloaded = simulate("llama3-8b", strategy=strategy, switches={"optimizer-offload": "on"}, **job)

    assert row.oom_risk > RISKY and row.peak_memory_high_gib > row.memory_limit_gib
    assert offloaded.peak_memory_low_gib < 13 < offloaded.peak_memory_high_gib and offloaded.oom_risk < row.oom_risk


def test_a_note_says_how_uneven_experts_may_be() -> None:
    asked = {"cluster": "dgx-h100", "gpus": "16", "global_batch": 64, "seq_len": 4096, "overrides": {"ep": [8]}}
    setting = resolve(Request(model="qwen3-30b-a3b", **asked))
    table = table_of([parse_strategy("tp1 pp2 dp8 ep8 mbs2 zero1")])
    row = simulate("qwen3-30b-a3b", strategy="tp1 pp2 dp8 ep8 mbs2 zero1", **asked)
    (note,) = uneven_note(setting, (row,), NoteSearch())
    most = largest_imbalance(setting.context, row.strategy)
    assert 1 < most < 2 and f" {most:.2f} times" in note
    for imbalance, fits in ((most, True), (most + 0.01, False)):
        workload = dataclasses.replace(setting.context.workload, moe_imbalance=imbalance)
        assert score(dataclasses.replace(setting.context, workload=workload), table).fits[0] == fits

    stated = resolve(Request(model="qwen3-30b-a3b", moe_imbalance=1.2, **asked))
    assert uneven_note(stated, (row,), NoteSearch()) == ()


@pytest.mark.parametrize("risk", [0.001, 0.05, 0.1, 0.3])
def test_a_share_is_that_of_its_risk(risk: float) -> None:
    assert oom_risk(share_at(risk)) == pytest.approx(risk, rel=1e-12)


def test_no_risk_lets_a_strategy_need_more_than_there_is() -> None:
    assert share_at(0.9) == 1.0


@pytest.mark.parametrize("risk", [0.0, 1.0, 5.0])
def test_what_is_no_risk_is_refused(risk: float) -> None:
    with pytest.raises(RequestError, match="above 0 and below 1"):
        resolve(Request(model="llama3-8b", cluster="dgx-h100", global_batch=8, seq_len=128, oom_risk=risk))


def test_a_search_keeps_below_the_risk_and_loses_nothing_else() -> None:
    whole = every_row()
    fields = {**TRAINING, "gpus": "32", "top": 1000, "all_variants": True, "overrides": FEW}
    bounded = search("llama3-70b", **fields, oom_risk=0.05)
    kept = [row.strategy for row in whole if row.oom_risk <= 0.05]

    assert 0 < len(kept) < len(whole) < 1000
    assert [row.strategy for row in bounded.rows] == kept
    assert bounded.rows[0].memory_limit_gib == pytest.approx(share_at(0.05) * whole[0].memory_limit_gib)
    assert {row.step_time_s for row in bounded.rows} <= {row.step_time_s for row in whole}


def test_stages_that_differ_keep_below_it_too() -> None:
    request = Request(model="llama3-70b", **TRAINING, gpus="32", oom_risk=0.02, overrides=FEW)
    board = explore_request(request, exploring=Exploring(sampler="local", evaluations=100))

    assert board.rows and all(row.oom_risk <= 0.02 for row in board.rows)


def test_a_row_that_is_likely_to_run_out_is_marked() -> None:
    rows = every_row()

    assert {TIGHT_MARK in row.marks for row in rows} == {True, False}
    assert all((TIGHT_MARK in row.marks) == (row.oom_risk > RISKY) for row in rows)


def test_one_strategy_is_judged_by_the_risk_at_both_levels(capsys: pytest.CaptureFixture[str]) -> None:
    rows = every_row()
    tight = max(rows, key=lambda row: row.oom_risk)
    bounded = resolve(Request(model="llama3-70b", **TRAINING, oom_risk=0.01))

    assert simulate("llama3-70b", strategy=tight.strategy, **TRAINING).fits
    assert not simulate("llama3-70b", strategy=tight.strategy, **TRAINING, oom_risk=0.01).fits
    assert not event_scores(bounded.context, table_of([tight.strategy])).fits[0]
    command = ["simulate", "llama3-70b", *COMMAND.split()[2:4], *COMMAND.split()[6:], "--strategy", tight.name]
    assert main(command) == 0
    assert f"OOM risk {tight.oom_risk:.0%}, from measured runs" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_the_command_says_what_risk_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"{COMMAND} --oom-risk 0.000001% --set recompute=none --set vpp=1 --set mbs=1".split()) == 3
    assert "--oom-risk " in capsys.readouterr().err


@pytest.mark.slow
def test_sweeps_take_it(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "models: llama3-70b\nclusters: dgx-h100\nworkloads: [{global_batch: 64, seq_len: 4096}]\n"
        "budgets: [{gpus: 32}, {gpus: 32, oom_risk: 5%}]\naxes: {vpp: 1, mbs: 1, cp: 1}\ntop: 3\n"
    )
    assert main(["sweep", str(plan), "--out", str(tmp_path / "run"), "--workers", "serial"]) == 0
    rows = json.loads((tmp_path / "run" / "leaderboard.json").read_text())["leaderboard"]

    assert all(row["oom_risk"] <= 0.05 for row in rows if row["search"] == 2)


def scored(safest: Row | None = None) -> NoteSearch:
    """Return the search of notes on a space that was scored whole."""
    return NoteSearch(alternatives=Alternatives(safest=safest, unscored=False))


def test_the_best_with_a_small_risk_is_named_where_the_first_has_none() -> None:
    request = Request(model="llama3-70b", **TRAINING, gpus="32", top=1000, all_variants=True, overrides=FEW)
    rows = every_row()
    risky = max(rows, key=lambda row: row.oom_risk)
    safest = next(row for row in rows if row.oom_risk <= RISKY)

    for known in ((risky, *rows), (risky,)):  # among the rows, or searched for
        (note,) = safer_note(resolve(request), known, NoteSearch())
        assert note.startswith(f"safest: {safest.name} on 32 GPUs, {safest.oom_risk:.0%} OOM risk")
        more = safest.step_time_s / risky.step_time_s - 1
        assert f"{abs(more):.1%} {'more' if more > 0 else 'less'} GPU time" in note
    assert safer_note(resolve(request), (safest,), NoteSearch()) == ()
    assert safer_note(resolve(request), (risky,), scored()) == ()
    worse = dataclasses.replace(safest, step_time_s=1.5 * safest.step_time_s)  # an idea; its safe variant is no row
    assert safer_note(resolve(request), (risky, worse), scored(safest))[0].startswith(f"safest: {safest.name} ")
    little, less = (dataclasses.replace(row, oom_risk=risk) for row, risk in ((risky, 0.11), (safest, 0.09)))
    assert safer_note(resolve(request), (little, less), scored()) == (), "two points are no reason to choose another"
    slower = dataclasses.replace(safest, step_time_s=2 * safest.step_time_s)  # scored, where a better one was not
    known = NoteSearch(alternatives=Alternatives(safest=slower))
    assert safer_note(resolve(request), (risky,), known) == safer_note(resolve(request), (risky,), NoteSearch())


@pytest.mark.slow
def test_the_fewest_gpus_come_with_a_safer_strategy_on_more() -> None:
    few = Request(model="llama3-8b", **TRAINING, gpus="1..8", objective="gpus", top=1, overrides=FEW)
    board = search_request(few)
    assert board.rows[0].oom_risk > RISKY
    safe = search_request(dataclasses.replace(few, oom_risk=RISKY)).rows[0]
    (note,) = (note for note in board.advice if note.startswith(SAFEST))
    assert safe.gpus > board.rows[0].gpus and f"{safe.name} on {safe.gpus} GPUs" in note


@pytest.mark.slow
def test_the_order_counts_what_a_failed_start_costs() -> None:
    """The first row is what a launch is worth most, and what would be faster is named with its risk."""
    request = Request(model="llama3-8b", cluster="dgx-h100", gpus="8", global_batch=128, seq_len=8192)
    board = search_request(request)
    every = search_request(dataclasses.replace(request, top=1000, all_variants=True)).rows
    fastest = min(every, key=lambda row: row.step_time_s)
    gain = board.rows[0].step_time_s / fastest.step_time_s - 1

    assert fastest.oom_risk > 2 * board.rows[0].oom_risk and 0.005 < gain < 0.05
    (note,) = [note for note in board.advice if "predicted throughput" in note]
    assert note.startswith(f"{fastest.name} on 8 GPUs: {gain:+.1%} predicted throughput; ranked lower because of ")
    assert f"{fastest.oom_risk:.0%} OOM risk" in note


def test_the_index_orders_trials_by_expected_cost() -> None:
    """Of all orders of some candidates, that of ``t + c p / (1 - p)`` costs least until one runs."""
    times, risks, price = (1.0, 0.97, 1.02, 0.9), (0.02, 0.3, 0.001, 0.42), FAILED_START

    def expected(order: tuple[int, ...]) -> float:
        cost, reached = 0.0, 1.0
        for one in order:
            cost += reached * ((1 - risks[one]) * times[one] + risks[one] * price)
            reached *= risks[one]
        return cost

    index = [times[one] + price * risks[one] / (1 - risks[one]) for one in range(4)]
    assert min(itertools.permutations(range(4)), key=expected) == tuple(sorted(range(4), key=index.__getitem__))


def test_a_launch_is_worth_the_same_alone_and_among_candidates() -> None:
    """Groups of nodes ask for one at a time, searches of equal nodes for many."""
    setting = resolve(Request(model="llama3-70b", **TRAINING, gpus="32"))
    texts = ("tp2 pp4 dp2 cp2 mbs2 vpp5 zero1 schedule=interleaved", "tp4 pp4 dp2 mbs1 zero1 sp recompute=full")
    strategies = [parse_strategy(text) for text in texts]
    scores, table = score(setting.context, table_of(strategies)), table_of(strategies)
    (keys,) = objective_named("throughput").keys(setting.context, scores, table)
    odds = odds_of_failure(setting.context, scores)
    for row, strategy in enumerate(strategies):
        risk = odds[row] / (1 + odds[row])
        assert worth_of(setting.context, strategy, scores.step_time_s[row], risk) == pytest.approx(keys[row])


def test_a_peak_whose_range_passes_the_memory_prints_its_risk() -> None:
    row = simulate("llama3-8b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=2048, strategy="tp8 dp1 mbs1 sp")
    limit = row.memory_limit_gib
    within, beyond = (
        dataclasses.replace(row, peak_memory_low_gib=limit / 2, peak_memory_high_gib=high, marks=())
        for high in (0.9 * limit, 1.1 * limit)
    )
    assert within.risk_text == ""
    risk = chance_above(limit, limit / 2, 1.1 * limit)
    assert risk > 0.1
    assert beyond.risk_text == f"OOM risk {risk:.0%}: the 80% range of the peak passes {limit:.1f} GiB"


@pytest.mark.parametrize(
    ("strategy", "framework", "model", "noted"),
    [
        ("tp8 dp1 mbs1 sp", "megatron-lm", "mixtral-8x7b", True),
        ("tp8 etp8 dp1 mbs1 sp", "megatron-lm", "mixtral-8x7b", False),
        ("tp8 etp1 dp1 mbs1 sp", "megatron-lm", "mixtral-8x7b", False),
        ("tp1 ep8 dp8 mbs1", "megatron-lm", "mixtral-8x7b", False),
        ("tp8 dp1 mbs1 sp", "megatron-lm", "llama3-8b", False),
        ("tp8 dp1 mbs1 sp", "torchtitan", "mixtral-8x7b", False),
    ],
)
def test_experts_left_whole_by_a_strategy_of_ones_own_are_noted(
    strategy: str, framework: str, model: str, noted: bool
) -> None:
    context = resolve(Request(model=model, framework=framework, gpus="8", **TRAINING)).context

    assert bool(whole_experts_note(context, strategy)) == noted
