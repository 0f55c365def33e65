"""Which runs are worth measuring next, for the rows of a leaderboard."""

from forerun.search.answer.next_runs.choose import RULES, Proposal, propose
from forerun.search.answer.next_runs.proposals import CANDIDATES, launches, next_runs, results_table

__all__ = ["CANDIDATES", "RULES", "Proposal", "launches", "next_runs", "propose", "results_table"]
