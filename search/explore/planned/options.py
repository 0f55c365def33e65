"""Costs of the stages of a pipeline for every option: cut, position, first layer and number of layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.planned.cuts import devices_of, layout_of, recompute_kinds
from forerun.simulator.assignment.borders import transfers_alike_s, transfers_between_s
from forerun.simulator.core.stage_options import STAGE_AXES, OptionCosts, StageOptions, alone_s, stage_costs
from forerun.simulator.costs.host import host_link_rate, host_update_s
from forerun.simulator.costs.slowest import wait_share
from forerun.simulator.layer.kinds import kind_of_entry
from forerun.simulator.score_table import Floats
from forerun.spaces.models import Model
from forerun.spaces.strategies import Context, Recompute, Strategy, StrategySpace

REACH = 0.4
"""Relative deviation of a stage's layers from its share of the devices (plus one or two layers): embedding and head
cost one to four layers, and another tp slows devices by at most half."""
HOSTED = (0.25, 0.5, 0.75, 1.0)
"""Shares of a stage's layers whose optimizer states may be in host memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Pipeline of ``pp`` stages, each with one of the ``cuts``, on ``gpus`` devices, of ``microbatches`` a step."""

    space: StrategySpace
    cuts: tuple[Strategy, ...]
    gpus: int
    pp: int
    microbatches: int

    @property
    def context(self) -> Context:
        """The request."""
        return self.space.context

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.context.model.layer_count

    def counts(self, cut: Strategy) -> tuple[int, int]:
        """Return the fewest and the most layers of a stage with a cut."""
        if self.pp == 1:
            return self.layers, self.layers
        share = self.layers * devices_of(cut) / self.gpus
        most = min(int((1 + REACH) * share) + 2, self.layers - self.pp + 1)
        return min(max(int((1 - REACH) * share) - 1, 1), most), most


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """Contents of one stage.

    ``recomputed``: number of first layers with ``recompute`` (None: all); ``hosted``: number of first layers with
    optimizer states in host memory.
    """

    cut: Strategy
    layers: int
    recompute: Recompute
    recomputed: int | None = None
    hosted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTable:
    """The best plans of every stage with one cut.

    Arrays are [stage, number of layers - ``fewest``, first layer], with a last column after the model: ``time_s`` of a
    microbatch, and ``rest_s``, the remaining step time if this stage is the slowest (other microbatches, replicas and
    the optimizer); infinite if nothing fits. ``option``: rows of ``PlannedStages``.
    """

    fewest: int
    time_s: Floats
    rest_s: Floats
    option: NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStages:
    """All options of the stages of a pipeline.

    ``rows``: cut, stage, first layer, number of layers, recompute and its number of layers (-1: all), [6, K];
    ``hosted``: share of the layers with optimizer states on the host, shape K. ``tables``: the best options by cut.
    """

    pipeline: Pipeline
    rows: NDArray[np.int64]
    hosted: Floats
    tables: tuple[CutTable, ...]

    def __getitem__(self, row: int) -> PlannedStage:
        """Return the contents of one stage."""
        cut, _, _, layers, kind, some = map(int, self.rows[:, row])
        return PlannedStage(
            cut=self.pipeline.cuts[cut],
            layers=layers,
            recompute=Recompute(kind),
            recomputed=None if some < 0 else some,
            hosted=round(float(self.hosted[row]) * layers),
        )


