"""Statistics of operators, two runs side by side, and operators that take other times, on runs that are known."""

import csv
import json
from pathlib import Path

import pytest
from synthetic_runs import data_parallel

from forerun.search.cli import main
from forerun.simulator.improve.operator_changes import OperatorChange, changed_steps
from forerun.simulator.replay import Analysis, analyse_files
from forerun.simulator.replay.statistics import operator_differences, operator_uses
from forerun.spaces.errors import RequestError

STEADY = {"ranks": 3, "steps": 4, "jitter": 0.0, "noise_s": 0.0}
"""Passes of 4 ms forward and six times 1 ms backward, each followed by a reduction of 1.5 ms."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("steady")
    data_parallel(folder, **STEADY)
    return analyse_files([folder])


def test_uses_add_up_to_what_the_traces_hold(run: Analysis) -> None:
    uses = operator_uses(run.replay.graph.traces)
    spans = sum(len(trace) for trace in run.replay.graph.traces)
    seconds = sum(float((trace.end_s - trace.start_s).sum()) for trace in run.replay.graph.traces)
    assert sum(use.count for use in uses) == spans
    assert sum(use.step_s for use in uses) * 3 * 4 == pytest.approx(seconds)
    assert all(use.least_s <= use.mean_s <= use.most_s + 1e-12 for use in uses)
    assert [use.step_s for use in uses] == sorted((use.step_s for use in uses), reverse=True)


def test_a_slower_run_differs_by_its_slower_operators(run: Analysis, tmp_path: Path) -> None:
    data_parallel(tmp_path, **(STEADY | {"forward_s": 5e-3}))
    slower = operator_uses(analyse_files([tmp_path]).replay.graph.traces)
    differences = operator_differences(slower, operator_uses(run.replay.graph.traces))
    assert differences[0].phase == "forward" and differences[0].difference_s == pytest.approx(1e-3, rel=1e-3)


def test_messages_are_meant_by_what_they_do(run: Analysis) -> None:
    named, done = changed_steps(
        run, [OperatorChange(operators=name, rank=1, delay_s=1e-3) for name in ("gloo:all_reduce", "all_reduce")]
    )[:2]
    assert done.step_s == named.step_s > run.replay.replayed_step_s


def test_a_change_of_an_operator_moves_the_step_as_far_as_it_must(run: Analysis) -> None:
    step_s = run.replay.replayed_step_s
    same, half, late, free, both = changed_steps(
        run,
        [
            OperatorChange(operators="computation", factor=1.0),
            OperatorChange(operators="computation", factor=0.5),
            OperatorChange(operators="computation", rank=1, delay_s=1e-3),
            OperatorChange(operators="communication", factor=0.0),
        ],
    )
    assert same.step_s == pytest.approx(step_s) and same.gain_s == pytest.approx(0.0, abs=1e-9)
    assert half.step_s < step_s and free.step_s < step_s
    assert late.step_s > step_s  # the others wait for the one that is late
    assert both.name == "all of these" and both.visited > 0


def test_what_is_not_in_the_run_is_named(run: Analysis) -> None:
    with pytest.raises(RequestError, match="unknown operator of the traces 'all_redcue'; did you mean"):
        changed_steps(run, [OperatorChange(operators="all_redcue")])
    with pytest.raises(RequestError, match="of ranks 0 to 2, but a change is for 9"):
        changed_steps(run, [OperatorChange(operators="computation", rank=9)])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        data_parallel(tmp_path / name, ranks=2, steps=2, seed=len(name))
    one, other, table = str(tmp_path / "one"), str(tmp_path / "other"), tmp_path / "operators.csv"
    flags = ["--against", other, "--what-if", "communication=0", "--statistics", str(table)]
    assert main(["replay", one, *flags]) == 0
    out = capsys.readouterr().out
    assert "What if" in out and "Against the other run" in out
    assert float(next(csv.DictReader(table.read_text().splitlines()))["step_s"]) > 0
    assert main(["replay", one, *flags[:4], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["what_if"][0]["gain_s"] > 0 and document["against"]["operators"] and document["operators"]


@pytest.mark.parametrize("change", ["x", "=1", "x=", "x=fast", "x=-1s@2", "x=nan", "x=+3parsec"])
def test_changes_that_are_none(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path), "--what-if", change]) == 2
    assert "an operator and a factor or a time" in capsys.readouterr().err
