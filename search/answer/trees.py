"""Strategy trees added to a leaderboard: near its best rows, plans of unequal stages, mixtures of operator graphs."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.search.answer.intervals import certain
from forerun.search.board.found import FoundTrees
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.requested import TreeRow, TreeRows
from forerun.search.formats.launchable import marked
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import OnProgress
from forerun.search.request.setting import Setting, has_transformer
from forerun.search.workers import Choice
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.explore.trees.named_trees import TreeAnswer

NO_TREES = TreeRows(rows=(), starts=0, judged=0, simulated=0, gain=0.0)


def with_trees(
    board: Leaderboard,
    setting: Setting,
    starts: int,
    workers: Choice | None = None,
    on_progress: OnProgress | None = None,
) -> Leaderboard:
    """Add trees that are faster than their flat starts to a board of simulated rows.

    Raises
    ------
    RequestError
        Trees cannot be ranked by the objective.
    EndedEarly
        Interrupted, with the board and the trees so far.
    """
    from forerun.search.explore.trees.tree_search import search_trees

    return _added(board, setting, lambda: search_trees(setting, board.rows, starts, workers, on_progress))


def with_plans(board: Leaderboard, setting: Setting[AnyContext], on_progress: OnProgress | None = None) -> Leaderboard:
    """Add plans of unequal stages that are faster than the first row to a board of simulated rows.

    Raises
    ------
    RequestError
        The model is not a transformer, or plans cannot be ranked by the objective.
    EndedEarly
        Interrupted, with the board and the plans so far.
    """
    from forerun.search.explore.planned.planned_trees import search_plans

    if not has_transformer(setting):
        raise RequestError(f"unlike stages are planned for transformers, and {setting.request.model} is none")
    return _added(board, setting, lambda: search_plans(setting, board.rows, on_progress))


def with_mixtures(
    board: Leaderboard, setting: Setting[GraphContext], starts: int, on_progress: OnProgress | None = None
) -> Leaderboard:
    """Add mixtures of splits that are faster than their starts to a board of simulated rows.

    Raises
    ------
    RequestError
        Mixtures cannot be ranked by the objective.
    EndedEarly
        Interrupted, with the board and the mixtures so far.
    """
    from forerun.search.explore.trees.mixtures import search_mixtures

    return _added(board, setting, lambda: search_mixtures(setting, board.rows, starts, on_progress))


def simulate_tree(setting: Setting, path: Path, *, contention: bool = False) -> "TreeAnswer":
    """Simulate the tree of a file; arguments and errors: see ``simulate_tree_file``."""
    from forerun.search.explore.trees.named_trees import simulate_tree_file

    answer = simulate_tree_file(setting, path, contention=contention)
    return replace(answer, row=certain(setting.context, (marked(setting.context, answer.row),))[0])


def _added(board: Leaderboard, setting: Setting[AnyContext], search: Callable[[], FoundTrees | None]) -> Leaderboard:
    """Add the result of a search to a board; None: nothing to search."""
    try:
        trees = search()
    except EndedEarly as stop:
        if not isinstance(stop.found, FoundTrees):
            raise
        raise EndedEarly(_joined(board, setting, stop.found), stop) from None
    return board if trees is None else _joined(board, setting, trees)


def _joined(board: Leaderboard, setting: Setting[AnyContext], result: FoundTrees) -> Leaderboard:
    """Return a board with trees ranked among its rows, together with its present trees."""
    known = board.trees or NO_TREES
    marked_rows = (replace(tree, row=marked(setting.context, tree.row)) for tree in result.rows)
    rows = sorted((*known.rows, *marked_rows), key=lambda tree: _device_s(tree))
    trees = TreeRows(
        rows=tuple(_ranked(board, tree) for tree in rows),
        starts=known.starts + result.starts,
        judged=known.judged + result.judged,
        simulated=known.simulated + result.simulated,
        gain=max((_gain(board, tree) for tree in rows), default=0.0),
    )
    return replace(board, trees=trees, remarks=(*board.remarks, *result.remarks))


def _device_s(tree: TreeRow) -> float:
    return tree.row.step_time_s * tree.row.gpus


def _ranked(board: Leaderboard, tree: TreeRow) -> TreeRow:
    """Return a tree with its rank among the flat rows of the board."""
    place = 1 + sum(row.step_time_s * row.gpus < _device_s(tree) for row in board.rows)
    return replace(tree, row=replace(tree.row, rank=place))


def _gain(board: Leaderboard, tree: TreeRow) -> float:
    """Return the gain of a tree over the best flat row on the same number of devices."""
    steps = [row.step_time_s for row in board.rows if row.gpus == tree.row.gpus]
    return min(steps, default=math.inf) / tree.row.step_time_s - 1
