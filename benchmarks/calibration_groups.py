"""Measured groups that a calibration is judged on, and what is found of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from calibration_settings import Linear, linear
from numpy.typing import NDArray

from forerun.search.measured.validate import MeasuredRun, load_runs, predict
from forerun.simulator.calibration import Belief, FittedRun, Posterior, nothing_measured
from forerun.spaces.strategies import by_context, table_of

Floats = NDArray[np.float64]

RESULTS = Path(__file__).resolve().parent / "results"
SMALLEST = 20
"""Measured runs of a group that is judged, at least."""
RUNS = 10
"""Runs that the tool chooses."""
DRAWS = 40
"""Random searches that the tool's is compared with."""
TENS = 200
"""Random choices of ten runs, the best of which say what a choice could reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that were ranked against each other, in rows sorted by context; ``belief`` before anything is measured."""

    name: str
    runs: tuple[MeasuredRun, ...]
    measured_s: Floats
    belief: Belief
    linear: Linear

    @property
    def source(self) -> str:
        """The table that the group is of."""
        return self.name.partition("|")[0]

    def measured(self, rows: Sequence[int]) -> list[FittedRun]:
        """Return some runs as the fit takes them."""
        return [
            FittedRun(
                context=self.runs[row].context,
                strategy=self.runs[row].strategy,
                step_time_s=float(self.measured_s[row]),
            )
            for row in rows
        ]

    def believe(self, posterior: Posterior) -> Belief:
        """Return what a posterior believes of all rows."""
        return _believed(posterior, self.runs)

    def regret(self, log_time: Floats) -> float:
        """Return how much slower than the fastest run the one believed fastest is."""
        return float(self.measured_s[int(log_time.argmin())] / self.measured_s.min() - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Errors (medians, shares) of the runs that were not chosen, before and after, and the share within intervals.

    ``lucky``, ``luckiest``: error that the best of twenty, and of all ``TENS``, random choices leave (linear form).
    """

    name: str
    runs: int
    source: str
    before: float
    after: float
    random: float
    lucky: float
    luckiest: float
    inside: float
    width: float
    rest: int
    fitted: str

    @property
    def held(self) -> bool:
        """Whether the error halved or fell under 4 %."""
        return self.after <= max(0.04, self.before / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Regret after 0, 1, 2 ... runs: chosen and drawn on the linear model, and chosen with a fit after every run."""

    chosen: Floats
    drawn: Floats
    used: Floats


def groups(files: Sequence[Path], smallest: int = SMALLEST) -> list[Group]:
    """Return all groups that are large enough, largest first."""
    predictions = predict(load_runs(files).runs)
    members: dict[str, list[MeasuredRun]] = {}
    for row, run in enumerate(predictions.runs):
        if run.group and run.outcome == "ok" and run.step_time_s and predictions.predicted[row]:
            members.setdefault(run.group, []).append(run)
    result = []
    for name, own in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(own) < smallest:
            continue
        order = [row for rows in by_context(_bare(own)) for row in rows]
        runs = tuple(own[row] for row in order)
        times = np.array([run.step_time_s for run in runs], dtype=float)
        result.append(
            Group(
                name=name,
                runs=runs,
                measured_s=times,
                belief=_believed(nothing_measured(), runs),
                linear=linear(runs, by_context(_bare(runs))),
            )
        )
    return result


def _bare(runs: Sequence[MeasuredRun]) -> list[FittedRun]:
    return [FittedRun(context=run.context, strategy=run.strategy, step_time_s=1.0) for run in runs]


def _believed(posterior: Posterior, runs: Sequence[MeasuredRun]) -> Belief:
    parts = []
    for rows in by_context(_bare(runs)):
        context = posterior.applied(runs[rows[0]].context)
        parts.append((context, table_of([runs[row].strategy for row in rows])))
    return posterior.believe(parts)
