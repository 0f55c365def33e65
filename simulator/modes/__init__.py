"""Data-parallel training modes: synchronous and asynchronous, all-reduce and parameter servers, stragglers."""

from forerun.simulator.modes.analytic import analytic_prediction
from forerun.simulator.modes.curve import Curve, one_worker_step_s, throughput_curve
from forerun.simulator.modes.mode import MODES, TrainingMode
from forerun.simulator.modes.network import ModeNetwork, NicNetwork
from forerun.simulator.modes.prediction import ModePrediction
from forerun.simulator.modes.profile import GradientLayer, GradientProfile

__all__ = [
    "MODES",
    "Curve",
    "GradientLayer",
    "GradientProfile",
    "ModeNetwork",
    "ModePrediction",
    "NicNetwork",
    "TrainingMode",
    "analytic_prediction",
    "one_worker_step_s",
    "throughput_curve",
]
