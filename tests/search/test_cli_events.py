"""``simulate --fidelity events``: the same row, the stages besides, a picture and a trace."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from forerun_measured import write_runs

from forerun.search.cli import main

REQUEST = ["simulate", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "16", "--seq-len", "2048"]
STRATEGY = ["--strategy", "tp2 pp4 dp2 mbs1 zero1 sp"]
EVENTS = ["--fidelity", "events"]


def test_the_row_has_the_same_keys_and_the_stages_besides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST, *STRATEGY, "--json"]) == 0
    analytic = json.loads(capsys.readouterr().out)
    assert main([*REQUEST, *STRATEGY, *EVENTS, "--json"]) == 0
    events = json.loads(capsys.readouterr().out)

    assert list(events) == [*analytic, "events"]
    assert len(events["events"]["stages"]) == 4
    assert events["step_time_s"] == pytest.approx(analytic["step_time_s"], rel=0.03)
    assert sum(events["breakdown_s"].values()) == pytest.approx(events["step_time_s"])


@pytest.mark.slow
def test_contention_names_the_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST, *STRATEGY, *EVENTS, "--contention", "--json"]) == 0
    events = json.loads(capsys.readouterr().out)

    assert events["events"]["step_time_s"] == pytest.approx(events["step_time_s"])
    assert events["events"]["replicas"] == [2]
    assert events["events"]["links"][0]["utilisation"] > 0


def step_of(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main([*REQUEST, *STRATEGY, *EVENTS, "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_replicas_may_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """One by one they give what one gives; a straggler and jitter slow all, the same way every time."""
    plain, apart = step_of(capsys), step_of(capsys, "--every-replica")
    slow = step_of(capsys, "--slow", "5=1.5")
    jitter = [step_of(capsys, "--jitter", "0.1", "--seed", seed)["step_time_s"] for seed in ("1", "1", "2")]
    default = [step_of(capsys, "--jitter", "0.1", *seed)["step_time_s"] for seed in ((), ("--seed", "0"))]

    assert apart["step_time_s"] == pytest.approx(plain["step_time_s"], rel=1e-9)
    assert [len(one["events"]["stages"]) for one in (plain, apart, slow)] == [4, 8, 8]
    assert slow["step_time_s"] > 1.05 * plain["step_time_s"]
    assert slow["step_time_s"] == slow["events"]["step_time_s"]
    assert slow["events"]["slowest_stage"] == 5
    assert jitter[0] == jitter[1] != jitter[2] > plain["step_time_s"]
    assert default[0] == default[1] != jitter[0]


def test_the_timeline_is_drawn_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "step.json.gz"

    assert main([*REQUEST, *STRATEGY, *EVENTS, "--trace", str(trace)]) == 0
    assert "stage 3  " in capsys.readouterr().out
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_measured_runs_are_predicted_event_by_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both levels and contention predict the same rows, the levels not quite alike."""
    files = [str(write_runs(tmp_path / "runs.csv", {"layers": "13"}))]
    means = []
    for more in ([], EVENTS, [*EVENTS, "--contention"]):
        assert main(["validate", *files, *more, "--json"]) == 0
        means.append(json.loads(capsys.readouterr().out)["overall"]["mape_pct"])

    assert means[1] == pytest.approx(means[0], abs=3.0)
    assert means[0] != means[1]
    assert main(["validate", *files, "--contention"]) == 2
    assert "--contention needs --fidelity events" in capsys.readouterr().err
