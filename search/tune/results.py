"""Files for later searches: rows of ``runs.csv`` and a calibration."""

from pathlib import Path
from typing import TYPE_CHECKING

from forerun.search.tune.candidates import TuningCandidates
from forerun.search.tune.folder import CALIBRATION, TABLE, TuneFolder
from forerun.search.tune.proposals import COLUMNS, run_cells
from forerun.search.tune.run import RunState
from forerun.spaces.errors import RequestError
from forerun.spaces.files import csv_text, write_text

if TYPE_CHECKING:
    from forerun.search.measured.calibrate import Calibrated


def write_runs(folder: TuneFolder, candidates: TuningCandidates) -> None:
    """Write the finished runs to ``runs.csv``, without runs that the user interrupted.

    Raises
    ------
    RequestError
        The file cannot be written.
    """
    finished = [state for state in folder.states.values() if state.outcome and state.run.strategy in candidates.rows]
    write_text(folder.path / TABLE, csv_text(COLUMNS, [_cells(candidates, state) for state in finished]))


def _cells(candidates: TuningCandidates, state: RunState) -> dict[str, str]:
    """Return the cells of a finished run."""
    result, row = state.result, candidates.rows[state.run.strategy]
    assert result is not None
    measured = {"step_time_s": result.step_s, "peak_mem_gib": result.peak_gib} if result.measured else {}
    return {
        **run_cells(candidates.setting, row, state.run.number),
        "source": "forerun tune",
        "outcome": "ok" if result.measured else "oom" if result.status == "oom" else "failed",
        **{column: f"{value:.6g}" for column, value in measured.items() if value},
        "notes": result.text,
    }


def calibrate_folder(folder: Path) -> "Calibrated | None":
    """Fit the runs of a folder and write ``calibration.yaml``; return None without a successful run.

    Raises
    ------
    RequestError
        The file cannot be written.
    """
    from forerun.search.measured.calibrate import calibrate_files, write_calibration

    try:
        calibrated = calibrate_files([folder / TABLE], source=CALIBRATION)
    except RequestError:  # every run failed
        return None
    write_calibration(folder / CALIBRATION, calibrated.calibration)
    return calibrated
