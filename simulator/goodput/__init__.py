"""Goodput: the share of a long training that is progress, given failures, checkpoints and restarts."""

from forerun.simulator.goodput.interruptions import Goodput, Reliability, goodput_of

__all__ = ["Goodput", "Reliability", "goodput_of"]
