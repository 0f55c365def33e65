"""``simulate --fidelity events``: the same row, the stages besides, a picture and a trace."""

import gzip
import json
from pathlib import Path

import pytest

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


def test_contention_names_the_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST, *STRATEGY, *EVENTS, "--contention", "--json"]) == 0
    events = json.loads(capsys.readouterr().out)

    assert events["events"]["step_time_s"] == pytest.approx(events["step_time_s"])
    assert events["events"]["replicas"] == [2]
    assert events["events"]["links"][0]["utilisation"] > 0


def test_the_timeline_is_drawn_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "step.json.gz"

    assert main([*REQUEST, *STRATEGY, *EVENTS, "--trace", str(trace)]) == 0
    assert "stage 3  " in capsys.readouterr().out
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "step.json"], "--trace needs --fidelity events"),
        ([*EVENTS, "--trace", "/nowhere/step.json"], "cannot write /nowhere/step.json"),
        (["--contention"], "--contention needs --fidelity events"),
        (["--fidelity", "exact"], "invalid choice"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST, *STRATEGY, *arguments]) == 2
    out, err = capsys.readouterr()

    assert out == ""
    assert message in err
