"""The risk of running out where runs calibrated memory: the curve moves by what they taught, and all say the same."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from forerun_machines import write_runs

from forerun.search import search, search_request, simulate
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.low_oom_risk import safer_note
from forerun.search.board.rows import MAY_NOT_FIT_MARK, TIGHT_MARK
from forerun.search.cli import main
from forerun.search.measured.calibrate import calibrate_files, write_calibration
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.simulator import score
from forerun.simulator.events import event_scores
from forerun.simulator.memory.risk import RISKY, CalibratedPeaks, oom_risk
from forerun.spaces.strategies import parse_strategy, table_of

FULLER = 1.25
TRAINING = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 2048}
FEW = {"vpp": ["1"], "cp": ["1"], "mbs": ["1", "2", "4", "8"], "recompute": ["none", "full"]}
ASKED = {**TRAINING, "gpus": "8", "overrides": FEW}


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a calibration by runs whose peaks were a quarter above the catalogue's."""
    folder = tmp_path_factory.mktemp("fuller")
    runs = write_runs(folder / "runs.csv", fuller=FULLER)
    write_calibration(folder / "ours.yaml", calibrate_files([runs], source="ours.yaml").calibration)
    return str(folder / "ours.yaml")


def setting(calibration: str | None, risk: float | None = None, model: str = "llama3-8b") -> Setting:
    return resolve(Request(model=model, **TRAINING, gpus="8", calibration=calibration, oom_risk=risk))


def peaks(share: float, *, needed: float | None = None, left: float = 1.0, scale: float = 1.0) -> CalibratedPeaks:
    return CalibratedPeaks(
        peak=np.array([share]), needed=np.array([needed or share]), left=np.array([left]), scale=scale
    )


@pytest.mark.parametrize("share", [0.6, 0.9, 1.0, 1.2])
def test_where_runs_taught_nothing_the_risk_is_that_of_published_runs(share: float) -> None:
    assert peaks(share).oom_risk()[0] == pytest.approx(oom_risk(share), rel=1e-9)


def test_a_surer_peak_is_surer_to_fit_and_surer_not_to() -> None:
    below, above = ([float(peaks(share, left=left).oom_risk()[0]) for left in (1.0, 0.5, 0.05)] for share in (0.8, 1.2))
    assert below == sorted(below, reverse=True)
    assert above == sorted(above)
    assert peaks(0.8, left=0.5, scale=3.0).oom_risk()[0] > peaks(0.8, left=0.5).oom_risk()[0]


def test_idle_buffers_count_as_far_as_runs_leave_peaks_unsure() -> None:
    """They are given back before anything fails; the published curve counts them, and holds where nothing is known."""
    unsure, sure = (float(peaks(1.0, needed=0.85, left=left).oom_risk()[0]) for left in (1.0, 0.1))
    assert unsure == pytest.approx(oom_risk(1.0), rel=1e-9)
    assert sure < oom_risk(0.9)


@pytest.mark.parametrize("risk", [0.01, 0.1, 0.6])
def test_a_factor_leads_to_its_risk(risk: float) -> None:
    one = peaks(0.93, needed=0.88, left=0.4, scale=1.3)
    factor = float(one.factor_to(risk)[0])
    moved = dataclasses.replace(one, peak=one.peak * factor, needed=one.needed * factor)
    assert moved.oom_risk()[0] == pytest.approx(risk, rel=1e-9)


def test_strategies_like_no_run_have_about_the_risk_of_published_runs(tmp_path: Path) -> None:
    """Runs of a small model that said what was expected, and a model of 70 billion parameters over many stages."""
    out = tmp_path / "as-expected.yaml"
    write_calibration(out, calibrate_files([write_runs(tmp_path / "runs.csv", fuller=1.0, count=2)]).calibration)
    context = resolve(Request(model="llama3-70b", **TRAINING, gpus="128", calibration=str(out))).context
    far = [parse_strategy(f"tp8 pp{pp} dp{16 // pp} mbs1 zero1 sp recompute=full") for pp in (4, 8)]
    scores = score(context, table_of(far))
    assert scores.oom_risk is not None
    shares = scores.peak_memory_bytes / context.cluster.device.memory_bytes
    published = np.array([oom_risk(share) for share in shares])
    logits = [np.log(risk / (1 - risk)) for risk in (scores.oom_risk, published)]
    assert np.abs(logits[0] / logits[1] - 1).max() < 0.1


