"""Files for later searches: rows of ``runs.csv`` and a calibration."""

from pathlib import Path
from typing import TYPE_CHECKING

from forerun.search.board.requested import NextRun
from forerun.search.tune.candidates import TuningCandidates
from forerun.search.tune.folder import CALIBRATION, TABLE, TuneFolder
from forerun.search.tune.proposals import run_cells
from forerun.search.tune.run import RunState
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.measured.calibrate import Calibrated


def record_run(folder: TuneFolder, candidates: TuningCandidates, state: RunState) -> None:
    """Add a finished run to ``runs.csv``, unless the user interrupted it."""
    result, row = state.result, candidates.rows.get(state.run.strategy)
    if result is None or row is None or result.status == "interrupted":
        return
    (cells,) = run_cells(candidates.setting, [NextRun(row=row, gain=state.run.gain)])
    outcome = "ok" if result.measured else "oom" if result.status == "oom" else "failed"
    cells |= {
        "run_id": f"{cells['run_id'].rpartition('-')[0]}-{state.run.name}",
        "source": "forerun tune",
        "outcome": outcome,
        "step_time_s": f"{result.step_s:.6g}" if outcome == "ok" else "",
        "peak_mem_gib": f"{result.peak_gib:.6g}" if result.peak_gib and outcome == "ok" else "",
        "notes": result.text,
    }
    folder.tabulate(cells)


def calibrate_folder(folder: Path) -> "Calibrated | None":
    """Fit the runs of a folder and write ``calibration.yaml``; None without a successful run.

    Raises
    ------
    RequestError
        The file cannot be written.
    """
    from forerun.search.measured.calibrate import calibrate_files, write_calibration

    table = folder / TABLE
    if not table.exists():
        return None
    try:
        calibrated = calibrate_files([table], source=CALIBRATION)
    except RequestError:  # every run failed
        return None
    write_calibration(folder / CALIBRATION, calibrated.calibration)
    return calibrated
