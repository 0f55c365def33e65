"""``forerun calibrate`` and ``--calibration``, from runs in a file to a leaderboard that says how sure it is."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from forerun_cli import cli
from forerun_examples import request
from forerun_machines import some_strategies, write_runs

from forerun.search.cli import main
from forerun.search.measured.calibrate import calibrate_files, read_calibration, write_calibration
from forerun.search.measured.validate import load_runs
from forerun.spaces.clusters.cluster import NodeGroup
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import table_of

TRAINING = "--cluster dgx-h100 --global-batch 64 --seq-len 2048"
FASTER = 0.8
"""The machine of these tests takes a quarter longer than the catalogue says."""


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    out = folder / "ours.yaml"
    write_calibration(
        out, calibrate_files([write_runs(folder / "runs.csv", faster=FASTER)], source="ours.yaml").calibration
    )
    return out


@pytest.mark.slow
def test_files_come_back_as_they_were_written(calibration: Path, tmp_path: Path) -> None:
    read = read_calibration(calibration)
    again = tmp_path / "again.yaml"
    write_calibration(again, read)
    assert again.read_text() == calibration.read_text()
    assert read.machine.device == "h100-sxm"
    assert len(read.runs) == 12


@pytest.mark.slow
def test_the_error_falls_and_a_search_is_slower_by_what_was_measured(
    calibration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = yaml.safe_load(calibration.read_text())["error"]
    assert error["before_median_pct"] == pytest.approx(100 * (1 - FASTER), abs=1)
    assert error["left_out_median_pct"] < 5
    search = f"search llama3-8b {TRAINING} --gpus 8 --top 5 --json"
    plain = json.loads(cli(capsys, search)[1])["leaderboard"]
    ours = json.loads(cli(capsys, f"{search} --calibration {calibration}")[1])
    rows = ours["leaderboard"]
    assert rows[0]["step_time_s"] == pytest.approx(plain[0]["step_time_s"] / FASTER, rel=0.08)
    assert plain[0]["interval_level"] == 0.8 and rows[0]["interval_level"] == 0.9
    for row in rows:
        assert row["step_time_low_s"] < row["step_time_s"] < row["step_time_high_s"]
    assert rows[0]["same_as_rank"] is None
    assert all(row["same_as_rank"] is None or row["same_as_rank"] < row["rank"] for row in rows)
    assert any("12 runs on h100-sxm" in note for note in ours["request"]["notes"])


@pytest.mark.slow
def test_tables_show_intervals_and_ties(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --top 5 --calibration {calibration}")
    assert code == 0
    assert "a step (90%: " in out
    assert "2=" in out
    assert "not significantly slower than a better rank" in " ".join(out.split())
    strategy = ["--strategy", "dp8 mbs1 zero1"]
    assert main([*f"simulate llama3-8b {TRAINING} --calibration {calibration}".split(), *strategy]) == 0
    assert "90% of measured steps" in capsys.readouterr().out
    two = [*strategy, "--strategy", "dp8 mbs1 zero0"]
    assert main([*f"compare llama3-8b {TRAINING} --calibration {calibration}".split(), *two]) == 0
    assert "cannot distinguish the two" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_verbs_agree_on_a_calibrated_row(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["llama3-8b", *TRAINING.split(), "--calibration", str(calibration), "--json"]

    def document(verb: str, *words: str) -> dict[str, Any]:
        assert main([verb, *own, *words]) == 0
        return dict(json.loads(capsys.readouterr().out))

    best = document("search", "--gpus", "8", "--top", "1")["leaderboard"][0]
    strategy = ["--strategy", best["strategy"]]
    rows = {
        "simulate": document("simulate", *strategy),
        "explain": document("explain", *strategy)["row"],
        "compare": document("compare", *strategy, "--strategy", "tp2 dp4 mbs1 sp zero1")["rows"][0],
    }
    for verb, row in rows.items():
        for name in ("step_time_s", "step_time_low_s", "step_time_high_s"):
            assert row[name] == pytest.approx(best[name], rel=1e-9), (verb, name)


@pytest.mark.slow
def test_another_machine_is_refused(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = cli(
        capsys, f"search llama3-8b {TRAINING} --gpus 8 --framework nanotron --calibration {calibration}"
    )
    assert (code, out) == (2, "")
    assert "h100-sxm with megatron-lm" in err


@pytest.mark.slow
def test_nodes_that_differ_are_refused(calibration: Path) -> None:
    from forerun.search.measured.profiling import Profile

    context = request()
    group = NodeGroup(cluster=context.cluster, devices=8)
    mixed = dataclasses.replace(context, cluster=dataclasses.replace(context.cluster, groups=(group,)))
    with pytest.raises(RequestError, match="leave --calibration out"):
        read_calibration(calibration).applied(mixed)
    profile = Profile(source="p.yaml", device="h100-sxm", made={}, operators=(), collectives=(), skipped={})
    with pytest.raises(RequestError, match="leave --profile out"):
        profile.applied(mixed)


@pytest.mark.slow  # several calibrations
def test_more_runs_are_added(calibration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ours.yaml"
    out.write_text(calibration.read_text())
    more = write_runs(tmp_path / "more.csv", faster=FASTER, first=12, count=6)
    code, text, _ = cli(capsys, f"calibrate {more} --append --out {out} --json")
    assert code == 0
    document = json.loads(text)
    assert document["runs"] == 18
    assert sum(prior["share"] for prior in document["priors"]) == pytest.approx(1.0)
    wide = sum(prior["share"] for prior in document["priors"] if prior["constants"] == 1.0)
    assert wide > 0.9, "a machine that is a quarter slower lies as far from the catalogue as others do"
    assert len(read_calibration(out).runs) == 18
    code, _, err = cli(capsys, f"calibrate {more} --append --out {out}")
    assert code == 2
    assert "is in the calibration already" in err


@pytest.mark.slow
def test_validation_counts_what_lies_inside(
    calibration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = write_runs(tmp_path / "more.csv", faster=FASTER, first=12, count=6)
    code, out, _ = cli(capsys, f"validate {more} --calibration {calibration} --json")
    assert code == 0
    document = json.loads(out)
    assert document["calibration"] == {"runs": 6, "fitted": 0, "within_interval_pct": 100}
    assert document["overall"]["median_ape_pct"] < 8


@pytest.mark.slow  # several calibrations
def test_an_older_cost_model_asks_for_another_fit(
    calibration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.yaml"
    document = yaml.safe_load(calibration.read_text())
    document["made"]["cost_model"] = "0123456789abcdef"
    old.write_text(yaml.safe_dump(document))
    code, _, err = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --calibration {old}")
    assert code == 2
    assert "--append" in err
    assert cli(capsys, f"calibrate --append --out {old}")[0] == 0
    assert cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --calibration {old}")[0] == 0


@pytest.mark.slow
def test_a_file_of_an_earlier_form_asks_for_another_fit(
    calibration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.yaml"
    document = yaml.safe_load(calibration.read_text())
    document["calibration"] = 1
    del document["priors"]
    old.write_text(yaml.safe_dump(document))
    code, _, err = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --calibration {old}")
    assert code == 2
    assert "form 1, and this version reads form 2" in err
    assert f"forerun calibrate --append --out {old}" in err
    assert cli(capsys, f"calibrate --append --out {old}")[0] == 0
    assert yaml.safe_load(old.read_text())["priors"] == yaml.safe_load(calibration.read_text())["priors"]


@pytest.mark.slow
def test_what_was_read_believes_what_was_written(calibration: Path, tmp_path: Path) -> None:
    fitted = calibrate_files([write_runs(tmp_path / "runs.csv", faster=FASTER)], source="ours.yaml").calibration
    context = load_runs([tmp_path / "runs.csv"]).runs[0].context
    table = table_of(some_strategies(8))
    before, after = (
        posterior.believe([(posterior.applied(context), table)])
        for posterior in (fitted.posterior, read_calibration(calibration).posterior)
    )
    for one, other in ((before.time_s(), after.time_s()), *zip(before.reach(0.9), after.reach(0.9), strict=True)):
        np.testing.assert_allclose(other, one, rtol=1e-4)
    np.testing.assert_allclose(after.covariance, before.covariance, rtol=1e-3, atol=1e-8)


@pytest.mark.slow
def test_sweeps_are_calibrated_too(calibration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "models: llama3-8b\nclusters: dgx-h100\nworkloads: [{global_batch: 64, seq_len: 2048}]\nbudgets: [{gpus: 8}]\n"
    )
    steps = []
    for name, more in (("plain", ""), ("ours", f" --calibration {calibration}")):
        code, out, _ = cli(capsys, f"sweep {plan} --out {tmp_path / name} --workers serial --json{more}")
        assert code == 0
        steps.append(json.loads(out)["leaderboard"][0]["step_time_s"])
    assert steps[1] == pytest.approx(steps[0] / FASTER, rel=0.08)
    assert cli(capsys, f"sweep {plan} --out {tmp_path / 'plain'} --resume --calibration {calibration}")[0] == 2
    assert cli(capsys, f"sweep {plan} --out {tmp_path / 'none'} --profile {calibration}")[0] == 2


@pytest.mark.slow  # several fits and searches
def test_a_profile_and_a_calibration_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of a machine whose products take twice as long: all of it is in the profile, nothing is left to fit."""
    from forerun.search.measured.profiling import Line, Profile, operators_of, write_profile
    from forerun.search.measured.validate import load_runs, predict

    table, path = write_runs(tmp_path / "runs.csv"), tmp_path / "h100.yaml"
    runs = load_runs([table]).runs
    lines = [
        Line(name=one.name, shape=one.shape, seconds=2 * one.fitted_s, spread=0.0, fitted_s=one.fitted_s)
        for one in operators_of(runs[0].context, [run.strategy for run in runs])
    ]
    profile = Profile(
        source="h100.yaml", device="h100-sxm", made={}, operators=tuple(lines), collectives=(), skipped={}
    )
    write_profile(path, profile)
    context = profile.applied(runs[0].context)[0]
    slower = predict([dataclasses.replace(run, context=context) for run in runs]).step_time_s
    text = table.read_text()
    for run, seconds in zip(runs, slower, strict=True):
        text = text.replace(repr(run.step_time_s), repr(float(seconds)))
    table.write_text(text)
    errors = {}
    for name, more in (("plain", ""), ("profiled", f" --profile {path}")):
        code, out, _ = cli(capsys, f"calibrate {table} --out {tmp_path / name}.yaml --json{more}")
        assert code == 0
        errors[name] = json.loads(out)["error"]["before_median_pct"]
    assert errors["plain"] > 5
    assert errors["profiled"] < 0.1
    search = f"search llama3-8b {TRAINING} --gpus 8 --calibration {tmp_path / 'profiled.yaml'}"
    code, _, err = cli(capsys, search)
    assert code == 2
    assert "name that profile" in err
    assert cli(capsys, f"{search} --profile {path}")[0] == 0
    validate = f"validate {table} --profile {path} --json"
    code, out, _ = cli(capsys, validate)
    assert json.loads(out)["overall"]["median_ape_pct"] < 0.1
    assert cli(capsys, f"{validate} --calibration {tmp_path / 'profiled.yaml'}")[0] == 0
    assert cli(capsys, f"{validate} --calibration {tmp_path / 'plain.yaml'}")[0] == 2


