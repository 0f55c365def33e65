"""Mixtures near the best splits: one run of layers at a time changes its split while that shortens the step.

Layers of equal picture size form a run, linear layers another. Every mixture is costed in closed form; improvements
over a start are simulated event by event, as the rows were.
"""

import dataclasses
import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from forerun.search.board.found import FoundTrees
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import Row, rows_from
from forerun.search.explore.trees.descents import LEAST, Descents, check_objective
from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.search.request.scorer import OnProgress
from forerun.search.request.setting import Setting
from forerun.simulator import score
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import AnySplit
from forerun.spaces.divisors import divisors
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import GraphModel, Kind, Operator
from forerun.spaces.opgraph.limits import grids
from forerun.spaces.opgraph.mixture import Mixture
from forerun.spaces.opgraph.split import Mode, Split
from forerun.spaces.trees import tree_yaml


@dataclass(slots=True)
class _Evaluated:
    """Step times of evaluated mixtures; None for illegal or infeasible ones."""

    context: GraphContext
    seconds: dict[str, float | None] = dataclasses.field(default_factory=dict)
    simulated: int = 0

    def step_s(self, mixture: Mixture) -> float | None:
        """Return the step time of a mixture; None if it is illegal or infeasible."""
        name = str(mixture)
        if name not in self.seconds:
            self.seconds[name] = self._scored(mixture)
        return self.seconds[name]

    @property
    def judged(self) -> int:
        """Number of evaluated mixtures."""
        return len(self.seconds)

    def _scored(self, mixture: Mixture) -> float | None:
        try:
            scores = score(self.context, OPERATOR_GRAPHS.table(self.context, [mixture]))
        except RequestError:
            return None
        return float(scores.step_time_s[0]) if scores.fits[0] else None


def search_mixtures(
    setting: Setting[GraphContext], rows: Sequence[Row[AnySplit]], starts: int, on_progress: OnProgress | None = None
) -> FoundTrees:
    """Return the mixtures near some simulated rows that are faster than their starts.

    Raises:
        RequestError: mixtures cannot be ranked by the objective.
        EndedEarly: interrupted, with the mixtures so far.
    """
    check_objective(setting.objective)
    context = setting.context
    evaluated = _Evaluated(context)

    def descend(start: Row[Split]) -> TreeRow | None:
        return _tree_row(setting, evaluated, start, _descend(context, evaluated, start.strategy))

    return Descents("mixtures", evaluated, on_progress).search(lambda: _starts(rows, starts), descend)


def _starts(rows: Sequence[Row[AnySplit]], count: int) -> Iterator[Row[Split]]:
    """Yield the best row of every family that supports mixtures."""
    seen: set[tuple[int, str]] = set()
    for row in rows:
        split = row.strategy
        if not row.fits or row.gpus == 1 or not isinstance(split, Split) or len(seen) == count:
            continue
        plain = split.mode is not Mode.PIPELINE and not split.mixed and not split.spread and split.segments == 1
        if plain and (row.gpus, split.family) not in seen:
            seen.add((row.gpus, split.family))
            yield cast("Row[Split]", row)


def _runs(model: GraphModel) -> list[tuple[Operator, ...]]:
    """Return runs of neighbouring operators with equal numbers of output points, without tables; linear layers and
    later operators form one run.
    """
    runs: list[list[Operator]] = []
    last: object = None
    for operator in model.operators:
        if operator.kind is Kind.EMBEDDING:
            continue
        key: object = operator.name in model.linear_runs or operator.spatial
        if key != last:
            runs.append([])
        runs[-1].append(operator)
        last = key
    return [tuple(run) for run in runs if any(operator.macs for operator in run)]


def _others(context: GraphContext, split: Split) -> list[Split]:
    """Return the alternative splits of a run: in two parts, over a node and over all devices."""
    devices, splits = split.devices, [Split(replicas=split.devices)]
    node = context.cluster.devices_per_node
    for parts in divisors(devices)[1:]:
        if parts not in (2, node, devices):
            continue
        replicas = devices // parts
        splits += [Split(replicas=replicas, mode=mode, parts=parts) for mode in (Mode.FILTER, Mode.CHANNEL)]
        wide = sorted(grids(parts, context.model.input[1:]), key=lambda grid: (max(grid), grid))[:1]
        splits += [Split(replicas=replicas, mode=Mode.SPATIAL, parts=parts, grid=grid) for grid in wide]
    batch = context.batch(devices)
    return [one for one in splits if one != split and batch % one.replicas == 0]


def _descend(context: GraphContext, evaluated: _Evaluated, start: Split) -> tuple[Mixture, tuple[str, ...]]:
    """Return the best mixture after a pass over all runs and their splits, and its changes."""
    best, changes = Mixture(default=start, layers=()), list[str]()
    fastest = evaluated.step_s(best)
    for run in reversed(_runs(context.model)):  # the last layers have most weights
        chosen: Split | None = None
        for split in _others(context, start):
            tried = _with(best, run, split)
            step_s = evaluated.step_s(tried)
            if step_s is not None and (fastest is None or step_s < fastest):
                fastest, chosen = step_s, split
        if chosen is not None:
            best = _with(best, run, chosen)
            changes.append(f"{_name(run)} {chosen}")
    return best, tuple(changes)


def _with(mixture: Mixture, run: Sequence[Operator], split: Split) -> Mixture:
    return Mixture(
        default=mixture.default, layers=(*mixture.layers, *((glob.escape(operator.name), split) for operator in run))
    )


def _name(run: Sequence[Operator]) -> str:
    return run[0].name if len(run) == 1 else f"{run[0].name} to {run[-1].name}"


def _tree_row(
    setting: Setting[GraphContext], evaluated: _Evaluated, start: Row[Split], best: tuple[Mixture, tuple[str, ...]]
) -> TreeRow | None:
    """Return a mixture as a row; None if it does not fit or is not faster at the event level."""
    mixture, changes = best
    if not changes:
        return None
    context, kind = setting.context, OPERATOR_GRAPHS
    evaluated.simulated += 1
    scores = kind.event_scores(context, kind.table(context, [mixture]))
    (row,) = rows_from(context, [mixture], scores, usd_per_gpu_hour=setting.usd_per_gpu_hour)
    if not row.fits or row.step_time_s * (1 + LEAST) > start.step_time_s:
        return None
    name = f"{start.name}, {', '.join(changes)}"
    head = "\n".join(f"# {line}" for line in (f"{context.model.name}: {start.name}", *changes))
    return TreeRow(
        row=dataclasses.replace(row, tree=name),
        start=start.name,
        start_s=start.step_time_s,
        changes=changes,
        yaml=f"{head}\n{tree_yaml(kind.tree(context, mixture))}",
    )
