"""Pareto fronts and limits on a whole training."""

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.search import search
from forerun.search.answer.diagnosis.diagnosis import BeyondLimits
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.goodput import sure_days
from forerun.search.answer.notes.in_time import fewest_in_time
from forerun.search.cli import main
from forerun.search.explore.flat.exhaustive import Problem, search_slice
from forerun.search.explore.flat.flat_search import paying
from forerun.search.explore.flat.fronts import front
from forerun.search.explore.flat.sample import search_space
from forerun.search.order.objectives import objective_named
from forerun.search.request.limits import TrainingLimits
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.errors import InfeasibleError, RequestError

REQUEST = Request(model="gpt3-13b", cluster="dgx-a100-80", gpus="8..64", global_batch=128, seq_len=2048)
SMALL = {"model": "gpt3-13b", "cluster": "dgx-a100-80", "gpus": "16..64", "global_batch": 128, "seq_len": 2048}
SMALL["overrides"] = {"vpp": ["1"], "cp": ["1"], "mbs": ["1", "2"], "recompute": ["none", "full"]}


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=30), st.data())
def test_a_front_is_what_nothing_dominates(rows: list[tuple[int, ...]], data: st.DataObject) -> None:
    mask = np.array([data.draw(st.booleans()) for _ in rows], dtype=bool)
    keys = np.array(rows, dtype=float).reshape(len(rows), 3).T
    found = front(np.arange(len(rows)), keys, mask)

    candidates = [row for row in range(len(rows)) if mask[row]]
    expected = {
        row
        for row in candidates
        if not any(
            (all(a <= b for a, b in zip(rows[other], rows[row], strict=True)) and rows[other] != rows[row])
            or (rows[other] == rows[row] and other < row)
            for other in candidates
        )
    }
    assert set(found.tolist()) == expected
    assert [rows[row] for row in found] == sorted(rows[row] for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["throughput,gpus", "cost,headroom,throughput"])
