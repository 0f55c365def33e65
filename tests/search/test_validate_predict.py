"""Predictions of measured runs, their summary, and what is written and printed; the scorer is a fake."""

import csv
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from forerun_measured import fake_score, write_runs

from forerun.search.cli.verbs import validate as verb
from forerun.search.measured.validate import Predictions, RunSet, load_runs, predict, summarise
from forerun.search.measured.validate.plot import accuracy_points, order_points, plot_page, write_plot
from forerun.search.measured.validate.predict import KEPT_SHARE
from forerun.search.measured.validate.report import worst_rows, write_predictions
from forerun.search.request.interrupts import Stopped
from forerun.simulator import ScoreTable
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, StrategyTable

LAYOUTS = (
    {"tp": "1", "pp": "2", "dp": "4", "step_time_s": "1.0"},
    {"tp": "2", "pp": "2", "dp": "2", "step_time_s": "2.2"},
    {"tp": "4", "pp": "2", "dp": "1", "step_time_s": "3.9"},
    {"tp": "8", "pp": "1", "dp": "1", "step_time_s": "1.5"},
)


@pytest.fixture
def runs(tmp_path: Path) -> RunSet:
    """Four layouts, one out of memory, one that cannot be expressed."""
    oom = {"outcome": "oom", "step_time_s": "", "peak_mem_gib": ""}
    return load_runs([write_runs(tmp_path / "runs.csv", *LAYOUTS, oom, {"device": ""})])


@pytest.fixture
def predictions(runs: RunSet) -> Predictions:
    return predict(runs.runs, score=fake_score)


def test_one_call_per_context(runs: RunSet) -> None:
    sizes = []

    def counted(context: Context, table: StrategyTable) -> ScoreTable:
        sizes.append(len(table))
        return fake_score(context, table)

    predict(runs.runs, score=counted)
    assert sizes == [5]


def test_predictions_stand_in_the_order_of_the_runs(predictions: Predictions) -> None:
    assert predictions.step_time_s.tolist() == [1, 2, 4, 8, 2]
    assert predictions.time_s["compute"].tolist() == [1, 2, 4, 8, 2]


def test_memory_of_the_first_stage_is_compared_with_that_of_the_first_stage(tmp_path: Path) -> None:
    layout = {"pp": "4", "tp": "1", "dp": "2", "micro_batch": "16", "vocab": "512000"}
    runs = load_runs([write_runs(tmp_path / "runs.csv", layout)]).runs
    fullest, first = (predict([replace(runs[0], memory_of_first=of_first)]) for of_first in (False, True))
    context, strategy = runs[0].context, runs[0].strategy
    stages = [sum(parts.values()) - parts["reserve"] for parts in memory_by_stage(context, strategy)]
    assert max(stages) > 1.5 * stages[0], "the head's stage is the fullest here"
    assert fullest.comparable_memory_bytes[0] == pytest.approx(max(stages))
    assert first.comparable_memory_bytes[0] == pytest.approx(stages[0])


def test_memory_is_compared_in_the_kind_that_was_measured(tmp_path: Path) -> None:
    notes = ("memory=allocated", "memory=reserved", "memory=device")
    runs = load_runs([write_runs(tmp_path / "runs.csv", *({"notes": text} for text in notes))]).runs
    profile = runs[0].context.framework
    outside = (profile.context_bytes + profile.communicator_bytes) / 2.0**30
    gib = predict(runs, score=fake_score).comparable_memory_bytes / 2.0**30
    assert gib.tolist() == pytest.approx([2.0, 4.0 - outside, 4.0])


def test_a_whole_device_has_what_the_allocator_took_and_kept(tmp_path: Path) -> None:
    """It is no more than there is, and does not make the run need more."""
    layout = {"notes": "memory=device", "tp": "1", "pp": "2", "dp": "4"}
    runs = load_runs(
        [write_runs(tmp_path / "runs.csv", layout, {**layout, "micro_batch": "16", "vocab": "1024000"})]
    ).runs
    profile, whole = runs[0].context.framework, runs[0].context.cluster.device.memory_bytes
    found = predict(runs)
    live = [sum(found.memory_bytes[part][row] for part in found.memory_bytes if part != "reserve") for row in range(2)]
    kept = (1 + KEPT_SHARE) * live[0] + profile.context_bytes + profile.communicator_bytes
    assert kept > found.peak_memory_bytes[0]
    assert found.comparable_memory_bytes[0] == pytest.approx(kept)
    assert found.comparable_memory_bytes[1] == max(whole, found.peak_memory_bytes[1])