def stage_plans(pipelines: Sequence[Pipeline], transfers_s: Sequence[Floats]) -> Iterator[PlannedStages]:
    """Yield the options of the stages of several pipelines of one request, costed together; ``transfers_s``: result of
    ``transfers_of`` for each.
    """
    rows = [np.array(list(_rows(pipeline)), dtype=np.int64).T for pipeline in pipelines]
    ends = np.cumsum([each.shape[1] for each in rows])
    costs = _stage_costs(pipelines, rows)
    for pipeline, choices, end, moved_s in zip(pipelines, rows, ends, transfers_s, strict=True):
        names = [field.name for field in fields(OptionCosts)]
        part = OptionCosts(**{name: getattr(costs, name)[end - choices.shape[1] : end] for name in names})
        time_s, rest_s, hosted = _in_a_step(pipeline, choices, part, np.diagonal(moved_s))
        tables = tuple(_table(pipeline, number, choices, time_s, rest_s) for number in range(len(pipeline.cuts)))
        yield PlannedStages(pipeline=pipeline, rows=choices, hosted=hosted, tables=tables)


Known = dict[tuple[int, ...], float]
"""Costed transfers by their inputs."""


def transfers_of(pipeline: Pipeline, known: Known) -> Floats:
    """Return the seconds of sending a microbatch's activations and gradients between stages of every two cuts on
    neighbouring devices, [K, K]; ``known``: cache of one request, extended.
    """
    cuts = pipeline.cuts
    transfers_s = np.zeros((len(cuts), len(cuts)))
    same_layout = [
        (row, column)
        for row, column in np.ndindex(transfers_s.shape)
        if devices_of(cuts[row]) == devices_of(cuts[column])
    ]
    for row, column in np.ndindex(transfers_s.shape):
        sender, receiver = cuts[row], cuts[column]
        middle, end = devices_of(sender), devices_of(sender) + devices_of(receiver)
        if 2 * middle == end:
            continue
        key = (*layout_of(sender), *layout_of(receiver), pipeline.microbatches)
        if key not in known:
            stages = tuple(range(middle)), tuple(range(middle, end))
            known[key] = sum(transfers_between_s(pipeline.context, sender, receiver, *stages, pipeline.pp))
        transfers_s[row, column] = known[key]
    senders, receivers = ([cuts[pair[end]] for pair in same_layout] for end in (0, 1))
    there, back = transfers_alike_s(pipeline.context, senders, receivers, pipeline.pp)
    transfers_s[tuple(np.array(same_layout).T)] = there + back
    return transfers_s


def _rows(pipeline: Pipeline) -> Iterator[tuple[int, int, int, int, int, int]]:
    kinds = recompute_kinds(pipeline.space)
    partial = pipeline.context.framework.legality.recompute_layers and Recompute.FULL in kinds
    starts = _starts(pipeline.context.model)
    for number, cut in enumerate(pipeline.cuts):
        fewest, most = pipeline.counts(cut)
        for stage in range(pipeline.pp):
            for count in range(fewest, most + 1):
                for start in _starts_of(pipeline, stage, count, starts):
                    yield from ((number, stage, start, count, kind, -1) for kind in kinds)
                    if partial:
                        yield from ((number, stage, start, count, int(Recompute.FULL), n) for n in range(1, count))


def _starts(model: Model) -> tuple[int, ...]:
    """Return the first layers for which inner stages are costed: after the last change of kind all layers are equal,
    and the last start represents all later ones.
    """
    kinds = np.repeat(kind_of_entry(model), [layer.count for layer in model.layers])
    changes = np.flatnonzero(np.diff(kinds)) + 1
    return tuple(range(1, int(changes[-1] if len(changes) else 1) + 1))


def _starts_of(pipeline: Pipeline, stage: int, count: int, starts: Sequence[int]) -> Sequence[int]:
    if stage == 0:
        return (0,)
    if stage == pipeline.pp - 1:
        return (pipeline.layers - count,)
    return [start for start in starts if start + count < pipeline.layers]


def _stage_costs(pipelines: Sequence[Pipeline], rows: Sequence[NDArray[np.int64]]) -> OptionCosts:
    """Return the costs of the rows of all pipelines, pipeline by pipeline."""
    _, stage, start, count, kind, some = np.concatenate(rows, axis=1)
    options = StageOptions(number=stage, start=start, end=start + count, kind=kind, some=some)
    degrees = {
        axis: np.concatenate([_degrees(*each, axis) for each in zip(pipelines, rows, strict=True)])
        for axis in STAGE_AXES
    }
    return stage_costs(pipelines[0].context, options, degrees)