@pytest.mark.slow  # every candidate
def test_a_search_keeps_below_the_calibrated_risk_and_loses_nothing_else(calibration: str) -> None:
    whole = search("llama3-8b", **ASKED, top=3000, calibration=calibration, all_variants=True)
    bounded = search("llama3-8b", **ASKED, top=3000, calibration=calibration, oom_risk=0.05, all_variants=True)
    kept = [row.strategy for row in whole.rows if row.oom_risk <= 0.05]

    assert 0 < len(kept) < len(whole.rows) < 3000
    assert [row.strategy for row in bounded.rows] == kept
    assert all(row.fits and row.peak_memory_gib <= row.memory_limit_gib for row in bounded.rows)
    assert {row.step_time_s for row in bounded.rows} <= {row.step_time_s for row in whole.rows}
    # The curve of published runs would have kept others.
    generic = [
        row.strategy for row in whole.rows if oom_risk(row.peak_memory_gib / whole.rows[0].memory_limit_gib) <= 0.05
    ]
    assert generic != kept


@pytest.mark.slow
def test_marks_say_what_the_risk_says(calibration: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = search("llama3-8b", **ASKED, top=500, calibration=calibration, all_variants=True).rows
    assert {MAY_NOT_FIT_MARK in row.marks for row in rows} == {True, False}
    assert all((MAY_NOT_FIT_MARK in row.marks) == (row.oom_risk > RISKY) for row in rows)
    assert not any(TIGHT_MARK in row.marks for row in rows)

    risky = next(row for row in rows if MAY_NOT_FIT_MARK in row.marks)
    alone = simulate("llama3-8b", strategy=risky.strategy, **TRAINING, calibration=calibration)
    assert alone.oom_risk == pytest.approx(risky.oom_risk, rel=1e-9)
    words = "simulate llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 2048".split()
    assert main([*words, "--strategy", risky.name, "--calibration", calibration]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"OOM risk {risky.oom_risk:.0%}, by the calibration" in text


@pytest.mark.slow
def test_the_safe_row_that_is_named_is_safe_by_the_calibration(calibration: str) -> None:
    request = Request(model="llama3-8b", **ASKED, top=2000, calibration=calibration, all_variants=True)
    rows = search_request(request).rows
    risky, safe = max(rows, key=lambda row: row.oom_risk), next(row for row in rows if row.oom_risk <= RISKY)
    (note,) = safer_note(resolve(request), (risky,), NoteSearch())

    assert note.startswith(f"safest: {safe.name} on 8 GPUs, {safe.oom_risk:.0%} OOM risk")


@pytest.mark.slow
def test_both_levels_hold_rows_to_the_risk(calibration: str) -> None:
    rows = search("llama3-8b", **ASKED, top=500, calibration=calibration, all_variants=True).rows
    risky = max(rows, key=lambda row: row.oom_risk)
    table = table_of([risky.strategy])
    fits = [bool(event_scores(setting(calibration, risk).context, table).fits[0]) for risk in (None, 0.01)]
    assert fits == [True, False]
    again = event_scores(setting(calibration).context, table)
    assert again.oom_risk is not None and again.oom_risk[0] > RISKY


def test_where_nothing_is_that_safe_the_least_risk_is_named(
    calibration: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "search llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 2048 --gpus 8 --set recompute=none"
    assert (
        main(
            [
                *words.split(),
                "--set",
                "tp=1",
                "--set",
                "zero=0",
                "--calibration",
                calibration,
                "--oom-risk",
                "0.000001%",
            ]
        )
        == 3
    )
    assert "--oom-risk " in capsys.readouterr().err
