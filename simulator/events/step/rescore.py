"""Scores from event-level simulations: of an assignment, and of the best candidates of a table."""

from dataclasses import replace

import numpy as np

from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.core.score import corrected, score
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.steady import StepFigures, figures_of, step_figures
from forerun.simulator.events.step.strategy_step import step_contention
from forerun.simulator.score_table import TIME_PARTS, ScoreTable, joined
from forerun.spaces.strategies import Context, StrategyTable


def event_row(assignment: Assignment, figures: StepFigures) -> ScoreTable:
    """Return the scores of one simulated assignment.

    ``time_s`` has the parts of the slowest rank. Memory is divided into parts like the rank that is fullest by the
    closed forms (the rank with the least free memory where groups of devices differ); the difference to the events'
    live tensors counts as activations, and its fragmentation as reserve.
    """
    memory, profile = stage_memory(assignment), assignment.context.framework
    group_of_rank = assignment.group_of_rank
    limits = np.array([assignment.contexts[group].memory_limit_bytes for group in group_of_rank])
    live = np.array(figures.peaks_bytes)
    more = live - memory.allocated_bytes
    peaks = memory.peak_bytes + more + profile.fragmentation * more
    rank, fullest = int(np.argmax(memory.allocated_bytes)), figures.fullest
    if len(assignment.contexts) > 1:
        rank = fullest = int(np.argmax(peaks / limits))
    beyond = live[fullest] - memory.allocated_bytes[rank]
    lost = profile.fragmentation * beyond
    parts = {part: values[rank : rank + 1] for part, values in memory.parts.items()}
    parts["activations"] = parts["activations"] + beyond
    parts["reserve"] = parts["reserve"] + lost
    peak = memory.peak_bytes[rank] + beyond + lost
    fits = peak <= limits[rank] if len(assignment.contexts) == 1 else bool((peaks <= limits).all())
    return ScoreTable(
        step_time_s=np.array([figures.step_time_s]),
        time_s={part: np.array([seconds]) for part, seconds in zip(TIME_PARTS, figures.time_s, strict=True)},
        peak_memory_bytes=np.array([peak]),
        allocated_bytes=live[fullest : fullest + 1],
        memory_bytes=parts,
        peak_stage=np.array([fullest]),
        fits=np.array([fits]),
    )


def event_scores(context: Context, table: StrategyTable, *, contention: bool = False) -> ScoreTable:
    """Return the scores of ``score`` with times and live tensors of the event level (``event_row``).

    ``contention``: see ``simulate``. 10 to 100 ms per row; long steps are extrapolated from shorter ones (``steady``).

    Raises:
        RequestError: as for ``simulate``, or a row breaks a law of its schedule.
    """
    rows = []
    for number in range(len(table)):
        strategy = table.strategy(number)
        assignment = assign(context, strategy)
        costs = step_costs(assignment)
        shared = step_contention(assignment, costs) if contention and strategy.devices > 1 else None
        rows.append(event_row(assignment, step_figures(costs, shared)))
    return _corrected(context, table, joined(rows, np.arange(len(rows))))


def result_scores(context: Context, table: StrategyTable, result: EventResult) -> ScoreTable:
    """Return the scores of a table's only strategy from its simulated step."""
    return _corrected(context, table, event_row(assign(context, table.strategy(0)), figures_of(result)))


def _corrected(context: Context, table: StrategyTable, scores: ScoreTable) -> ScoreTable:
    """Return scores corrected by measured runs, in proportion to the core's parts of the step."""
    if context.correction is None:
        return scores
    return corrected(context, table, scores, score(replace(context, correction=None), table).time_s)
