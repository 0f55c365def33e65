"""Constants of a machine fitted to measured runs, and the uncertainty of predictions.

Shapes: N measured runs; M strategies to predict (N where there is only one set); C constants; K priors; for the
similarity of strategies (``residual``): F numbers, P parts of the step and W words.
"""

from forerun.simulator.calibration.belief import Belief, Components
from forerun.simulator.calibration.constants import CONSTANTS, NAMES, calibrated, constant_named
from forerun.simulator.calibration.evidence import Evidence
from forerun.simulator.calibration.fit import Fit, FittedConstant, FittedRun, fit
from forerun.simulator.calibration.memory import FittedFactor, MemoryFit, MemoryRun, fit_memory
from forerun.simulator.calibration.memory_factors import FACTORS
from forerun.simulator.calibration.memory_posterior import MemoryPosterior
from forerun.simulator.calibration.mixture import PRIORS, Prior, PriorMixture
from forerun.simulator.calibration.posterior import Posterior, nothing_measured
from forerun.simulator.calibration.residual import USUAL

__all__ = [
    "CONSTANTS",
    "FACTORS",
    "NAMES",
    "PRIORS",
    "USUAL",
    "Belief",
    "Components",
    "Evidence",
    "Fit",
    "FittedConstant",
    "FittedFactor",
    "FittedRun",
    "MemoryFit",
    "MemoryPosterior",
    "MemoryRun",
    "Posterior",
    "Prior",
    "PriorMixture",
    "calibrated",
    "constant_named",
    "fit",
    "fit_memory",
    "nothing_measured",
]
