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
from numpy.typing import NDArray

from forerun.simulator.opgraph.dealing import fullest_tables
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.split_cuts import Cuts, split_cuts
from forerun.spaces.opgraph import GraphModel, Kind, Operator
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
    facts = _facts(model)
    names = [operator.name for operator in model.operators]
    present = np.array([name in cuts for name in names])
    share = np.array([1.0 / output_parts(cuts[name]) if name in cuts else 0.0 for name in names])
    stored_share = share.copy()
    for name, one in (stored or {}).items():
        if name in cuts:
            stored_share[names.index(name)] = 1.0 / output_parts(one)
    np.maximum.at(stored_share, facts.read_K, share[facts.keeper_K])
    stored_L = stored_share * facts.output_L
    below = np.zeros(len(names))
    np.maximum.at(below, facts.reader_E, stored_L[facts.maker_E])
    kept = np.where(facts.in_place_L, np.maximum(stored_L - below, 0.0), stored_L)
    # The model's own input is kept by the operators that read it.
    kept = np.where(facts.loss_L, 0.0, kept) + share * facts.first_L
    return Footprint(kept_L=np.where(present, kept, 0.0), working_L=share * (facts.output_L + facts.input_L))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """A model as arrays: elements, kinds, and who reads whose output.

    ``maker_E`` and ``reader_E`` are all edges, ``read_K`` and ``keeper_K`` those whose reader keeps its input as it was
    read. ``first_L``: elements of the model's input that an operator reads.
    """

    output_L: Floats
    input_L: Floats
    first_L: Floats
    in_place_L: NDArray[np.bool_]
    loss_L: NDArray[np.bool_]
    maker_E: NDArray[np.int64]
    reader_E: NDArray[np.int64]
    read_K: NDArray[np.int64]
    keeper_K: NDArray[np.int64]


@lru_cache(maxsize=64)
def _facts(model: GraphModel) -> _Facts:
    operators = model.operators
    places = {operator.name: place for place, operator in enumerate(operators)}
    edges = [(places[name], place) for place, operator in enumerate(operators) for name in operator.inputs]
    maker, reader = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    keeps = np.array([not (operator.macs or operator.kind in IN_PLACE | _FORGETS) for operator in operators])
    inputs = np.array([float(operator.input_elements) for operator in operators])
    return _Facts(
        output_L=np.array([float(operator.output_elements) for operator in operators]),
        input_L=inputs,
        first_L=np.where([bool(operator.inputs) for operator in operators], 0.0, inputs),
        in_place_L=np.array([operator.kind in IN_PLACE for operator in operators]),
        loss_L=np.array([operator.kind is Kind.LOSS for operator in operators]),
        maker_E=maker,
        reader_E=reader,
        read_K=maker[keeps[reader]],
        keeper_K=reader[keeps[reader]],
    )


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

    ``dense``: parameters without those of its ``tables``. Elements per sample of its replica: ``kept`` for the backward
    pass, and ``beyond`` them at the peak.
    """

    dense: float
    tables: tuple[Operator, ...]
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
    dense = 0.0
    for operator in model.operators:
        operator_cuts = cuts.get(operator.name)
        if operator_cuts is not None and operator.kind is not Kind.EMBEDDING:
            weight = operator.weight_elements * (not operator.tied)
            contracted = weight / operator_cuts.get("in_channels", 1)
            dense += (contracted + operator.parameters - weight) / operator_cuts.get("channels", 1)
    tables = tuple(table for table in model.tables if table.name in cuts)
    return SplitFootprint(dense=dense, tables=tables, kept=float(kept.sum()), beyond=beyond_kept(kept, working))
