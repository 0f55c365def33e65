"""Simulated plans, and the number that a leaderboard needs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from forerun.search.board.rows import GIB, Row
from forerun.search.explore.folding import folded_rows
from forerun.search.explore.groups.group_plans import GroupPlan
from forerun.search.order.ideas import FAR, Ranked, chosen_together, degrees
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import Strategy

EVALUATIONS = 100
"""Most simulated steps: 10 to 500 ms each."""
Played = Callable[[int], None]
"""Called with the number of steps simulated so far."""


@dataclass(slots=True, kw_only=True)
class SimulatedPlans:
    """Rows of simulated plans, and the reason for the end of the simulation."""

    setting: Setting
    rows: dict[Strategy, Row] = field(default_factory=dict)
    worth: dict[Strategy, float] = field(default_factory=dict)
    stopped: str = "every class of degrees was tried"

    def ranked(self) -> list[Ranked]:
        """Return the feasible strategies by their ranking time."""
        rows = (row for row in self.rows.values() if row.fits)
        order = sorted(rows, key=lambda row: (self.worth[row.strategy], row.name))
        return [
            Ranked(row.strategy, self.worth[row.strategy], row.step_time_s, row.peak_memory_gib * GIB) for row in order
        ]

    def best(self, top: int) -> tuple[Row, ...]:
        """Return the first ``top`` rows of the leaderboard."""
        return folded_rows(self.setting, self.ranked(), lambda strategies: [self.rows[one] for one in strategies], top)

    def last_s(self, top: int) -> float:
        """Return the time above which no further plan changes the first ``top`` rows; infinite if any plan may."""
        kept = self.best(top)
        if len(kept) < top:
            return math.inf
        ranked, last_s = self.ranked(), self.worth[kept[-1].strategy]
        near_s = (1 + FAR) * ranked[0].key
        # A new idea near the best ranks before further strategies of known ideas.
        near = {degrees(one.strategy) for one in ranked if one.key <= near_s}
        return last_s if self.setting.request.all_variants or len(near) >= top else max(last_s, near_s)


def simulated(
    setting: Setting,
    plans: Iterable[GroupPlan],
    *,
    play: Callable[[GroupPlan], Row],
    worth: Callable[[Row], float],
    evaluations: int = EVALUATIONS,
    played: Played | None = None,
) -> SimulatedPlans:
    """Simulate plans until no further plan changes the rows of ``setting``.

    Parameters
    ----------
    setting
        Request with all defaults.
    plans
        Plans in the order of their lower bounds.
    play
        Function from a plan to its row.
    worth
        Function from a row to its ranking seconds, at least those of its step.
    evaluations
        Most plans to simulate once a plan fits.
    played
        Progress callback with the number of simulated plans.
    """
    done = SimulatedPlans(setting=setting)
    wanted = setting.top if setting.request.all_variants else chosen_together(setting.top)
    for plan in plans:
        if plan.least_s > done.last_s(wanted):
            done.stopped = "no other plan can be faster"
            break
        if len(done.rows) >= evaluations and done.ranked():
            done.stopped = f"{evaluations} were simulated"
            break
        row = done.rows[plan.strategy] = play(plan)
        done.worth[row.strategy] = worth(row)
        if played is not None:
            played(len(done.rows))
    return done