BROKEN = {
    "not YAML": ("{", "line"),
    "another document": ("axes: {tp: [1]}", "unknown key"),
    "nothing": ("", "is empty"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, reason = BROKEN[case]
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    code, out, err = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --calibration {path}")
    assert (code, out) == (2, "")
    assert "broken.yaml" in err
    assert reason in err


@pytest.mark.slow
def test_numbers_that_do_not_fit_together_are_named(
    calibration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = yaml.load(calibration.read_text(), yaml.CSafeLoader)
    for change, reason in (
        (lambda d: d["evidence"]["error"].pop(), "one entry for each of 12 runs"),
        (lambda d: d["evidence"]["slopes"][0].pop(), "same length"),
        (lambda d: d["evidence"]["weight"].__setitem__(0, 0.0), "evidence.weight.0: this must be at least 1e-12"),
        (lambda d: d["priors"][3].update(share=0.9), "add up to 1"),
        (lambda d: d["priors"][3].update(noise=0.0), "priors.3.noise: this must be at least"),
        (lambda d: d["priors"][4].update(constants=2.5e17), "priors.4.constants: this must be at most"),
        (lambda d: d["priors"][3]["weight"].pop(), "for each of 12 runs"),
        (lambda d: d["priors"].clear(), "priors: this list is too short; the least is 1"),
        (lambda d: d["constants"].__setitem__("warp", d["constants"].pop("compute")), "unknown constant"),
        (lambda d: d["evidence"]["error"].__setitem__(0, float("nan")), "finite"),
    ):
        document = copy.deepcopy(whole)
        change(document)
        path = tmp_path / "changed.yaml"
        path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
        code, _, err = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --calibration {path}")
        assert code == 2, err
        assert reason in err


def test_bad_requests_end_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, runs = tmp_path / "ours.yaml", write_runs(tmp_path / "runs.csv")
    other = write_runs(tmp_path / "other.csv", framework="nanotron", run_id="other-1", count=1)
    for words, reason in (
        (f"calibrate --out {out}", "at least one table"),
        (f"calibrate {runs} --append --out {out}", "leave --append out"),
        (f"calibrate {runs} {other} --out {out}", "--where device=NAME"),
        (f"calibrate {runs} --where device=h200 --out {out}", "unknown value of device"),
        (f"calibrate {runs} --where gpu=8 --out {out}", "unknown column"),
        (f"calibrate {runs} --where device --out {out}", "COLUMN=VALUE"),
        (f"calibrate {runs} --out {tmp_path / 'ours.json'}", ".yaml"),
        (f"calibrate {tmp_path / 'none.csv'} --out {out}", "none.csv"),
    ):
        code, text, err = cli(capsys, words)
        assert (code, text) == (2, ""), err
        assert reason in err
    assert cli(capsys, f"calibrate {runs} {other} --where framework=megatron-lm --out {out}")[0] == 0
    code, _, err = cli(capsys, f"calibrate {runs} --out {out}")
    assert code == 2
    assert "--force" in err


def test_names_of_the_message_choose_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    """The tables' column has the name of a part, the message that of the device as it is predicted."""
    table = Path(__file__).parents[2] / "benchmarks" / "measured" / "torchtitan.csv"
    name = "h100-sxm-500w"
    assert f"{name} with torchtitan" in cli(capsys, f"calibrate {table} --out none.yaml")[2]
    code, _, err = cli(capsys, f"calibrate {table} --where device={name} --where layers=1 --out none.yaml")
    assert code == 2
    assert "unknown value of layers" in err  # the device was found
