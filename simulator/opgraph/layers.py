"""An operator graph as arrays: one entry per operator (L), and per distinct operator (U), which is costed once."""

import math
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.opgraph import WEIGHTED, WINDOWED, GraphModel, Kind, Operator

Floats = NDArray[np.float64]
AXES = 3
"""Largest number of spatial axes; shorter shapes are padded with ones."""

_NAMED = frozenset({"name", "inputs", "block", "notes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """``distinct``: operators that differ in more than their name; ``kind_of_L``: their index.

    ``spatial_*_UA``: extents, 1 for a missing axis. ``halo_UA``: rows needed from each neighbour.
    """

    model: GraphModel
    distinct: tuple[Operator, ...]
    kind_of_L: NDArray[np.int64]
    input_UA: Floats
    output_UA: Floats
    halo_UA: Floats

    def per_operator(self, value: str) -> Floats:
        """A property of every operator as an array of shape L."""
        return np.array([float(getattr(operator, value)) for operator in self.distinct])[self.kind_of_L]

    def is_kind(self, *kinds: Kind) -> NDArray[np.bool_]:
        """Mark the L operators of one of ``kinds``."""
        return np.array([operator.kind in kinds for operator in self.distinct])[self.kind_of_L]

    @property
    def weighted(self) -> NDArray[np.bool_]:
        """Mask of the L operators that are products with a weight."""
        return self.is_kind(*WEIGHTED)

    @property
    def first(self) -> NDArray[np.bool_]:
        """Mask of the L operators that read the model's input, whose gradient is not needed."""
        return np.array([not operator.inputs for operator in self.distinct])[self.kind_of_L]


@lru_cache(maxsize=32)
def layers_of(name: str, model: GraphModel) -> Layers:  # hashing the name is cheap
    """Return ``model`` as arrays."""
    keys = [_signature(operator) for operator in model.operators]
    order = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    first = {key: operator for key, operator in reversed(list(zip(keys, model.operators, strict=True)))}
    distinct = tuple(first[key] for key in order)
    return Layers(
        model=model,
        distinct=distinct,
        kind_of_L=np.array([order[key] for key in keys]),
        input_UA=np.array([_extents(operator.input_spatial) for operator in distinct]),
        output_UA=np.array([_extents(operator.spatial) for operator in distinct]),
        halo_UA=np.array([_halo(operator) for operator in distinct]),
    )


def added(values: Floats) -> Floats:
    """Return sums along the last axis, term by term.

    numpy's sum uses another order for another memory layout or with more trailing zeros, while a row of [N, X] must not
    depend on other rows.
    """
    if not values.shape[-1]:
        return np.zeros(values.shape[:-1])
    return np.asarray(np.add.accumulate(values, axis=-1)[..., -1], dtype=np.float64)


def _signature(operator: Operator) -> tuple[object, ...]:
    facts = tuple(getattr(operator, field.name) for field in fields(Operator) if field.name not in _NAMED)
    return (*facts, not operator.inputs)


def _extents(shape: tuple[int, ...]) -> tuple[float, ...]:
    """Return three extents; extents after the third multiply it."""
    padded = (*shape, 1, 1, 1)
    return (*map(float, padded[: AXES - 1]), float(math.prod(shape[AXES - 1 :]) or 1))


def _halo(operator: Operator) -> tuple[float, ...]:
    """Rows needed from each neighbour: half of the window's excess over its stride."""
    if operator.kind not in WINDOWED or not operator.kernel:
        return (0.0,) * AXES
    spread = operator.dilation or (1,) * len(operator.kernel)
    reach = [d * (k - 1) + 1 for k, d in zip(operator.kernel, spread, strict=True)]
    halo = [max(r - s, 0) / 2 for r, s in zip(reach, operator.stride or (1,) * len(reach), strict=True)]
    return (*halo, 0.0, 0.0, 0.0)[:AXES]