def test_what_was_predicted_until_ctrl_c_is_the_answer(tmp_path: Path) -> None:
    """Runs of two lengths of sequences: the second is not scored any more."""
    runs = load_runs([write_runs(tmp_path / "runs.csv", *LAYOUTS, {"seq_len": "512"})]).runs
    scored = []

    def stopped(context: Context, table: StrategyTable) -> ScoreTable:
        scored.append(len(table))
        if len(scored) > 1:
            raise Stopped
        return fake_score(context, table)

    found, whole = predict(runs, score=stopped, partial=True), predict(runs, score=fake_score)
    assert isinstance(found.stop, Stopped) and whole.stop is None
    assert len(found.runs) == scored[0] < len(runs)
    kept = [whole.runs.index(run) for run in found.runs]
    assert found.step_time_s.tolist() == whole.step_time_s[kept].tolist()
    assert found.laws == tuple(whole.laws[row] for row in kept)
    assert found.predicted.all()
    scored.clear()
    with pytest.raises(Stopped):
        predict(runs, score=stopped)


def test_a_run_above_the_memory_of_its_device_is_predicted_out_of_memory(runs: RunSet) -> None:
    def larger(context: Context, table: StrategyTable) -> ScoreTable:
        scores = fake_score(context, table)
        return replace(scores, peak_memory_bytes=25 * scores.peak_memory_bytes)

    assert not predict(runs.runs, score=fake_score).oom.any()
    assert predict(runs.runs, score=larger).oom.tolist() == [True, True, True, False, True]


def test_a_measured_run_that_breaks_a_law_is_predicted_and_listed(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", {"zero_stage": "3"})
    runs = load_runs([path])
    predictions = predict(runs.runs, score=fake_score)
    assert predictions.predicted.all()
    assert summarise(runs, predictions).laws == {"framework zero": 1}


def test_a_context_that_cannot_be_scored_is_counted(runs: RunSet) -> None:
    def refusing(context: Context, table: StrategyTable) -> ScoreTable:
        raise RequestError("no such unit")

    predictions = predict(runs.runs, score=refusing)
    assert not predictions.predicted.any()
    assert predictions.errors == {"no such unit": 5}
    assert summarise(runs, predictions).overall.rows == 0


def test_summary_as_json(runs: RunSet, predictions: Predictions) -> None:
    document = summarise(runs, predictions).to_json()
    json.dumps(document, allow_nan=False)
    assert (document["schema"], document["rows"]) == (1, 4)
    assert document["skipped"] == {"device not stated": 1}
    figures = document["sources"]["lab"]
    assert figures["covered_pct"] == 80.0
    assert figures["groups"] == 1
    assert figures["regret1_pct"] == 0
    assert figures["oom_recall_pct"] == 0
    assert figures["mape_pct"] == pytest.approx(100 * (0 + 0.2 / 2.2 + 0.1 / 3.9 + 6.5 / 1.5) / 4)
    assert document["overall"] == figures


def test_summary_by_a_column(runs: RunSet, predictions: Predictions) -> None:
    parts = summarise(runs, predictions, by="tp").parts
    assert {name: metrics.rows for name, metrics in parts.items()} == {"1": 1, "2": 1, "4": 1, "8": 1}
    with pytest.raises(RequestError, match="did you mean tp"):
        summarise(runs, predictions, by="tpp")


def test_worst_rows_are_those_with_the_largest_ratio(predictions: Predictions) -> None:
    assert worst_rows(predictions, 2) == [3, 1]


def test_predictions_as_csv(tmp_path: Path, predictions: Predictions) -> None:
    write_predictions(tmp_path / "out.csv", predictions, ["none"] * len(predictions.runs))
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["run_id"] for row in rows] == [f"lab-{number:04}" for number in range(5)]
    low_s, high_s = (float(rows[3].pop(name)) for name in ("predicted_low_s", "predicted_high_s"))
    assert 4 < low_s < 8.5 and low_s < high_s < 16
    low, high = (float(rows[3].pop(name)) for name in ("predicted_low_mem_gib", "predicted_high_mem_gib"))
    assert 0.5 < low < high < 2
    assert rows[3] == {
        "run_id": "lab-0003",
        "predicted_step_time_s": "8",
        "predicted_peak_mem_gib": "1",
        "predicted_oom": "False",
        "evidence": "none",
    }
    with pytest.raises(RequestError, match="cannot write"):
        write_predictions(tmp_path, predictions, [""] * len(predictions.runs))


