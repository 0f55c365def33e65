"""Splits of an operator graph as arrays, one row per candidate."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.layers import AXES, Floats
from forerun.spaces.opgraph.split import Mode, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCandidates:
    """Splits of N rows, as floats for later products. ``batch_N``: the global batch."""

    splits: tuple[Split, ...]
    mode_N: NDArray[np.int64]
    replicas_N: Floats
    parts_N: Floats
    grid_NA: Floats
    segments_N: Floats
    mixed_N: NDArray[np.bool_]
    spread_N: NDArray[np.bool_]
    batch_N: Floats

    def __len__(self) -> int:
        return len(self.splits)

    @property
    def devices_N(self) -> Floats:
        """Devices of every row."""
        return self.replicas_N * self.parts_N

    @property
    def local_N(self) -> Floats:
        """Samples of one segment of one replica."""
        return self.batch_N / self.replicas_N / self.segments_N

    def take(self, rows: NDArray[np.intp]) -> "SplitCandidates":
        """Return some rows, in the order given."""
        columns = {field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "splits"}
        return replace(self, splits=tuple(self.splits[row] for row in rows), **columns)

    def distinct(self, *columns: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first row of every distinct combination of ``columns``, and the combination of every row."""
        keys = np.stack(columns, axis=1)
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return first, which.reshape(-1)

    def is_mode(self, mode: Mode) -> NDArray[np.bool_]:
        """Rows of one mode."""
        return np.asarray(self.mode_N == mode)


def candidates_of(splits: Sequence[Split], batches: Sequence[int]) -> SplitCandidates:
    """Return ``splits``, each with its global batch, as arrays."""

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    return SplitCandidates(
        splits=tuple(splits),
        mode_N=np.array([int(split.mode) for split in splits], dtype=np.int64),
        replicas_N=column([split.replicas for split in splits]),
        parts_N=column([split.parts for split in splits]),
        grid_NA=np.array([(*split.grid, *(1,) * AXES)[:AXES] for split in splits], dtype=np.float64).reshape(-1, AXES),
        segments_N=column([split.segments for split in splits]),
        mixed_N=np.array([split.mixed for split in splits], dtype=bool),
        spread_N=np.array([split.spread for split in splits], dtype=bool),
        batch_N=column(list(batches)),
    )
