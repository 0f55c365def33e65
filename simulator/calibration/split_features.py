"""Features of splits of operator graphs: axes, shapes and words that make their errors similar (``residual``)."""

import math
from collections.abc import Mapping

import numpy as np

from forerun.simulator.opgraph import PHASES, GraphContext
from forerun.simulator.opgraph.table import AnySplit, SplitTable
from forerun.simulator.score_table import Floats
from forerun.spaces.opgraph.mixture import Mixture
from forerun.spaces.opgraph.split import Mode

DISTANCES: Mapping[str, float] = {
    "replicas": 3.0,
    "spatial": 1.5,
    "filter": 1.5,
    "channel": 1.5,
    "pipeline": 1.5,
    "segments": 4.0,
    "batch": 3.0,
    "parameters": 2.0,
    "macs": 2.0,
}
"""Doublings by which two splits must differ to be unrelated. Values are taken from the corresponding axes of
transformers (replicas dp, parts tp and pp, samples of a device mbs, operations of a sample the sequence)."""


def numbers_of(context: GraphContext, table: SplitTable) -> Floats:
    """Return the numbers [N, F] of every split, in units of their distances."""
    rows = [_row(context, split, int(batch)) for split, batch in zip(table.splits, table.batch, strict=True)]
    return np.array([[row[name] / distance for name, distance in DISTANCES.items()] for row in rows])


def shares_of_phases(time_s: Mapping[str, Floats]) -> Floats:
    """Return the shares [N, P] of the phases of a step; a mixture does not distinguish some of them."""
    total = sum(time_s.values())
    return np.stack([time_s.get(name, np.zeros_like(total)) / total for name in PHASES], axis=1)


def words_of(context: GraphContext, table: SplitTable) -> list[tuple[str, ...]]:
    """Return the words of every split: its network, precision and special properties."""
    return [(context.model.name, context.precision, _special(split)) for split in table.splits]


def _row(context: GraphContext, split: AnySplit, batch: int) -> dict[str, float]:
    if isinstance(split, Mixture):
        replicas, segments, parts = split.devices, 1, dict[Mode, float]()
    else:
        replicas, segments, parts = split.replicas, split.segments, {split.mode: math.log2(split.parts)}
    return {
        "replicas": math.log2(replicas),
        "spatial": parts.get(Mode.SPATIAL, 0.0),
        "filter": parts.get(Mode.FILTER, 0.0),
        "channel": parts.get(Mode.CHANNEL, 0.0),
        "pipeline": parts.get(Mode.PIPELINE, 0.0),
        "segments": math.log2(segments),
        "batch": math.log2(batch / replicas),
        "parameters": math.log2(max(context.model.parameters, 1)),
        "macs": math.log2(max(context.model.macs, 1)),
    }


def _special(split: AnySplit) -> str:
    if isinstance(split, Mixture):
        return "mixture"
    return "mixed" if split.mixed else "tables" if split.spread else "uniform"