def test_a_front_does_not_depend_on_slices_or_chunks(objective: str) -> None:
    setting = resolve(REQUEST)
    problem = Problem(space=setting.space(), objective=objective, top=2)
    whole = search_space(problem)
    size = problem.space.size
    cuts = [0, size // 7, size // 3, size // 2, size]
    parts = [search_slice(problem, low, high, chunk=1000) for low, high in pairwise(cuts)]
    merged = problem.merged(reversed(parts))

    assert whole.best is not None and merged.best is not None
    assert len(whole.best) > 2, "a front is never cut before it is whole"
    assert merged.best.index.tolist() == whole.best.index.tolist()
    assert merged.best.keys.tolist() == whole.best.keys.tolist()


@pytest.mark.slow
def test_the_front_of_throughput_and_gpus_is_the_best_of_every_number_that_pays() -> None:
    board = search(**SMALL, objective="throughput,gpus")
    alone = {gpus: search(**{**SMALL, "gpus": gpus}, top=1).rows[0] for gpus in (16, 32, 64)}

    for row in board.rows:
        if row.gpus in alone:
            assert row.strategy == alone[row.gpus].strategy
    assert sorted((row.gpus for row in board.rows), reverse=True) == [row.gpus for row in board.rows]
    assert any(note.startswith("Pareto front: ") for note in board.notes)


def test_gpus_pay_until_they_bring_less_than_half() -> None:
    from dataclasses import replace

    row = search(**SMALL, top=1).rows[0]
    speed = {8: 80.0, 16: 150.0, 32: 250.0, 64: 300.0}
    rows = [replace(row, gpus=gpus, throughput=rate) for gpus, rate in speed.items()]

    assert paying(rows).startswith("beyond 32 GPUs the gain per GPU is below half: from 32 to 64 each one adds 16%")
    assert paying(rows[:3]).endswith("at the largest number searched (32)")
    assert paying(rows[:1]) == ""


@pytest.mark.slow
def test_limits_are_counted_by_reason_and_no_row_breaks_them() -> None:
    setting = resolve(dataclasses.replace(REQUEST, gpus="8..32", overrides={"vpp": ["1"], "cp": ["1"]}))
    space = setting.space()
    free = search_slice(Problem(space=space, objective="throughput", top=1), 0, space.size)  # every candidate scored
    assert free.fastest is not None
    fastest_s = float(free.fastest.keys[0, 0])
    limits = TrainingLimits(step_s=1.5 * fastest_s, device_s=32 * 1.4 * fastest_s)
    piece = search_space(Problem(space=setting.space(), objective="cost", top=10_000, limits=limits))
    table, _ = setting.space().table(0, setting.space().size)
    scores = score(setting.context, table)
    late = scores.fits & (scores.step_time_s > limits.step_s)
    dear = scores.fits & ~late & (scores.step_time_s * table.column("gpus") > limits.device_s)

    assert piece.rejected["deadline"] == np.count_nonzero(late) > 0
    assert piece.rejected["money"] == np.count_nonzero(dear) > 0
    assert piece.feasible == free.feasible - np.count_nonzero(late | dear) > 0
    assert piece.best is not None
    kept = np.searchsorted(table.index, piece.best.index)
    assert np.all((scores.step_time_s * table.column("gpus"))[kept] <= limits.device_s)


@pytest.mark.slow
def test_the_cheapest_in_time_is_dearer_than_the_cheapest() -> None:
    money = {"tokens": 3e11, "usd_per_gpu_hour": 2.0}
    fastest = search(**SMALL, **money, top=1).rows[0]
    assert fastest.train_days is not None
    board = search(**SMALL, **money, objective="cost", train_within_s=1.05 * fastest.train_days * 86400)

    assert all(row.train_days is not None and row.train_days <= 1.05 * fastest.train_days for row in board.rows)
    assert board.space.rejected["deadline"] > 0


def test_what_cannot_be_in_time_says_what_the_fastest_needs() -> None:
    with pytest.raises(
        InfeasibleError, match=r"no strategy trains 1T tokens within 1 d(.|\n)*the fastest strategy needs"
    ):
        search(**SMALL, tokens=1e12, train_within_s=86400.0)


def test_what_cannot_be_in_time_is_one_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --tokens 1T --json"
    assert main([*words.split(), "--train-within", "1s"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["leaderboard"] == [] and found["space"]["rejected"]["deadline"] > 0
    assert set(found["infeasible"]["nearest"]) == {"fastest"}, "on one number of GPUs it is the cheapest"
    assert found["infeasible"]["enough"] is None


@pytest.mark.parametrize(("days", "more"), [(40.0, True), (400.0, False)])
@pytest.mark.slow
def test_the_fewest_gpus_in_time_are_searched(days: float, more: bool) -> None:
    asked = {**SMALL, "gpus": 64, "tokens": 1e12, "train_within_s": days * 86400}
    if more:
        with pytest.raises(BeyondLimits, match="fewest GPUs found that end in 40 d with 80% probability: ") as caught:
            search(**asked)
        enough = caught.value.document["infeasible"]["enough"]
    else:
        setting = resolve(Request(**{**asked, "gpus": "64"}))
        board = search(**asked)
        row = fewest_in_time(setting, board.rows, NoteSearch()).enough
        assert row is not None and any(row.name in note for note in board.notes)
        enough = row.to_json()
    assert enough["train_days"] <= days and (enough["gpus"] > 64) is more
    again = search(**{**asked, "gpus": enough["gpus"], "train_within_s": None}, top=1).rows[0]
    assert sure_days(again) <= days
    fewer = search(**{**asked, "gpus": int(0.8 * enough["gpus"]) // 8 * 8, "train_within_s": None}, top=1).rows[0]
    assert sure_days(fewer) > days


def test_runs_to_measure_help_with_one_objective(capsys: pytest.CaptureFixture[str]) -> None:
    words = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --measure-next 2"
    assert main([*words.split(), "--objective", "throughput,gpus"]) == 2
    assert "a single objective" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"train_within_s": 1e6}, "add --tokens"),
        ({"train_usd": 1e6, "tokens": 1e12}, "add --usd-per-gpu-hour"),
        ({"train_usd": -1.0, "tokens": 1e12}, "between"),
        ({"objective": "throughput,throughput"}, "every objective once"),
        ({"objective": "throughput,speed"}, "unknown objective 'speed'"),
    ],
)
def test_limits_and_fronts_that_make_no_sense(fields: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        search(**{**SMALL, **fields})


def test_the_command_line_takes_times_and_fronts(capsys: pytest.CaptureFixture[str]) -> None:
    request = "search gpt3-13b --cluster dgx-a100-80 --gpus 16 --global-batch 128 --seq-len 2048 --set vpp=1 --set cp=1"
    words = request.split()
    assert main([*words, "--objective", "throughput,headroom", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    memory = [row["peak_memory_gib"] for row in document["leaderboard"]]
    assert memory == sorted(memory, reverse=True) and len(memory) > 2
    assert main([*words, "--tokens", "1T", "--train-within", "2h"]) == 3
    assert "nearest fix" in capsys.readouterr().err
    assert main([*words, "--tokens", "1T", "--train-within", "soon"]) == 2


def test_a_front_is_named_in_words() -> None:
    assert objective_named("throughput, gpus").title == "Pareto front of throughput and gpus"
