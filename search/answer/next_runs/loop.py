"""Measure, fit, choose again: the loop as a function, for tests and for those who automate their runs.

def measure(strategy):            # train for some steps and return the seconds of one, None where it failed
    return run_on_our_cluster(strategy)

found = measure_and_choose(context, strategies, measure, budget=10)
found.best, found.history
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forerun.search.answer.next_runs.choose import expected_regret, propose
from forerun.simulator.calibration import FittedRun, Posterior, fit, nothing_measured
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStep:
    """One turn of the loop: what was measured, and what was believed best and expected to be lost after it.

    ``step_time_s`` is None where the run failed; such a strategy is not chosen any more.
    """

    strategy: Strategy
    step_time_s: float | None
    best: Strategy
    expected_regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The strategy to use, what it is believed to take, every turn, and what was learned."""

    best: Strategy
    step_time_s: float
    history: tuple[LoopStep, ...]
    posterior: Posterior


def measure_and_choose(
    context: Context,
    strategies: Sequence[Strategy],
    measure: Callable[[Strategy], float | None],
    *,
    budget: int,
    enough: float = 0.0,
) -> Chosen:
    """Measure up to ``budget`` strategies, each the most useful one after those before, and return the best.

    ``context``: uncalibrated. ``enough``: stop once the choice is measured and expected to lose no more than this share
    of a step.

    Raises:
        RequestError: no strategy, no budget, or every run failed.
    """
    if not strategies or budget < 1:
        raise RequestError("the loop needs at least one strategy and a budget of at least one run")
    runs: list[FittedRun] = []
    history: list[LoopStep] = []
    tried: list[int] = []
    failed: list[int] = []
    posterior = nothing_measured()
    believed = posterior.believe([(posterior.applied(context), table_of(strategies))])
    while len(tried) < min(budget, len(strategies)):
        row = propose(believed, 1, known=tried)[0].row
        tried.append(row)
        seconds = measure(strategies[row])
        if seconds is None:
            failed.append(row)
        else:
            if not seconds > 0:
                raise RequestError(f"a measured step takes more than 0 s, but {strategies[row]} took {seconds}")
            runs.append(FittedRun(context=context, strategy=strategies[row], step_time_s=seconds))
            posterior = fit(runs).posterior
        believed = posterior.believe([(posterior.applied(context), table_of(strategies))]).without(failed)
        best, regret = int(believed.log_time.argmin()), expected_regret(believed)
        history.append(
            LoopStep(strategy=strategies[row], step_time_s=seconds, best=strategies[best], expected_regret=regret)
        )
        if regret <= enough and best in tried:
            break
    if len(failed) == len(strategies):
        raise RequestError(f"all {len(failed)} strategies failed")
    best = int(believed.log_time.argmin())
    return Chosen(
        best=strategies[best],
        step_time_s=float(believed.time_s()[best]),
        history=tuple(history),
        posterior=posterior,
    )
