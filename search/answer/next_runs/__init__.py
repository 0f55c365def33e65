"""Which runs are worth measuring next, and the loop that measures and chooses."""

from forerun.search.answer.next_runs.choose import RULES, Proposal, expected_regret, propose
from forerun.search.answer.next_runs.loop import Chosen, LoopStep, measure_and_choose
from forerun.search.answer.next_runs.proposals import CANDIDATES, launches, next_runs, results_table

__all__ = [
    "CANDIDATES",
    "RULES",
    "Chosen",
    "LoopStep",
    "Proposal",
    "expected_regret",
    "launches",
    "measure_and_choose",
    "next_runs",
    "propose",
    "results_table",
]
