"""Dynamic programming over stages: the layers and the recompute of every stage, for given degrees.

A microbatch's time on one stage and its feasibility follow from its layers and recompute. For a bound on the slowest
stage, the least sum of all stages is the shortest path through the boundaries between them, and ``(m - 1) max t + sum
t`` is least at a bound equal to an occurring time. This is the pipelined part of 1F1B with the slowest stage last; the
order of stages is left to scoring and local steps. Exposed replica traffic is part of a stage's time.

Alpa finds its stages in the same way (arXiv 2201.12023, section 5.2: a bound on the slowest stage, then the least sum),
and Galvatron its recompute per layer (arXiv 2307.02031).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.stage_options import StageOptions, class_costs, option_costs
from forerun.simulator.costs.host import states_on_host
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.memory.peak import lost_bytes
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, Recompute, Split, StageOffload, StageRecompute, Strategy, offload_of
from forerun.spaces.strategies.stage_offload import EIGHTHS
from forerun.spaces.strategies.staged_space import StagedSpace

STEP = 2
"""Tried eighths of activations; single eighths are left to the sampler."""


def with_offload(
    space: StagedSpace,
    degree_class: Strategy,
    options: StageOptions,
    group: NDArray[np.intp],
    time_s: Floats,
    fits: NDArray[np.bool_],
) -> tuple[StageOptions, NDArray[np.intp], Floats, NDArray[np.bool_]]:
    """Extend the options of stages by options with shares of tensors in host memory.

    Options that fit without host memory and recompute are fastest, so only other stages are tried. Activations are
    offloaded in quarters, whose copies are hidden or waited for; optimizer states in the fewest eighths that fit, since
    their update takes longer once a step.

    Returns
    -------
    Options, ``group``, seconds of a microbatch (including its share of the update's delay) and whether they fit, shape
    K each.
    """
    usual = np.array(offload_of(space.context.framework, None))
    options = replace(options, hosted=np.tile(usual, (len(options), 1)))
    rows = np.flatnonzero(~fits[fastest_of(group, time_s)][group])
    if not len(rows):
        return options, group, time_s, fits
    shares = np.array(space.hosted[1][::STEP]) / EIGHTHS
    rows, away = np.repeat(rows, len(shares)), np.tile(shares, len(rows))
    more = replace(options.take(rows), hosted=np.stack((np.zeros(len(away)), away), axis=1))
    more_s, hosted = _fitting(space, degree_class, more)
    joined = options.beside(more)
    return joined, np.r_[group, group[rows]], np.r_[time_s, more_s], np.r_[fits, hosted]


def fastest_of(group: NDArray[np.intp], time_s: Floats) -> NDArray[np.intp]:
    """Return the position of the fastest option of every group, shape of the groups."""
    order = np.lexsort((time_s, group))
    first: NDArray[np.intp] = order[np.unique(group[order], return_index=True)[1]]
    return first


def _fitting(space: StagedSpace, degree_class: Strategy, options: StageOptions) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the seconds of a microbatch and whether it fits with the fewest optimizer states on the host, which are
    written into ``options``.
    """
    context = space.context
    cluster, profile = context.cluster, context.framework
    costs = class_costs(context, degree_class, options)
    lacking = np.maximum(costs.peak_bytes - context.memory_limit_bytes, 0.0)
    nothing = dict.fromkeys(("activations", "working", "logits"), np.zeros(len(options)))
    freed = costs.optimizer_bytes + lost_bytes(profile, costs.optimizer_bytes, nothing)
    eighths = np.ceil(EIGHTHS * np.divide(lacking, freed, out=np.full(len(options), np.inf), where=freed > 0))
    eighths = np.where(lacking > 0, eighths, 0.0)
    fits = eighths <= space.hosted[0][-1]
    share = np.where(fits, eighths, 0.0) / EIGHTHS
    left, update_s = states_on_host(cluster, costs.optimizer_bytes, share, overlap=profile.overlap_host_update)
    fits &= left <= (1 - share) * costs.optimizer_bytes * (1 + 1e-9)  # the states fit on the host
    longer_s = np.maximum(np.maximum(update_s, (1 - share) * costs.optimizer_s) - costs.optimizer_s, 0.0)
    assert options.hosted is not None
    options.hosted[:, 0] = share
    microbatches = context.workload.global_batch / (degree_class.dp * degree_class.mbs)
    return costs.time_s + longer_s / microbatches, fits


Costs = Callable[[Context, Strategy, StageOptions], tuple[Floats, NDArray[np.bool_]]]
"""Function with the result of ``option_costs`` for the stages of a class of degrees."""
BOUNDS = 24
"""Number of bounds on the slowest stage computed together."""
PLANS = 3
"""Number of plans per class of degrees, with the best bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStrategy:
    """A strategy with the seconds of the pipelined part of its step, transfers left out."""

    strategy: Strategy
    pipeline_s: float


@dataclass(frozen=True, slots=True)
class _StageFillings:
    """All options of the stages of a pipeline, and for each stage the group of options by first and last boundary
    ([boundaries, boundaries], -1: none).
    """

    options: StageOptions
    group: NDArray[np.intp]
    groups: list[NDArray[np.intp]]


@dataclass(slots=True)
class Planner:
    """Planner of the strategies of one space. ``costs`` returns the times of stages, and whether they fit."""

    space: StagedSpace
    costs: Costs = option_costs
    _fillings: dict[tuple[int, int], _StageFillings] = field(default_factory=dict)

    def plans(self, degree_class: Strategy, count: int = PLANS) -> list[PlannedStrategy]:
        """Return the best plans for a class of degrees, best first; none if nothing fits.

        ``degree_class``: a strategy without the layers (and recompute) of stages. ``count``: most plans.
        """
        fillings = self._fillings_of(degree_class)
        options, group = fillings.options, fillings.group
        time_s, fits = self.costs(self.space.context, degree_class, options)
        if self.space.offload:
            options, group, time_s, fits = with_offload(self.space, degree_class, options, group, time_s, fits)
        time_s = np.where(fits, time_s, np.inf)
        best = fastest_of(group, time_s)
        paths_s = [np.where(each < 0, np.inf, time_s[best][each]) for each in fillings.groups]
        microbatches = self.space.context.workload.global_batch / (degree_class.dp * degree_class.mbs)
        steps: dict[Strategy, float] = {}
        for bound_s in _bounds(paths_s, microbatches, count)[:count]:
            path = _path(paths_s, bound_s)
            chosen = [best[each[low, high]] for each, low, high in zip(fillings.groups, path, path[1:], strict=False)]
            seconds = time_s[chosen]
            strategy = self._strategy(degree_class, options, np.array(chosen))
            steps.setdefault(strategy, float((microbatches - 1) * seconds.max() + seconds.sum()))
        return [PlannedStrategy(strategy=strategy, pipeline_s=seconds) for strategy, seconds in steps.items()]

    def _strategy(self, degree_class: Strategy, options: StageOptions, chosen: NDArray[np.intp]) -> Strategy:
        layers = tuple(int(n) for n in options.end[chosen] - options.start[chosen])
        fields: dict[str, object] = {}
        if self.space.reach:
            fields |= {"layers_per_stage": layers, "split": Split.EVEN}
        if self.space.recompute:
            entries = tuple(
                StageRecompute(Recompute(kind), None if some < 0 else int(some))
                for kind, some in zip(options.kind[chosen], options.some[chosen], strict=True)
            )
            fields |= {"stage_recompute": entries, "recompute": Recompute.NONE}
        if options.hosted is not None:
            fields["stage_offload"] = tuple(StageOffload(*map(float, row)) for row in options.hosted[chosen])
        return self.space.canonical(dataclasses.replace(degree_class, **fields))  # type: ignore[arg-type]  # fields of Strategy

    def _fillings_of(self, degree_class: Strategy) -> _StageFillings:
        """Return the options for a pipeline's depth, equal for all of its classes of degrees."""
        kind = -1 if self.space.recompute else int(degree_class.recompute)
        key = (degree_class.pp, kind)
        if key not in self._fillings:
            self._fillings[key] = self._all_fillings(degree_class.pp, kind)
        return self._fillings[key]

    def _all_fillings(self, pp: int, kind: int) -> _StageFillings:
        space, same = self.space, len(layer_kinds(self.space.context.model)) == 1
        kinds = space.kinds if kind < 0 else (kind,)
        number: dict[tuple[int, int, int], int] = {}
        rows: list[tuple[int, int, int, int, int, int]] = []
        groups = []
        for stage in range(pp):
            places = space.places(stage, pp), space.places(stage + 1, pp)
            group = np.full((len(places[0]), len(places[1])), -1, dtype=np.intp)
            for low, start in enumerate(places[0]):
                for high, end in enumerate(places[1]):
                    if end <= start:
                        continue
                    # Equal layers have the same cost for any first layer.
                    key = (stage, end - start, 0 if same else start)
                    if key not in number:
                        number[key] = len(number)
                        partial = range(1, end - start) if kind < 0 and space.partial and pp > 1 else ()
                        fillings = [(int(each), -1) for each in kinds] + [(int(Recompute.FULL), n) for n in partial]
                        rows += [(stage, start, end, each, some, number[key]) for each, some in fillings]
                    group[low, high] = number[key]
            groups.append(group)
        columns = np.array(rows, dtype=np.int64).T
        options = StageOptions(number=columns[0], start=columns[1], end=columns[2], kind=columns[3], some=columns[4])
        return _StageFillings(options, columns[5].astype(np.intp), groups)


def _bounds(paths_s: list[Floats], microbatches: float, count: int) -> list[float]:
    """Return bounds on the slowest stage in the order of the pipeline's time (the first ``count`` are the best of all);
    empty if nothing fits.
    """
    least = float(_sums(paths_s, np.array([np.inf]))[0])
    if not np.isfinite(least):
        return []
    values = np.unique(np.concatenate([path.ravel() for path in paths_s]))
    values = values[np.isfinite(values) & (values >= least / len(paths_s) * (1 - 1e-12))]
    pairs: list[tuple[float, float]] = []
    for first in range(0, len(values), BOUNDS):
        bounds = values[first : first + BOUNDS]
        if len(pairs) >= count and (microbatches - 1) * bounds[0] + least >= pairs[count - 1][0]:
            break
        taken = (microbatches - 1) * bounds + _sums(paths_s, bounds)
        pairs += [(float(seconds), float(bound)) for seconds, bound in zip(taken, bounds, strict=True)]
        pairs = sorted(pair for pair in pairs if np.isfinite(pair[0]))
    return [bound for _, bound in pairs]


def _sums(paths_s: list[Floats], bounds: Floats) -> Floats:
    """Return the least sum of stages, with no stage slower than each bound; infinite without one."""
    total = np.zeros((len(bounds), 1))
    for path in paths_s:
        allowed = np.where(path[None] <= bounds[:, None, None], path[None], np.inf)
        total = (total[:, :, None] + allowed).min(axis=1)
    return np.asarray(total[:, 0])


def _path(paths_s: list[Floats], bound_s: float) -> list[int]:
    """Return all boundaries on the path with the least sum under a bound."""
    total, came = np.zeros(1), []
    for path in paths_s:
        sums = total[:, None] + np.where(path <= bound_s, path, np.inf)
        came.append(sums.argmin(axis=0))
        total = sums.min(axis=0)
    places = [0]
    for step in reversed(came):
        places.append(int(step[places[-1]]))
    return places[::-1]
