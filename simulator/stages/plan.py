"""Runs of equal pipeline stages of a strategy, which are few even in deep pipelines.

Neighbours with the same layers, embedding and head take the same time, and the earliest of them keeps the most
activations. Every plan is therefore described by R runs in pipeline order, each with its length, and the vectorised
core works on [R, plans] arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.pipeline.interleaved import InterleavedPaths, interleaved_paths, packed
from forerun.simulator.score_table import Floats
from forerun.spaces.models.flops import layer_forward_flops
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.schedules.catalogue import by_schedule, schedule_of
from forerun.spaces.schedules.contract import Keeping
from forerun.spaces.schedules.interleaved import peak_in_flight_factor, warm_up
from forerun.spaces.strategies import Context, StrategyTable, chunks_of_stage, first_layers, stage_layers

PLAN_AXES = ("pp", "vpp", "schedule", "split", "recompute_layers")
"""Axes that determine the layers of each stage, and their recompute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlans:
    """Runs of equal pipeline ranks of P plans, in pipeline order, [R, P]."""

    multiplicity: Floats
    """Ranks of the run, 0 in padding."""
    first: Floats
    """Number of the run's first pipeline rank."""
    stage: Floats
    """Number of the rank that keeps most activations."""
    in_flight_factor: Floats
    """Its peak of activations relative to equal virtual stages (``peak_in_flight_factor``)."""
    blocks: Floats
    """Layers of each kind on a stage, followed by 1.0 with the embedding and 1.0 with the head. A DualPipe device has
    two stages and counts both. Shape [layer kinds + 2, R, P]."""
    paths: InterleavedPaths | None = None
    """Waits of interleaved stages with unequal layers; None without them."""
    down: Floats | None = None
    """The part of ``blocks`` on the first of two virtual stages of a V; None without a V."""
    spared: Floats | None = None
    """Layers after the first ``recompute_layers`` of their virtual stages, [layer kinds, R, P]. None where no plan
    recomputes only some layers."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """Contents of one stage."""

    layers: tuple[int, ...]
    """Layers by kind."""
    embedding: bool
    head: bool
    down: tuple[int, ...] = ()
    """Layers on the first virtual stage of a V (empty elsewhere)."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of equal neighbours."""

    held: _Stage
    """Contents of each stage of the run."""
    first: int
    """Number of the first stage."""
    count: int
    """Number of stages."""
    stage: int
    """Number of the stage that keeps most activations."""
    in_flight_factor: float
    """Its peak in-flight factor."""


def stage_plans(context: Context, table: StrategyTable, rows: NDArray[np.intp], *, timed: bool = True) -> StagePlans:
    """Return the plans of some rows (one representative row per distinct plan; a Python loop over plans).

    ``timed``: include the longest paths through their schedules.
    """
    model, plans, uneven, spared = context.model, [], {}, {}
    kinds = len(layer_kinds(model))
    for column, row in enumerate(rows):
        pp, vpp, schedule, split, some = (int(table.choices[a][table.codes[a][row]]) for a in PLAN_AXES)
        counts = stage_layers(model.layer_count, pp, vpp, split, table.custom_splits, context.head_layers)
        plans.append(_runs(model, counts, pp, schedule, context.framework.passes_ahead))
        if timed and schedule_of(schedule).in_rounds:
            uneven[column] = counts, pp
        if first := first_layers(some):
            spared[column] = _spared(model, counts, pp, schedule, first)
    paths = _paths(context, list(uneven.values()))
    packed_plans = _pack(plans, kinds, dict(zip(uneven, paths, strict=True)))
    if context.framework.vocabulary != "ends":
        packed_plans = _spread_vocabulary(packed_plans)
    return replace(packed_plans, spared=_pack_spared(plans, spared, kinds)) if spared else packed_plans


def _spread_vocabulary(plans: StagePlans) -> StagePlans:
    """Return the plans with embedding and head in equal parts on all pipeline ranks, and on both halves of a V."""
    blocks, down = plans.blocks.copy(), None
    blocks[-2:] = (blocks[-2:] * plans.multiplicity).sum(axis=1, keepdims=True) / plans.multiplicity.sum(axis=0)
    if plans.down is not None:
        down = plans.down.copy()
        down[-2:] = np.where(down[:-2].any(axis=(0, 1)), blocks[-2:] / 2, 0.0)
    return replace(plans, blocks=blocks, down=down)


