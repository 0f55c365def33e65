"""Search of trees around the best rows, one of each shape, and around equally fast infeasible strategies."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.search.board.found import FoundTrees
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import Row
from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.flat.slicing import search_with
from forerun.search.explore.samplers.registry import FLAT_ENUMERABLE
from forerun.search.explore.samplers.warm_starts import Lenient, strategies_of
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
from forerun.spaces.trees.vary import Cutting, Variation, varied_tree

ROUNDS = 3
"""Rounds over all settings: the third seldom changes anything."""
PLAYED = 3
"""Number of simulated variations of a round, most promising first."""
SLACK = 1.03
"""Largest ratio of a rough time to the best step for a simulation: rough times have errors of a few per cent."""


@dataclass(frozen=True, slots=True)
class Start:
    """A flat strategy to start from. ``step_s``: event-level step time, None if it does not fit."""

    strategy: Strategy
    step_s: float | None


def best_around(judge: Judge, start: Start, within_s: float) -> Judged | None:
    """Return the best variation of a start; None if none fits and is faster than the start and ``within_s``.

    Coordinate descent over the settings of a tree: the cuts of attention, MLP and vocabulary layers, tensors in host
    memory, and recompute (none, the core of attention, and in addition the fewest layers that fit, in full or their
    attention or MLP alone). Every choice of one setting is predicted with the others fixed, the most promising are
    simulated and the best is kept, until a round changes nothing.
    """
    flat = judge.flat(Variation(strategy=start.strategy))
    if flat is None:
        return None
    # Rough times have about the same error for all trees around one start.
    off = 1.0 if start.step_s is None else start.step_s / flat.rough_s
    best: Judged | None = None
    least_s = min(within_s, within_s if start.step_s is None else start.step_s)
    if flat.rough_s * off > within_s * SLACK and start.step_s is None:
        return None
    for _ in range(ROUNDS):
        before, now = best, flat.variation if best is None else best.variation
        looked = (judge.fit(option) for option in _options(judge.context, now))
        fitted = {judged.variation: judged for judged in looked if judged is not None}
        fitted.pop(now, None)
        for judged in sorted(fitted.values(), key=lambda each: each.rough_s)[:PLAYED]:
            if judged.rough_s * off > least_s * SLACK:
                break
            played = judge.play(judged)
            if played is not None and played.step_s < least_s:
                best, least_s = played, played.step_s
        if best is before:
            break
    return best


def _options(context: Context, now: Variation) -> Iterator[Variation]:
    """Yield variations in a single setting, with recomputed layers to be determined again."""
    plain = replace(now, recomputed=())
    for kind in (Recompute.NONE, Recompute.SELECTIVE):
        named = None if kind == now.strategy.recompute else kind
        for module in ("", "mlp", "attention"):
            yield replace(plain, recompute=named, module=module)
    if context.framework.host_tensors:
        yield replace(plain, host=() if now.host else context.framework.host_tensors)
    cuttings = (None, *_cuttings(context, now.strategy))
    for cutting in cuttings:
        yield replace(plain, mlp=cutting)
    for cutting in cuttings:
        yield replace(plain, attention=cutting)
    for cutting in cuttings:
        yield replace(plain, vocabulary=cutting)


def _cuttings(context: Context, strategy: Strategy) -> Iterator[Cutting]:
    """Yield the cuts of a module on a stage: tp in powers of two within the fastest links.

    Sequence parallelism follows the strategy; a strategy without tp gets cuts with and without it.
    """
    wide = strategy.dp * strategy.tp
    tp = 1
    while tp <= min(wide, max(context.cluster.scale_up_size, strategy.tp)):
        for sp in (False,) if tp == 1 else (True, False) if strategy.tp == 1 else (strategy.sp,):
            if wide % tp == 0 and tp != strategy.tp:
                yield Cutting(tp=tp, sp=sp)
        tp *= 2


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

    Raises
    ------
    RequestError
        Trees cannot be ranked by the objective.
    EndedEarly
        Interrupted, with the trees so far.
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
