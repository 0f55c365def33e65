"""Memory of the outputs that a device keeps from forward to backward passes, by one rule for both levels.

Outputs are kept in the cut in which they are computed. A product with a weight gathers a wider input again in its
backward pass; for any other operator the input is kept as it was read. An operator that works in place adds only the
part of its output that exceeds its stored input. A backward pass frees operators from the last to the first, and keeps
the gradients of the current one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forerun.simulator.opgraph.dealing import fullest_tables
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.split_cuts import Cuts, split_cuts
from forerun.spaces.opgraph import GraphModel, Kind
from forerun.spaces.opgraph.split import Split

IN_PLACE = frozenset({Kind.ACTIVATION, Kind.VIEW, Kind.LOSS})
"""Operators whose output replaces their input (activations run in place after a norm or a convolution)."""
_FORGETS = frozenset({Kind.ADD, Kind.CONCAT, Kind.COPY, Kind.UPSAMPLE, Kind.EMBEDDING})
"""Operators whose gradients do not depend on their inputs."""
_OUTPUT_AXES = frozenset({"batch", "channels", "depth", "height", "width"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Elements per sample of all replicas, by operator.

    ``kept_L``: kept for the backward pass; ``working_L``: gradients that the backward pass reads and writes.
    """

    kept_L: Floats
    working_L: Floats


def output_parts(cuts: Cuts) -> int:
    """Count the parts of a cut output."""
    return math.prod(degree for axis, degree in cuts.items() if axis in _OUTPUT_AXES)


def footprint(model: GraphModel, cuts: Mapping[str, Cuts], stored: Mapping[str, Cuts] | None = None) -> Footprint:
    """Return the memory of operators under their ``cuts``; operators without an entry keep nothing.

    ``stored``: cuts of stored outputs that differ from their cuts when computed.
    """
    share = {name: 1.0 / output_parts(one) for name, one in cuts.items()}
    stored_share = share | {name: 1.0 / output_parts(one) for name, one in (stored or {}).items() if name in cuts}
    for operator in model.operators:
        if operator.name in share and not (operator.macs or operator.kind in IN_PLACE | _FORGETS):
            for name in operator.inputs:
                stored_share[name] = max(stored_share.get(name, 0.0), share[operator.name])
    size = {operator.name: float(operator.output_elements) for operator in model.operators}
    kept, working = np.zeros(len(size)), np.zeros(len(size))
    for place, operator in enumerate(model.operators):
        if operator.name not in share:
            continue
        each = share[operator.name]
        kept[place] = stored_share[operator.name] * size[operator.name]
        if operator.kind in IN_PLACE:
            below = max((stored_share.get(name, 0.0) * size[name] for name in operator.inputs), default=0.0)
            kept[place] = max(kept[place] - below, 0.0) if operator.kind is not Kind.LOSS else 0.0
        # The model's own input is kept by the operators that read it.
        kept[place] += 0.0 if operator.inputs else each * operator.input_elements
        working[place] = each * (operator.output_elements + operator.input_elements)
    return Footprint(kept_L=kept, working_L=working)


def beyond_kept(kept_L: Floats, working_L: Floats) -> float:
    """Return the elements by which the peak of a backward pass exceeds all kept elements."""
    return max(float((np.cumsum(kept_L) + working_L).max(initial=0.0) - kept_L.sum()), 0.0)


@lru_cache(maxsize=64)
def whole_footprint(model: GraphModel) -> Footprint:
    """Return the memory of operators without cuts."""
    return footprint(model, split_cuts(model, Split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFootprint:
    """Parameters and activations of the fullest device of a split.

    Parameters without (``dense``) and of ``tables``; elements per sample of its replica that are ``kept`` for the
    backward pass, and elements ``beyond`` them at the peak.
    """

    dense: float
    tables: float
    kept: float
    beyond: float


@lru_cache(maxsize=4096)
def split_footprint(model: GraphModel, split: Split) -> SplitFootprint:
    """Return the memory of the fullest device of a split that is not a pipeline."""
    cuts = dict(split_cuts(model, split))
    fullest = {table.name for table in fullest_tables(model, split.replicas)} if split.spread else set()
    cuts |= {name: {} for name in fullest}
    made = footprint(model, cuts)
    kept, working = made.kept_L * split.replicas, made.working_L * split.replicas
    dense = tables = 0.0
    for operator in model.operators:
        own = cuts.get(operator.name)
        if operator.kind is Kind.EMBEDDING:
            tables += operator.parameters if own is not None else 0.0
        elif own is not None:
            weight = operator.weight_elements * (not operator.tied)
            dense += (weight / own.get("in_channels", 1) + operator.parameters - weight) / own.get("channels", 1)
    return SplitFootprint(dense=dense, tables=tables, kept=float(kept.sum()), beyond=beyond_kept(kept, working))
