"""Constants of a machine, fitted to measured runs, and how sure predictions are."""

from forerun.simulator.calibration.constants import CONSTANTS, NAMES, Constant, calibrated, constant_named
from forerun.simulator.calibration.fit import Fit, Fitted, Measured, by_context, fit
from forerun.simulator.calibration.memory import (
    FittedFactor,
    MemoryBounds,
    MemoryFit,
    MemoryPosterior,
    MemoryRun,
    fit_memory,
)
from forerun.simulator.calibration.memory_factors import FACTORS
from forerun.simulator.calibration.posterior import Belief, Evidence, Posterior, nothing_measured
from forerun.simulator.calibration.residual import USUAL, Settings

__all__ = [
    "CONSTANTS",
    "FACTORS",
    "NAMES",
    "USUAL",
    "Belief",
    "Constant",
    "Evidence",
    "Fit",
    "Fitted",
    "FittedFactor",
    "Measured",
    "MemoryBounds",
    "MemoryFit",
    "MemoryPosterior",
    "MemoryRun",
    "Posterior",
    "Settings",
    "by_context",
    "calibrated",
    "constant_named",
    "fit",
    "fit_memory",
    "nothing_measured",
]
