"""Fit the constants of a machine to measured runs, and say which run to measure next."""

from forerun.search.calibrate.checking import calibrated_runs, coverage, profiled_runs
from forerun.search.calibrate.choose import RULES, Proposal, expected_regret, propose
from forerun.search.calibrate.document import Calibration, read_calibration, write_calibration
from forerun.search.calibrate.fitting import Calibrated, calibrate_files, calibrate_runs
from forerun.search.calibrate.loop import Chosen, Step, measure_and_choose
from forerun.search.calibrate.machine import Machine
from forerun.search.calibrate.next_runs import CANDIDATES, NextRun, NextRuns, launches, next_runs, results_table

__all__ = [
    "CANDIDATES",
    "RULES",
    "Calibrated",
    "Calibration",
    "Chosen",
    "Machine",
    "NextRun",
    "NextRuns",
    "Proposal",
    "Step",
    "calibrate_files",
    "calibrate_runs",
    "calibrated_runs",
    "coverage",
    "expected_regret",
    "launches",
    "measure_and_choose",
    "next_runs",
    "profiled_runs",
    "propose",
    "read_calibration",
    "results_table",
    "write_calibration",
]
