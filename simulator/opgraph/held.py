"""Parameters and activations of one device of a split; activations by the rule of ``footprint``."""

from dataclasses import dataclass, fields, replace

import numpy as np

from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.footprint import SplitFootprint, split_footprint
from forerun.simulator.opgraph.layers import Floats
from forerun.spaces.opgraph.split import Mode, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parameters and activations of the fullest device of every row.

    Parameters: ``dense_N``: changed by every step; ``tables_N``: embedding tables, of which a step changes the
    looked-up rows; ``rows_N``: copied tables whose gradients are kept until replicas have exchanged them (other table
    gradients are consumed at once). Elements per sample: ``kept_N``: kept for the backward pass; ``beyond_N``: the
    excess over ``kept_N`` at its peak.
    """

    dense_N: Floats
    tables_N: Floats
    rows_N: Floats
    kept_N: Floats
    beyond_N: Floats


def held_by(context: GraphContext, c: Candidates, stages: Held | None = None) -> Held:
    """Return the memory of the fullest device of every row; ``stages``: the fullest stage of pipeline rows."""
    known: dict[tuple[object, ...], SplitFootprint] = {}
    rows: list[SplitFootprint] = []
    for split in c.splits:
        # A device's part depends on the replicas only where they share layers or tables.
        replicas = split.replicas if split.mixed or split.spread else 1
        key = (split.mode, split.parts, split.grid, replicas, split.mixed, split.spread)
        if key not in known:
            own = Split() if split.mode is Mode.PIPELINE else replace(split, segments=1, replicas=replicas)
            known[key] = split_footprint(context.model, own)
        rows.append(known[key])
    tables = context.model.tables
    looked_up = np.sum([context.sent_elements(table, c.batch_N) for table in tables], axis=0) if tables else 0.0
    flat = Held(
        dense_N=np.array([row.dense for row in rows]),
        tables_N=np.array([row.tables for row in rows]),
        rows_N=np.where(~c.spread_N & (c.replicas_N > 1), looked_up, 0.0),
        kept_N=np.array([row.kept for row in rows]),
        beyond_N=np.array([row.beyond for row in rows]),
    )
    if stages is None:
        return flat
    pipeline = c.is_mode(Mode.PIPELINE)
    names = [field.name for field in fields(Held)]
    return Held(**{name: np.where(pipeline, getattr(stages, name), getattr(flat, name)) for name in names})