@lru_cache(maxsize=1 << 14)
def _spared(model: Model, counts: tuple[int, ...], pp: int, schedule: int, some: int) -> tuple[tuple[int, ...], ...]:
    """Return the layers by kind after the first ``some`` of every virtual stage, by rank; MTP blocks come last."""
    ends = tuple(accumulate(counts))
    chunks = _held(model, [(end - max(count - some, 0), end) for count, end in zip(counts, ends, strict=True)])
    stages = (chunks_of_stage(pp, len(counts) // pp, schedule, stage) for stage in range(pp))
    return tuple(
        tuple(sum(each) for each in zip(*(chunks[c] for c in chunk_numbers), strict=True)) for chunk_numbers in stages
    )


def _pack_spared(
    plans: Sequence[tuple[_Run, ...]], spared: Mapping[int, tuple[tuple[int, ...], ...]], kinds: int
) -> Floats:
    """Return ``StagePlans.spared`` of plans with ``spared`` layers by column, from the first stage of every run."""
    depth = max(len(runs) for runs in plans)
    packed = np.zeros((kinds, depth, len(plans)))
    for column, stages in spared.items():
        runs = plans[column]
        for slot in range(depth):
            packed[:, slot, column] = stages[runs[slot if slot < len(runs) else 0].first]
    return packed


MOST_PATHS = 1 << 12
"""Limit of cached paths of a model's interleaved plans."""


@lru_cache(maxsize=32)
def _known_paths(
    model: Model, seq_len: int, vocabulary: str, ahead: int
) -> dict[tuple[tuple[int, ...], int], InterleavedPaths]:
    return {}


def _paths(context: Context, plans: Sequence[tuple[tuple[int, ...], int]]) -> list[InterleavedPaths]:
    """Return the longest paths of interleaved plans, given by the layers of every virtual stage and pp."""
    model, seq_len = context.model, context.workload.seq_len
    vocabulary, ahead = context.framework.vocabulary, context.framework.passes_ahead
    known = _known_paths(model, seq_len, vocabulary, ahead)
    found = {plan: known[plan] for plan in plans if plan in known}
    new = [plan for plan in dict.fromkeys(plans) if plan not in found]
    if new:
        work = [layer_forward_flops(kind, model.hidden, seq_len) for kind in layer_kinds(model)]
        work += [0.0, 2.0 * seq_len * model.vocab * model.hidden * (1 + model.mtp_layers)]
        slowed = [kind.feeds_forward and isinstance(kind.mlp, MixtureOfExperts) for kind in layer_kinds(model)]
        blocks = [(_blocks_of_chunks(model, counts, vocabulary), pp) for counts, pp in new]
        found |= zip(new, interleaved_paths(blocks, work, [*slowed, False, any(slowed)], ahead), strict=True)
        known.update({plan: found[plan] for plan in new} if len(known) < MOST_PATHS else {})
    return [found[plan] for plan in plans]


def _blocks_of_chunks(model: Model, counts: tuple[int, ...], vocabulary: str) -> tuple[tuple[float, ...], ...]:
    """Count the blocks of every kind on every virtual stage."""
    ends = [(float(chunk == 0), float(chunk == len(counts) - 1)) for chunk in range(len(counts))]
    if vocabulary != "ends":
        ends = [(1.0 / len(counts), 1.0 / len(counts))] * len(counts)
    return tuple((*map(float, kinds), *end) for kinds, end in zip(_kinds_of_chunks(model, counts), ends, strict=True))


@lru_cache(maxsize=1 << 14)
def _runs(model: Model, counts: tuple[int, ...], pp: int, schedule: int, ahead: int) -> tuple[_Run, ...]:
    """Return the runs of equal pipeline ranks; ``counts``: layers by virtual stage; ``ahead``: see ``in_flight``."""
    runs: list[_Run] = []
    vpp = len(counts) // pp
    for number, layers_of_kinds in enumerate(_stages(model, counts, pp, schedule)):
        in_flight_factor = (
            peak_in_flight_factor(counts[number::pp], pp, number, ahead) if schedule_of(schedule).in_rounds else 1.0
        )
        if not runs or runs[-1].held != layers_of_kinds:
            runs.append(_Run(layers_of_kinds, number, 1, number, in_flight_factor))
            continue
        run = runs.pop()
        at, most = run.stage, run.in_flight_factor
        kept, before = (warm_up(pp, vpp, rank) + ahead for rank in (number, at))
        if kept * in_flight_factor > before * most * (1 + 1e-12):
            at, most = number, in_flight_factor
        runs.append(_Run(layers_of_kinds, run.first, run.count + 1, at, most))
    return tuple(runs)


def _stages(model: Model, counts: tuple[int, ...], pp: int, schedule: int) -> list[_Stage]:
    """Return the contents of every pipeline rank, in order."""
    by_kind = _kinds_of_chunks(model, counts)
    stages = []
    for stage in range(pp):
        chunks = chunks_of_stage(pp, len(counts) // pp, schedule, stage)
        layers = tuple(sum(kinds) for kinds in zip(*(by_kind[chunk] for chunk in chunks), strict=True))
        down = by_kind[stage] if schedule_of(schedule).turns_back else ()
        stages.append(_Stage(layers, 0 in chunks, len(counts) - 1 in chunks, down))
    return stages


def _kinds_of_chunks(model: Model, counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the number of layers of each kind on every virtual stage; MTP blocks count on the last one."""
    ends = tuple(accumulate(counts))
    return _held(model, list(zip((0, *ends), ends, strict=False)))


def _held(model: Model, parts: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the number of layers of each kind in every part of a model.

    A part is (first layer, layer after the last). MTP blocks, which are like the last layer, count in the last part.
    """
    before = _kinds_before(model)
    counts = [tuple(end - start for start, end in zip(before[low], before[high], strict=True)) for low, high in parts]
    last = kind_of_entry(model)[-1]
    counts[-1] = tuple(count + model.mtp_layers * (kind == last) for kind, count in enumerate(counts[-1]))
    return counts


@lru_cache(maxsize=64)
def _kinds_before(model: Model) -> tuple[tuple[int, ...], ...]:
    """Return the number of layers of each kind before every layer of a model, and before its end."""
    counts = [0] * len(layer_kinds(model))
    totals = [tuple(counts)]
    for kind, layer in zip(kind_of_entry(model), model.layers, strict=True):
        for _ in range(layer.count):
            counts[kind] += 1
            totals.append(tuple(counts))
    return tuple(totals)


def _pack(plans: Sequence[tuple[_Run, ...]], kinds: int, paths: Mapping[int, InterleavedPaths]) -> StagePlans:
    """Return the plans as arrays, padded with copies of the first run that count zero times; ``paths``: by column."""
    depth = max((len(runs) for runs in plans), default=1)
    shape = (depth, len(plans))
    multiplicity, first, number, in_flight_factors = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.ones(shape)
    blocks = np.zeros((kinds + 2, *shape))
    down = np.zeros_like(blocks) if any(runs[0].held.down for runs in plans) else None
    for column, runs in enumerate(plans):
        for slot in range(depth):
            run = runs[slot] if slot < len(runs) else runs[0]
            multiplicity[slot, column] = run.count if slot < len(runs) else 0
            first[slot, column], number[slot, column], in_flight_factors[slot, column] = (
                run.first,
                run.stage,
                run.in_flight_factor,
            )
            blocks[:, slot, column] = (*run.held.layers, run.held.embedding, run.held.head)
            if down is not None and run.held.down:
                down[:, slot, column] = (*run.held.down, run.held.embedding, 0.0)
    longest = packed(paths, len(plans), kinds + 2) if paths else None
    return StagePlans(
        multiplicity=multiplicity,
        first=first,
        stage=number,
        in_flight_factor=in_flight_factors,
        blocks=blocks,
        paths=longest,
        down=down,
    )


def in_flight(
    schedule: Floats,
    stage: Floats,
    pp: Floats,
    vpp: Floats,
    microbatches: Floats,
    in_flight_factor: Floats | float = 1.0,
    vocabulary: str = "ends",
    ahead: float = 0.0,
) -> Floats:
    """Return the in-flight microbatches of a pipeline rank at its peak, in units of all its layers.

    ``in_flight_factor``: factor for different virtual stages; ``vocabulary``: its placement in the framework;
    ``ahead``: additional warm-up passes of 1F1B. The result never exceeds the number of microbatches.
    """
    memory = Keeping(ahead=ahead, vocabulary=vocabulary)
    kept = by_schedule(
        schedule, lambda one: one.in_flight(stage, pp, vpp, microbatches, uneven=in_flight_factor, memory=memory)
    )
    return np.minimum(kept, microbatches)
