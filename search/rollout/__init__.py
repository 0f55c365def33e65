"""Reinforcement learning: a trainer and the engines that generate for it, placed on one cluster."""

from forerun.search.rollout.placing import Placement, Rollout, place

__all__ = ["Placement", "Rollout", "place"]
