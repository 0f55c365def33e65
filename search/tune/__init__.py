"""From a ranking to the measured best: which candidate to run next, and what a run's log says."""

from forerun.search.tune.choice import Candidate, Chooser, RunChoice, RunCost, RunOutcome

__all__ = ["Candidate", "Chooser", "RunChoice", "RunCost", "RunOutcome"]
