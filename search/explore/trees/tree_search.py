"""Search of trees around the best rows, one of each shape, and around equally fast infeasible strategies."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from forerun.search.board.found import FoundTrees
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import Row
from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.flat.slicing import search_with
from forerun.search.explore.samplers.registry import FLAT_ENUMERABLE
from forerun.search.explore.samplers.warm_starts import Lenient, strategies_of
from forerun.search.explore.trees.coordinate_descent import Start, best_around
from forerun.search.explore.trees.descents import LEAST, Descents, check_objective
from forerun.search.explore.trees.judge import Judge, Judged, WithoutHosted
from forerun.search.explore.trees.named_trees import row_of_tree, with_flags
from forerun.search.request.scorer import OnProgress, enumeration_progress
from forerun.search.request.setting import Setting
from forerun.search.workers import IN_THIS_PROCESS, Choice
from forerun.simulator import score
from forerun.spaces.strategies import (
    ALL_REPLICAS,
    Context,
    Placement,
    Recompute,
    Schedule,
    Split,
    Strategy,
    table_of,
)
from forerun.spaces.trees import tree_yaml
from forerun.spaces.trees.vary import Variation, varied_tree

MARGIN = 4.0
"""Largest peak over device memory with which a strategy may fit after recompute: activations of a microbatch are some
ten times their inputs."""
LENIENT = 2_000
"""Number of such strategies considered: most of the fastest are too large even with full recompute."""
HOSTED = 100
"""Number of strategies considered with tensors in host memory, which have a few shapes."""


def search_trees(
    setting: Setting,
    rows: Sequence[Row],
    starts: int,
    workers: Choice | None = None,
    on_progress: OnProgress | None = None,
) -> FoundTrees | None:
    """Return the trees near some simulated rows that are faster than their starts; None without rows.

    Raises:
        RequestError: trees cannot be ranked by the objective.
        EndedEarly: interrupted, with the trees so far.
    """
    check_objective(setting.objective)
    if not rows:
        return None
    judge = Judge(setting.context)
    descents = Descents("trees", judge, on_progress)
    judge.seen = descents.say

    def descend(start: Start) -> TreeRow | None:
        judged = best_around(judge, start, _worth_s(rows, start.strategy))
        row = None if judged is None else _row(setting, start, judged)
        return row if row is not None and row.changes and (row.gain is None or row.gain >= LEAST) else None

    return descents.search(lambda: _starts(rows, setting, starts, workers or IN_THIS_PROCESS, on_progress), descend)


def _worth_s(rows: Sequence[Row], strategy: Strategy) -> float:
    """Return the step time above which a tree is slower than all rows with the same number of devices."""
    steps = [row.step_time_s for row in rows if row.gpus == strategy.devices]
    return max(steps, default=math.inf)


def _starts(
    rows: Sequence[Row], setting: Setting, count: int, workers: Choice, on_progress: OnProgress | None
) -> list[Start]:
    """Return flat strategies of different shapes: the best rows, then infeasible ones that would be best with enough
    memory or with optimizer states in host memory.
    """
    steps = {row.strategy: row.step_time_s for row in rows if row.fits}
    starts = [Start(one, steps[one]) for one in _of_different_shape(list(steps), count)]
    known = {_shape(start.strategy) for start in starts}
    for others in (_almost_fitting(setting, workers, on_progress), _if_hosted(setting, workers, on_progress)):
        more = list(_of_different_shape([one for one in others if _shape(one) not in known], count))
        starts += [Start(one, steps.get(one)) for one in more]
        known |= set(map(_shape, more))
    return starts


def _almost_fitting(setting: Setting, workers: Choice, on_progress: OnProgress | None) -> list[Strategy]:
    """Return infeasible flat strategies that would fit with full recompute, most promising first.

    The order is by the step time with a share of full recompute equal to the missing share of the memory that it frees.
    """
    space, context = setting.space(), setting.context
    if space.size > FLAT_ENUMERABLE:
        return []
    problem = Problem(space=space, objective=setting.objective, top=LENIENT)
    progress = enumeration_progress(on_progress, "searching what almost fits", space.size)
    strategies = strategies_of(space, search_with(problem, workers, score=Lenient(margin=MARGIN), progress=progress)[0])
    if not strategies:
        return []
    as_is = score(context, table_of(strategies))
    recomputed = score(context, table_of([replace(one, recompute=Recompute.FULL) for one in strategies]))
    missing = as_is.peak_memory_bytes - as_is.limits(context)
    share = np.clip(missing / np.maximum(as_is.peak_memory_bytes - recomputed.peak_memory_bytes, 1.0), 0.0, 1.0)
    step_s = as_is.step_time_s + share * (recomputed.step_time_s - as_is.step_time_s)
    promising = np.argsort(step_s, kind="stable")
    return [strategies[place] for place in promising if recomputed.fits[place] and not as_is.fits[place]]


def _if_hosted(setting: Setting, workers: Choice, on_progress: OnProgress | None) -> Sequence[Strategy]:
    """Return the flat strategies that would be best with the framework's offloadable tensors in host memory."""
    space = setting.space()
    if space.size > FLAT_ENUMERABLE or not setting.context.framework.host_tensors:
        return []
    problem = Problem(space=space, objective=setting.objective, top=HOSTED)
    progress = enumeration_progress(on_progress, "searching with states in host memory", space.size)
    return strategies_of(space, search_with(problem, workers, score=WithoutHosted(score), progress=progress)[0])


def _of_different_shape(strategies: Sequence[Strategy], count: int) -> Iterator[Strategy]:
    shapes: set[Strategy] = set()
    for strategy in strategies:
        if strategy.stage_choices is None and _shape(strategy) not in shapes and len(shapes) < count:
            shapes.add(_shape(strategy))
            yield strategy


def _shape(strategy: Strategy) -> Strategy:
    """Return a strategy without its schedule and the choices changed by variations."""
    return replace(
        strategy,
        vpp=1,
        schedule=Schedule.ONE_F_ONE_B,
        split=Split.EVEN,
        placement=Placement.TP_CP_EP_DP_PP,
        layers_per_stage=None,
        recompute=Recompute.NONE,
        sp=False,
        zero=0,
        shard=ALL_REPLICAS,
    )


def _row(setting: Setting, start: Start, judged: Judged) -> TreeRow:
    """Return the row of a tree."""
    return TreeRow(
        row=row_of(setting, judged),
        start=str(start.strategy),
        start_s=start.step_s,
        changes=judged.variation.changes,
        yaml=tree_text(setting.context, judged.variation),
    )


def row_of(setting: Setting, judged: Judged) -> Row:
    """Return the figures of a feasible tree, named by its strategy and its differences."""
    name = " + ".join((str(judged.variation.strategy), *judged.variation.changes))
    return row_of_tree(setting, judged.strategies, name, judged.scores)


def tree_text(context: Context, variation: Variation) -> str:
    """Return a variation as a file for ``simulate --tree``, with its start in a header comment."""
    head = [f"{context.model.name}: {variation.strategy}", *variation.changes]
    if flags := with_flags(variation.strategy):
        head.append(f"simulate with {flags}")
    return "\n".join((*(f"# {line}" for line in head), tree_yaml(varied_tree(context, variation))))
