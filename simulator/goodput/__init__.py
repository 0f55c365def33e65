"""Goodput: what failures, checkpoints and restarts leave of a training that never stops."""

from forerun.simulator.goodput.interruptions import Goodput, Reliability, goodput_of

__all__ = ["Goodput", "Reliability", "goodput_of"]
