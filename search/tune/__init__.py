"""Tuning by short measured runs: choice of the next run, launch, and reading of its log."""

from forerun.search.tune.choice import Candidate, Chooser, RunCost, RunOutcome

__all__ = ["Candidate", "Chooser", "RunCost", "RunOutcome"]
