"""Reinforcement learning: a trainer and the engines that generate for it, placed on one cluster."""

from forerun.search.rollout.placing import Rollout, RolloutPlacement, place

__all__ = ["Rollout", "RolloutPlacement", "place"]
