"""Fit the constants of a machine to measured runs, and say which run to measure next."""

from forerun.search.calibrate.checking import calibrated_runs, coverage
from forerun.search.calibrate.choose import RULES, Proposal, expected_regret, propose
from forerun.search.calibrate.document import Calibration, read_calibration, write_calibration
from forerun.search.calibrate.fitting import Calibrated, calibrate_files, calibrate_runs
from forerun.search.calibrate.machine import Machine

__all__ = [
    "RULES",
    "Calibrated",
    "Calibration",
    "Machine",
    "Proposal",
    "calibrate_files",
    "calibrate_runs",
    "calibrated_runs",
    "coverage",
    "expected_regret",
    "propose",
    "read_calibration",
    "write_calibration",
]
