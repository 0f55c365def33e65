"""Scores from event-level simulations: of a simulated step, and of the best splits of a table."""

from dataclasses import replace

import numpy as np

from forerun.simulator.events.step.result import EventResult
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.events.graph_step import simulate_plan
from forerun.simulator.opgraph.events.plan import GraphPlan
from forerun.simulator.opgraph.events.planning import graph_plan
from forerun.simulator.opgraph.memory import RESERVE_BYTES
from forerun.simulator.opgraph.split_tree import tree_of_split
from forerun.simulator.opgraph.table import AnySplit, SplitTable, corrected, score_table
from forerun.simulator.score_table import TIME_PARTS, ScoreTable, joined


def simulate_split(context: GraphContext, split: AnySplit, *, contention: bool = False) -> EventResult:
    """Simulate one step of a split as its strategy tree; ``contention``: see ``simulate_plan``.

    Raises:
        RequestError: its schedule has no order.
    """
    return simulate_plan(plan_of_split(context, split), contention=contention)


def plan_of_split(context: GraphContext, split: AnySplit) -> GraphPlan:
    """Return the plan of a step of a split as its strategy tree.

    Raises:
        RequestError: its schedule has no order.
    """
    batch = context.batch(split.devices)
    return graph_plan(context, tree_of_split(context, split, batch), batch)


def result_row(context: GraphContext, result: EventResult, parts: dict[str, float]) -> ScoreTable:
    """Return the scores of one simulated step.

    ``parts``: bytes of its memory by the closed forms (of a tree: only the reserve). The difference to the events
    counts as activations, or for a tree as memory in use.
    """
    peak = result.peak_memory_bytes + RESERVE_BYTES
    rest = "activations" if "activations" in parts else "in use"
    memory_bytes = {**parts, rest: parts.get(rest, 0.0) + peak - sum(parts.values())}
    return ScoreTable(
        step_time_s=np.array([result.step_time_s]),
        time_s={part: np.array([result.time_s[part]]) for part in TIME_PARTS},
        peak_memory_bytes=np.array([peak]),
        allocated_bytes=np.array([result.peak_memory_bytes]),
        memory_bytes={part: np.array([size]) for part, size in memory_bytes.items()},
        peak_stage=np.zeros(1, dtype=np.int64),
        fits=np.array([peak <= context.memory_limit_bytes]),
    )


def result_scores(context: GraphContext, table: SplitTable, result: EventResult) -> ScoreTable:
    """Return the scores of a table's only split from its simulated step."""
    closed = score_table(replace(context, correction=None), table)
    row = result_row(context, result, {part: float(sizes[0]) for part, sizes in closed.memory_bytes.items()})
    return corrected(context, table, row, closed.time_s)


def event_scores(context: GraphContext, table: SplitTable, *, contention: bool = False) -> ScoreTable:
    """Score a table of splits at the event level, in the form of ``score_table``; ``contention``: see
    ``simulate_plan``.

    Raises:
        RequestError: as for ``simulate_split``.
    """
    rows = []
    for row in range(len(table)):
        one = table.take(slice(row, row + 1))
        rows.append(result_scores(context, one, simulate_split(context, one.splits[0], contention=contention)))
    return joined(rows, np.arange(len(rows)))
