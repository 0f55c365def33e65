"""Scores of a table event by event: what refines the best candidates of a search."""

from dataclasses import replace

import numpy as np

from forerun.simulator.core.score import corrected, score
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.simulate import step_contention
from forerun.simulator.events.step.staged_costs import costs_of
from forerun.simulator.events.step.steady import StepFigures, figures_of, step_figures
from forerun.simulator.score_table import TIME_PARTS, ScoreTable
from forerun.spaces.strategies import Context, StrategyTable


def event_scores(context: Context, table: StrategyTable, *, contention: bool = False) -> ScoreTable:
    """Return what ``score`` returns, with times and live tensors as the event level has them; with ``contention`` as
    for ``simulate``.

    ``time_s`` is that of the slowest stage. Fixed memory and reserve are the core's; the difference between the live
    tensors of the two counts as activations, and what fragmentation takes of it as reserve. 10 to 100 ms per row;
    long steps are extended from shorter ones (``steady``).

    Raises:
        RequestError: as for ``simulate``; of a row that breaks a law of its schedule.
    """
    results = []
    for row in range(len(table)):
        strategy = table.strategy(row)
        costs = costs_of(context, strategy)
        shared = step_contention(context, strategy, costs) if contention and strategy.devices > 1 else None
        results.append(step_figures(costs, shared))
    return _scores(context, table, results)


def result_scores(context: Context, table: StrategyTable, result: EventResult) -> ScoreTable:
    """Return the scores of the one strategy of a table from its step as it was simulated."""
    return _scores(context, table, [figures_of(result)])


def _scores(context: Context, table: StrategyTable, results: list[StepFigures]) -> ScoreTable:
    core = score(replace(context, correction=None), table)
    live = np.array([result.peak_bytes for result in results], dtype=np.float64)
    more = live - core.allocated_bytes
    lost = context.framework.fragmentation * more
    memory = dict(core.memory_bytes)
    memory["activations"] = memory["activations"] + more
    memory["reserve"] = memory["reserve"] + lost
    peak = core.peak_memory_bytes + more + lost
    found = replace(
        core,
        step_time_s=np.array([result.step_time_s for result in results], dtype=np.float64),
        time_s={
            part: np.array([result.time_s[place] for result in results], dtype=np.float64)
            for place, part in enumerate(TIME_PARTS)
        },
        peak_memory_bytes=peak,
        allocated_bytes=live,
        memory_bytes=memory,
        peak_stage=np.array([result.fullest for result in results], dtype=np.int64),
        fits=peak <= context.memory_limit_bytes,
    )
    return corrected(context, table, found, core.time_s)
