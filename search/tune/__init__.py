"""From a ranking to the measured best: which candidate to run next, and what a run's log says."""

from forerun.search.tune.choice import Candidate, Choice, Chooser, Outcome, RunCost

__all__ = ["Candidate", "Choice", "Chooser", "Outcome", "RunCost"]
