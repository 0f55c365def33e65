"""Operator graphs are calibrated as transformers are: the same file, notes, intervals and verbs."""

import csv
import json
from pathlib import Path

import pytest
from forerun_cli import cli

from forerun.search.cli import main
from forerun.search.measured.calibrate import calibrate_files, read_calibration, write_calibration
from forerun.search.measured.validate import load_runs
from forerun.simulator import score, table_for
from forerun.simulator.calibration import calibrated
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.errors import RequestError

COLUMNS = (
    "run_id,device,gpus,model,layers,hidden,heads,seq_len,precision,framework,dp,tp,pp,micro_batch,global_batch,"
    "step_time_s,outcome,cluster,strategy"
).split(",")
RUNS = (
    *((split, 16) for split in ("data1", "data2", "data4", "data8", "data16")),
    *((split, 1024) for split in ("data4", "data8", "data16", "data16 mixed", "data4 filter2", "data4 spatial2")),
)
TRUTH = {"compute": -2.0, "scale_up_bandwidth": -1.5}
"""The machine of these tests: its convolutions take a quarter longer, its links inside a node half again as long."""
RESNET = "resnet50 --cluster dgx1-v100 --precision fp32 --global-batch 512"


def write_table(path: Path) -> Path:
    """Write the runs of a machine of ``TRUTH``, and return their path."""

    def written(seconds: list[float]) -> None:
        with path.open("w", encoding="utf-8", newline="") as stream:
            lines = csv.DictWriter(stream, fieldnames=COLUMNS, restval="")
            lines.writeheader()
            for number, ((split, batch), step_s) in enumerate(zip(RUNS, seconds, strict=True)):
                devices = split_devices(split)
                lines.writerow(
                    {
                        "run_id": f"lab-{number:02}",
                        "device": "v100-sxm2-32",
                        "gpus": devices,
                        "model": "alexnet",
                        "precision": "fp32",
                        "framework": "pytorch-ddp",
                        "global_batch": batch,
                        "step_time_s": step_s,
                        "outcome": "ok",
                        "cluster": "dgx1-v100",
                        "strategy": split,
                    }
                )

    written([1.0] * len(RUNS))
    runs = load_runs([path], graphs=True).runs
    assert len(runs) == len(RUNS)
    steps = [score(calibrated(r.context, TRUTH), table_for(r.context, [r.strategy])).step_time_s[0] for r in runs]
    written([float(step) for step in steps])
    return path


def split_devices(split: str) -> int:
    """Return the devices of a split's name: the numbers of its words, but for its segments."""
    found = 1
    for word in split.split():
        digits = word.lstrip("abcdefghijklmnopqrstuvwxyz")
        found *= int(digits) if digits and not word.startswith("segments") else 1
    return found


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("machine") / "runs.csv")


@pytest.fixture(scope="module")
def calibration(table: Path) -> Path:
    out = table.parent / "ours.yaml"
    write_calibration(out, calibrate_files([table], source="ours.yaml", where=["framework=pytorch-ddp"]).calibration)
    return out


def test_a_framework_without_runs_names_those_with_runs(table: Path) -> None:
    with pytest.raises(RequestError, match="pytorch-ddp"):
        calibrate_files([table], where=["framework=horovod"])


@pytest.mark.slow
def test_constants_of_a_known_machine_are_found(calibration: Path, tmp_path: Path) -> None:
    read = read_calibration(calibration)
    again = tmp_path / "again.yaml"
    write_calibration(again, read)
    assert read_calibration(again).posterior.z == read.posterior.z
    moved = {one.constant.name: one.z for one in read.constants if one.refused is None}
    assert moved["compute"] == pytest.approx(TRUTH["compute"], abs=0.4)
    assert moved["scale_up_bandwidth"] == pytest.approx(TRUTH["scale_up_bandwidth"], abs=0.4)
    assert read.error["before_median_pct"] > 15
    assert read.error["left_out_median_pct"] < 5
    assert (read.machine.device, read.machine.framework) == ("v100-sxm2-32", "pytorch-ddp")
    assert not {one.constant.name for one in read.constants} & {"host_layer", "p2p_fixed", "collective_start"}


