"""Assignment of layers and their settings to virtual stages, pipeline ranks and groups of devices.

A flat strategy, different stages, groups of nodes and a strategy tree are four notations of an ``Assignment``, from
which alone the cost of a step and the memory of its ranks are computed. The vectorised core (``simulator/core``)
computes the same for many candidates at once; its tests compare it with the assignment row by row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Layer
from forerun.spaces.schedules import PipelineShape
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import Context, Recompute, Schedule, Strategy, chunks_of_stage

Blocks = Mapping[Strategy, Floats]
"""Number of layers of each kind, embeddings and heads by settings, [B, C] or [B, P]."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One layer, module of a layer, embedding or head, with its settings."""

    kind: int
    """Row of its block: the index into ``layer_kinds``, followed by embedding and head."""
    settings: Strategy
    """Flat strategy with its degrees, sharding and recompute."""
    host: frozenset[str] = frozenset()
    """Its tensors in host memory (``HOST_TENSORS``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A step of one pipeline with equal replicas: C virtual stages on P pipeline ranks."""

    contexts: tuple[Context, ...]
    """The request on each group of devices; a single one where all nodes are equal."""
    group_of_rank: tuple[int, ...]
    """Index into ``contexts`` of each rank, P."""
    schedule: Schedule
    shape: PipelineShape
    layers: tuple[tuple[Placed, ...], ...]
    """Contents of each virtual stage, in order, C."""
    devices: tuple[Sequence[int], ...]
    """Devices of each virtual stage, with tensor ranks adjacent, C."""
    in_flight: tuple[int, ...] = ()
    """Limit of in-flight microbatches of each rank, P; () where the schedule decides."""

    @property
    def context(self) -> Context:
        """The request on the first group; all groups have its model, workload and framework."""
        return self.contexts[0]

    @property
    def rounds(self) -> int:
        """Virtual stages per rank under an interleaved schedule; 1 in other schedules."""
        return self.shape.vpp if schedule_of(self.schedule).in_rounds else 1

    @property
    def chunks_of_rank(self) -> list[tuple[int, ...]]:
        """Virtual stages of each pipeline rank, shape P."""
        shape = self.shape
        return [chunks_of_stage(shape.pp, shape.vpp, self.schedule, rank) for rank in range(shape.pp)]

    @property
    def rank_of_chunk(self) -> tuple[int, ...]:
        """Pipeline rank of each virtual stage, shape C; under DualPipe the rank with the stage's own number."""
        ranks = {chunk: rank for rank, chunks in enumerate(self.chunks_of_rank) for chunk in chunks}
        ranks |= {rank: rank for rank in range(self.shape.pp)}
        return tuple(ranks[chunk] for chunk in range(len(self.layers)))

    def on_group(self, group: int) -> "Assignment":
        """Return the same layers with all ranks in one group."""
        if len(self.contexts) == 1:
            return self
        return replace(self, contexts=(self.contexts[group],), group_of_rank=(0,) * self.shape.pp)

    def layer_of(self, placed: Placed) -> Layer | None:
        """Return the kind of a placed layer or module; None for embedding and head."""
        kinds = layer_kinds(self.context.model)
        return kinds[placed.kind] if placed.kind < len(kinds) else None

    def blocks(self, chosen: Callable[[Placed], bool] = lambda placed: True) -> Blocks:
        """Return the number of blocks of every virtual stage by settings, [B, C]; only ``chosen`` ones."""
        found: dict[Strategy, Floats] = {}
        shape = (len(layer_kinds(self.context.model)) + 2, len(self.layers))
        for chunk, row in enumerate(self.layers):
            for placed, alike in groupby(filter(chosen, row)):
                if placed.settings not in found:
                    found[placed.settings] = np.zeros(shape)
                found[placed.settings][placed.kind, chunk] += len(list(alike))
        if self.context.framework.vocabulary != "ends":  # a part of either on every stage
            for held in found.values():
                held[-2:] = held[-2:].sum(axis=1, keepdims=True) / len(self.layers)
        return found

    def on_ranks(self, values: Floats) -> Floats:
        """Return the sums over the virtual stages of each pipeline rank, [..., P] from [..., C]."""
        return np.stack([values[..., list(chunks)].sum(axis=-1) for chunks in self.chunks_of_rank], axis=-1)

    @property
    def layer_counts(self) -> list[float]:
        """Layers of every virtual stage, shape C, without MTP blocks; a module counts as half a layer."""
        kinds = layer_kinds(self.context.model)
        weight = [0.5 if kind.module else 1.0 for kind in kinds] + [0.0, 0.0]
        counts = [sum(weight[placed.kind] for placed in row) for row in self.layers]
        counts[-1] -= self.context.model.mtp_layers
        return counts


def by_replicas(blocks: Blocks) -> Blocks:
    """Return the same blocks by the settings that replica traffic depends on (not recompute, mbs, offload)."""
    joined: dict[Strategy, Floats] = {}
    for settings, held in blocks.items():
        key = replace(settings, recompute=Recompute.NONE, recompute_layers=0, mbs=1, sp=False)
        if key.stage_offload is not None:
            key = replace(key, stage_offload=tuple(one._replace(activations=0.0) for one in key.stage_offload))
        joined[key] = joined[key] + held if key in joined else held
    return joined
