"""Exploration of spaces that cannot be enumerated: samplers behind one contract, and the driver that asks them."""

from forerun.search.explore.samplers.contract import Evaluation, Sampler
from forerun.search.explore.samplers.driver import Exploration, StopConditions, explore
from forerun.search.explore.samplers.registry import SAMPLERS, Exploring, limits_of, sampler_named

__all__ = [
    "SAMPLERS",
    "Evaluation",
    "Exploration",
    "Exploring",
    "Sampler",
    "StopConditions",
    "explore",
    "limits_of",
    "sampler_named",
]