def _degrees(pipeline: Pipeline, rows: NDArray[np.int64], axis: str) -> Floats:
    return np.asarray(np.array([float(getattr(cut, axis)) for cut in pipeline.cuts])[rows[0]])


def _in_a_step(
    pipeline: Pipeline, rows: NDArray[np.int64], costs: OptionCosts, own_s: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the time and the rest of a step (as in ``CutTable``) of all rows, infinite if a row does not fit, and
    their shares of layers with states on the host; ``own_s``: transfers between equal stages by cut.
    """
    context, profile = pipeline.context, pipeline.context.framework
    number, stage = rows[0], rows[1]
    replicas = _degrees(pipeline, rows, "dp") * _degrees(pipeline, rows, "cp")
    zero, pp = _degrees(pipeline, rows, "zero"), np.asarray(float(pipeline.pp))
    each_s, once_s = alone_s(context, costs.time_s, costs.reduce_s, costs.gather_s, zero, pp)
    time_s = costs.time_s + each_s
    waits_s = 0.0 if profile.overlap_pipeline or pipeline.pp == 1 else own_s[number]
    count = pipeline.microbatches
    rest_s = (count - 1) * (time_s + waits_s) + count * (profile.host_microbatch_s + wait_share(replicas) * time_s)
    rest_s = rest_s + once_s + costs.tied_s + profile.host_step_s
    best_s, hosted = np.full(len(number), np.inf), np.zeros(len(number))
    for share in _shares(context):
        away, update_s = share * costs.optimizer_bytes, costs.optimizer_s
        if share:
            copies_s = away / host_link_rate(context.cluster)
            update_s = np.maximum.reduce((update_s, copies_s, host_update_s(context.cluster, away)))
        # A stage with embedding or head has all or no states on the host, since shares count only layers.
        allowed = (stage > 0) & (stage < pipeline.pp - 1) | (share in (0.0, 1.0))
        better = allowed & (costs.peak_bytes - away <= context.memory_limit_bytes) & (rest_s + update_s < best_s)
        best_s, hosted = np.where(better, rest_s + update_s, best_s), np.where(better, share, hosted)
    return np.where(np.isfinite(best_s), time_s, np.inf), best_s, hosted


def _shares(context: Context) -> tuple[float, ...]:
    """Return the shares of layers whose optimizer states may be on the host."""
    able = "optimizer" in context.framework.host_tensors and context.cluster.host
    return (0.0, *HOSTED) if able else (0.0,)


def _table(pipeline: Pipeline, number: int, rows: NDArray[np.int64], time_s: Floats, rest_s: Floats) -> CutTable:
    """Return the best plans with one cut."""
    fewest, most = pipeline.counts(pipeline.cuts[number])
    shape = (pipeline.pp, most - fewest + 1, pipeline.layers + 1)
    times_s, rests_s = np.full(shape, np.inf), np.full(shape, np.inf)
    option = np.full(shape, -1, dtype=np.intp)
    places = np.flatnonzero((rows[0] == number) & np.isfinite(time_s))
    # The best row of each position is written last.
    places = places[np.argsort(-(time_s + rest_s)[places], kind="stable")]
    place = (rows[1][places], rows[3][places] - fewest, rows[2][places])
    times_s[place], rests_s[place], option[place] = time_s[places], rest_s[places], places
    last = _starts(pipeline.context.model)[-1]
    for values in (times_s, rests_s, option):
        values[1 : pipeline.pp - 1, :, last + 1 : -1] = values[1 : pipeline.pp - 1, :, last : last + 1]
    return CutTable(fewest=fewest, time_s=times_s, rest_s=rests_s, option=option)
