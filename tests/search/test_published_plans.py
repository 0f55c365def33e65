"""Published plans are in the committed tables, can be expressed, and are predicted as near as is asked."""

import dataclasses
import statistics

import pytest
import yaml

from benchmarks.published_plans import ASKED, MEASURED, PLANS, Answer, published
from forerun.search.board.rows import Row, rows_of
from forerun.search.measured.validate import load_runs, predict
from forerun.search.measured.validate.runs import MeasuredRun
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.strategies import parse_strategy

NOT_COMMITTED = ("amp",)
DOCUMENT = yaml.safe_load(PLANS.read_text(encoding="utf-8"))
NAMES = [name for name in DOCUMENT["plans"] if name.rpartition("-")[0] not in NOT_COMMITTED]


@pytest.fixture(scope="module")
def runs() -> dict[str, MeasuredRun]:
    tables = sorted({name.rpartition("-")[0] for name in NAMES})
    return published(NAMES, load_runs([MEASURED / f"{table}.csv" for table in tables]).runs)


@pytest.mark.slow
def test_every_plan_is_a_measured_run(runs: dict[str, MeasuredRun]) -> None:
    assert list(runs) == NAMES
    assert all(run.step_time_s for run in runs.values())


@pytest.mark.slow  # a second
def test_plans_are_predicted_within_what_is_asked(runs: dict[str, MeasuredRun]) -> None:
    errors: dict[str, list[float]] = {"dense": [], "moe": []}
    for run, step_s in zip(runs.values(), predict(tuple(runs.values())).step_time_s, strict=True):
        assert run.step_time_s
        errors["moe" if run.context.moe else "dense"].append(abs(step_s / run.step_time_s - 1))
    for kind, asked in ASKED.items():
        assert statistics.median(errors[kind]) <= asked, kind


def test_stated_problems_are_requests() -> None:
    for problem in DOCUMENT["stated"]:
        assert resolve(Request(**problem["request"])).context.model.layer_count > 0


def test_a_pick_promises_too_much_where_its_whole_interval_is_faster(llama_row: Row) -> None:
    pick = dataclasses.replace(llama_row, step_time_s=1.0, step_time_low_s=0.9, step_time_high_s=1.2)
    answer = Answer(name="", kind="dense", plan="", measured_s=1.3, predicted_s=1.1, pick=pick, search_s=0.0)

    assert answer.promises_too_much and answer.as_good
    assert not dataclasses.replace(answer, measured_s=1.1).promises_too_much
    assert not dataclasses.replace(answer, predicted_s=0.9).as_good
    assert not dataclasses.replace(answer, pick=None).as_good


@pytest.fixture(scope="module")
def llama_row() -> Row:
    request = Request(model="llama3-8b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=4096)
    return rows_of(resolve(request).context, [parse_strategy("tp2 pp1 dp4 mbs1 zero1 sp")])[0]
