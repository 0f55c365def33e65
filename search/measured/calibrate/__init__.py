"""Fit the constants of a machine to measured runs."""

from forerun.search.measured.calibrate.checking import calibrated_runs, coverage, profiled_runs
from forerun.search.measured.calibrate.document import read_calibration, write_calibration
from forerun.search.measured.calibrate.fitting import Calibrated, calibrate_files

__all__ = [
    "Calibrated",
    "calibrate_files",
    "calibrated_runs",
    "coverage",
    "profiled_runs",
    "read_calibration",
    "write_calibration",
]