@pytest.mark.slow
def test_a_network_that_was_not_measured_is_predicted_on_that_machine(calibration: Path) -> None:
    posterior = read_calibration(calibration).posterior
    for run in load_runs([calibration.parent / "runs.csv"], graphs=True).runs[:1]:
        context = run.context
        assert isinstance(context, GraphContext)
        split = [run.strategy]
        truth, plain, ours = (
            score(one, table_for(one, split))
            for one in (calibrated(context, TRUTH), context, posterior.applied(context))
        )
        assert ours.step_time_s == pytest.approx(truth.step_time_s, rel=0.03)
        assert plain.step_time_s != pytest.approx(truth.step_time_s, rel=0.1)
        assert sum(ours.time_s.values()) == pytest.approx(ours.step_time_s)


@pytest.mark.slow
def test_a_leaderboard_says_how_sure_it_is(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(cli(capsys, f"search {RESNET} --gpus 4..8 --calibration {calibration} --json")[1])
    rows = found["leaderboard"]
    assert all(row["step_time_low_s"] < row["step_time_s"] < row["step_time_high_s"] for row in rows)
    assert {row["interval_level"] for row in rows} == {0.9}
    assert any(f"{len(RUNS)} runs on v100-sxm2-32 with pytorch-ddp" in note for note in found["request"]["notes"])
    assert any("memory of operator graphs is not calibrated" in note for note in found["request"]["notes"])


@pytest.mark.slow
def test_verbs_agree_on_a_calibrated_row(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = f"{RESNET} --calibration {calibration} --json"
    board = json.loads(cli(capsys, f"search {own} --gpus 8 --top 1")[1])["leaderboard"][0]
    for verb in ("simulate", "explain"):
        code, out, _ = cli(capsys, f"{verb} {own} --strategy", board["strategy"])
        assert code == 0
        row = json.loads(out)["row"]
        assert row["step_time_s"] == board["step_time_s"]
        assert row["step_time_low_s"] == board["step_time_low_s"]
    events = json.loads(cli(capsys, f"simulate {own} --fidelity events --strategy", board["strategy"])[1])["row"]
    assert events["step_time_s"] == pytest.approx(board["step_time_s"], rel=0.05)


@pytest.mark.slow  # an operator graph cut along its axes, for every constant
def test_a_mixture_has_its_interval_too(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"explain {RESNET} --calibration {calibration} --json --strategy".split()
    assert main([*words, "data8, linear*: filter8"]) == 0
    row = json.loads(capsys.readouterr().out)["row"]
    assert row["step_time_low_s"] < row["step_time_s"] < row["step_time_high_s"]


@pytest.mark.slow  # brings the whole of improve
def test_buckets_are_searched_on_the_calibrated_machine(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "improve alexnet --cluster dgx1-v100 --precision fp32 --gpus 8 --batch 64 --json"
    plain, ours = (json.loads(cli(capsys, f"{words}{more}")[1]) for more in ("", f" --calibration {calibration}"))
    assert ours["default_step_time_s"] > 1.1 * plain["default_step_time_s"]
    assert any("its constants count here" in note for note in ours["notes"])


@pytest.mark.slow  # a fit of its own
def test_runs_are_validated_with_it_and_more_are_added(
    calibration: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(cli(capsys, f"validate {table} --calibration {calibration} --json")[1])
    assert found["calibration"] == {"runs": len(RUNS), "fitted": len(RUNS)}
    code, _, err = cli(capsys, f"calibrate {table} --append --out {calibration}")
    assert code == 2
    assert "is in the calibration already" in err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("--framework horovod", "was fitted to runs on v100-sxm2-32 with pytorch-ddp"),
        ("--cluster dgx-a100-80 --precision fp16", "this request is for a100-sxm4-80 with pytorch-ddp"),
    ],
)
def test_another_machine_is_refused(
    calibration: Path, capsys: pytest.CaptureFixture[str], change: str, words: str
) -> None:
    base = "simulate alexnet --cluster dgx1-v100 --global-batch 512 --strategy data8 --calibration"
    code, _, err = cli(capsys, f"{base} {calibration} {change}")
    assert code == 2
    assert words in " ".join(err.split())
