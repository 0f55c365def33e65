"""Steps of many microbatches from steps of few: a pipeline in its steady state repeats itself.

Starts and ends of tasks that only wait for each other are a max-plus linear system. Such a system is periodic after a
finite start (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, theorem 3.28), so that the same number
of further microbatches adds the same time over and over. The period is looked for, not assumed.
"""

from dataclasses import dataclass, replace

from forerun.simulator.events.costs import StepCosts
from forerun.simulator.events.simulate import simulate_costs
from forerun.simulator.score_table import TIME_PARTS

_SAME = 1e-9
"""Relative difference up to which two increments count as equal: the exactness asked of the closed forms."""
_FIRST = 6
"""Microbatches of the first try, in units of the pipeline's depth; filling takes one, draining another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """The figures of a step that grow evenly with its microbatches once it is long: its time, the parts of that at the
    slowest stage (``TIME_PARTS``), the largest peak of live tensors; and the stage that has it."""

    step_time_s: float
    time_s: tuple[float, ...]
    peak_bytes: float
    fullest: int


def step_figures(costs: StepCosts) -> StepFigures:
    """Return what a step takes, from three shorter ones where it is long and they have become periodic.

    Raises:
        RequestError: the schedule has no order for the shape.
    """
    count, period = costs.shape.microbatches, 2 * costs.shape.pp
    first = _FIRST * costs.shape.pp + count % period
    while 2 * (first + 2 * period) < count:
        figures = [_simulated(costs, first + turn * period) for turn in range(3)]
        if _even(figures):
            return _extended(figures, (count - first) / period)
        first += 2 * (first // period + 1) * period
    return _simulated(costs, count)


def _simulated(costs: StepCosts, microbatches: int) -> StepFigures:
    result = simulate_costs(replace(costs, shape=replace(costs.shape, microbatches=microbatches)))
    return StepFigures(
        step_time_s=result.step_time_s,
        time_s=tuple(result.time_s[part] for part in TIME_PARTS),
        peak_bytes=result.peak_memory_bytes,
        fullest=result.fullest,
    )


def _even(figures: list[StepFigures]) -> bool:
    """Whether every figure grows by the same from the first to the second as to the third."""
    low, middle, high = ([one.step_time_s, one.peak_bytes, *one.time_s] for one in figures)
    whole = [one or figures[-1].step_time_s for one in (high[0], high[1], *[high[0]] * len(TIME_PARTS))]
    grown = zip(low, middle, high, whole, strict=True)
    same = all(abs((c - b) - (b - a)) <= _SAME * size for a, b, c, size in grown)
    return same and len({one.fullest for one in figures}) == 1


def _extended(figures: list[StepFigures], periods: float) -> StepFigures:
    """Return the figures ``periods`` periods after the first."""
    low, high = figures[0], figures[-1]
    turns = periods / (len(figures) - 1)
    return StepFigures(
        step_time_s=low.step_time_s + turns * (high.step_time_s - low.step_time_s),
        time_s=tuple(a + turns * (b - a) for a, b in zip(low.time_s, high.time_s, strict=True)),
        peak_bytes=low.peak_bytes + turns * (high.peak_bytes - low.peak_bytes),
        fullest=low.fullest,
    )
