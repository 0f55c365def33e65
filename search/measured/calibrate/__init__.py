"""Fit the constants of a machine to measured runs."""

from forerun.search.measured.calibrate.checking import calibrated_runs, coverage, profiled_runs
from forerun.search.measured.calibrate.document import Calibration, read_calibration, write_calibration
from forerun.search.measured.calibrate.fitting import Calibrated, calibrate_files, calibrate_runs
from forerun.search.measured.calibrate.machine import Machine

__all__ = [
    "Calibrated",
    "Calibration",
    "Machine",
    "calibrate_files",
    "calibrate_runs",
    "calibrated_runs",
    "coverage",
    "profiled_runs",
    "read_calibration",
    "write_calibration",
]
