"""Bounds of work: what is just below one is done in seconds, what is above is refused before it is begun."""

import json
from pathlib import Path

import pytest
from forerun_cli import cli

from forerun.search.cli import main
from forerun.simulator.events.step import strategy_step
from forerun.simulator.replay.readers import texts
from forerun.spaces.errors import RequestError

STEP = "simulate llama3-8b --cluster dgx-h100 --fidelity events --seq-len 1024 --json".split()


@pytest.mark.parametrize(
    "flags,strategy,words",
    [
        (["--global-batch", "100000"], "pp4 dp2 mbs1", "at most 100,000 passes, but this one has 400,000;"),
        (
            ["--every-replica", "--contention", "--global-batch", "8000"],
            "pp4 dp2000 mbs1",
            "20,000 passes whose traffic shares links, but this one has 64,000 (2,000 pipelines)",
        ),
        (["--every-replica", "--global-batch", "80000"], "pp4 dp2000 mbs1", "(2,000 pipelines)"),
    ],
)
def test_steps_beyond_the_bound_are_refused_at_once(
    flags: list[str], strategy: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STEP, *flags, "--strategy", strategy]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow  # ten seconds
@pytest.mark.parametrize(
    "flags,strategy",
    [
        (["--global-batch", "24990"], "pp4 dp2 mbs1"),
        (["--every-replica", "--contention", "--global-batch", "2496"], "pp4 dp312 mbs1"),
    ],
)
def test_steps_just_below_the_bound_are_simulated(
    flags: list[str], strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STEP, *flags, "--strategy", strategy]) == 0


def test_names_of_a_trace_are_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(texts, "MOST_TEXTS", 50)
    for count, code in ((50, 0), (51, 2)):
        events = [
            {"ph": "X", "name": f"FW.op{n}", "pid": "host0.rank0", "ts": 20 * n, "dur": 10, "args": {"step": 0}}
            for n in range(count)
        ]
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps({"traceEvents": events}))
        found, _, err = cli(capsys, f"replay {path}")
        assert (found == 2 and "different names" in err) is (code == 2), err


def test_the_bound_counts_all_pipelines() -> None:
    class Shape:
        pp, vpp, microbatches = 4, 1, 100

    class Costs:
        shape = Shape()

    strategy_step.check_passes(Costs(), 125, shared=False)  # type: ignore[arg-type]  # its shape alone is looked at
    with pytest.raises(RequestError, match="100,800"):
        strategy_step.check_passes(Costs(), 126, shared=False)  # type: ignore[arg-type]  # likewise
