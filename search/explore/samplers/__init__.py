"""Exploration of spaces that cannot be enumerated: samplers with one contract, and their driver."""

from forerun.search.explore.samplers.contract import Evaluation, Sampler
from forerun.search.explore.samplers.driver import Exploration, StopConditions, explore
from forerun.search.explore.samplers.registry import SAMPLERS, Exploring, sampler_named

__all__ = [
    "SAMPLERS",
    "Evaluation",
    "Exploration",
    "Exploring",
    "Sampler",
    "StopConditions",
    "explore",
    "sampler_named",
]