def test_figures_hold_every_timed_run(predictions: Predictions) -> None:
    accuracy = accuracy_points(predictions, {"lab": [0, 1, 2, 3]})["lab"]
    assert [(point.x, point.y) for point in accuracy] == [(1.0, 1.0), (2.2, 2.0), (3.9, 4.0), (1.5, 8.0)]
    (order,) = order_points(predictions, [0, 1, 2, 3]).values()
    assert [(point.x, point.y) for point in order] == [(1, 1.0), (2, 2.2), (3, 3.9), (4, 1.5)]


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verb predict without a cost model."""
    monkeypatch.setattr(verb, "predict", partial(predict, score=fake_score))


def verb_run(*words: str) -> int:
    """Run the verb with the real parser of the command line."""
    from forerun.search.cli.flags.declaration import flags_of
    from forerun.search.cli.flags.parsing import Words
    from forerun.search.cli.registry import read_declaration

    return verb.run(Words("forerun validate", flags_of(read_declaration("validate").flags), words).parse(None))


@pytest.mark.usefixtures("faked")
def test_verb_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_runs(tmp_path / "runs.csv", *LAYOUTS)
    assert verb_run(str(path), "--json", "--worst", "1") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["worst"][0]["run_id"] == "lab-0003"
    assert document["worst"][0]["breakdown_s"]["compute"] == 8.0


@pytest.mark.usefixtures("faked")
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_verb_prints_tables(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    path = write_runs(tmp_path / "runs.csv", *LAYOUTS, {"device": "z80"})
    assert verb_run(str(path), "--worst", "2", "--out", str(tmp_path / "out.csv")) == 0
    printed = capsys.readouterr().out
    for whole in ("covered", "median", "groups", "regret", "predicted"):
        assert whole in printed
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= columns
    assert "lab-0003" in printed
    assert "unknown device z80" in printed
    assert (tmp_path / "out.csv").exists()


@pytest.mark.usefixtures("faked")
def test_runs_that_are_not_numbered_are_one_table_of_the_files_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_runs(tmp_path / "ours.csv", *({**row, "run_id": f"{number}"} for number, row in enumerate(LAYOUTS)))
    assert verb_run(str(path), "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["sources"]) == ["ours"]


def test_verb_refuses_when_no_row_can_be_predicted(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", {"seq_len": ""}, {"device": ""})
    with pytest.raises(RequestError, match="none of 2 rows"):
        verb_run(str(path))
    with pytest.raises(RequestError, match="no rows below the header"):
        verb_run(str(write_runs(tmp_path / "none.csv")))


@pytest.mark.parametrize("words", [("--noise", "2"), ("--noise", "x"), ("--worst", "-1"), ("--noise", "nan")])
def test_verb_refuses_numbers_out_of_range(tmp_path: Path, words: tuple[str, str]) -> None:
    with pytest.raises(RequestError, match=words[0]):
        verb_run(str(write_runs(tmp_path / "runs.csv", {})), *words)


def test_plot_is_one_page_that_loads_nothing(tmp_path: Path, predictions: Predictions) -> None:
    write_plot(tmp_path / "plot.html", predictions)
    page = (tmp_path / "plot.html").read_text(encoding="utf-8")

    assert "default-src &#x27;none&#x27;" in page and "<script" not in page and "://" not in page
    assert page.count("lab-0003: ") == 2
    assert page.count("<use ") == 2 * 4 + 1
    assert len(page) < 40_000
    for place in re.findall(r' [xy][12]?="([\d.]+)%"', page):
        assert 0.0 <= float(place) <= 100.0


def test_names_in_a_plot_are_escaped(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", *({**row, "model": "<b>bold</b>"} for row in LAYOUTS))
    page = plot_page(predict(load_runs([path]).runs, score=fake_score), by="model")

    assert "<b>" not in page and "&lt;b&gt;bold" in page
