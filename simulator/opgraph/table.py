"""Splits as a table of candidates, and their scores in the same row format as other models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.mixture import score_mixture
from forerun.simulator.opgraph.score import SplitScores, score_splits
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.opgraph.mixture import Mixture
from forerun.spaces.opgraph.split import Split

AnySplit = Split | Mixture
S = TypeVar("S", bound=ScoreTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTable:
    """N splits in canonical order with the global batch of each; ``index`` (N): their place in the source space."""

    splits: tuple[AnySplit, ...]
    batch: NDArray[np.int64]
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.splits)

    def column(self, name: str) -> NDArray[np.int64]:
        """Return the devices (``gpus``) or the global ``batch`` of every row, shape N."""
        return self.batch if name == "batch" else np.array([split.devices for split in self.splits], dtype=np.int64)

    def take(self, rows: NDArray[np.intp] | slice) -> Self:
        """Return the table of some rows, in the order given."""
        chosen = np.arange(len(self))[rows]
        return type(self)(
            splits=tuple(self.splits[row] for row in chosen), batch=self.batch[rows], index=self.index[rows]
        )

    def joined(self, others: Sequence[Self]) -> Self:
        """Return one table with the rows of this and of ``others``."""
        tables = (self, *others)
        return type(self)(
            splits=tuple(split for table in tables for split in table.splits),
            batch=np.concatenate([table.batch for table in tables]),
            index=np.concatenate([table.index for table in tables]),
        )


def table_of_splits(
    context: GraphContext, splits: Sequence[AnySplit], index: NDArray[np.int64] | None = None
) -> SplitTable:
    """Return splits as a table, each with the request's global batch on its devices."""
    return SplitTable(
        splits=tuple(splits),
        batch=np.array([context.batch(split.devices) for split in splits], dtype=np.int64),
        index=np.arange(len(splits), dtype=np.int64) if index is None else index,
    )


def score_table(context: GraphContext, table: SplitTable) -> SplitScores:
    """Score the splits of a table, which must be legal; a mixture needs a table of its own.

    Raises:
        RequestError: a mixture is not legal, or an operator of the model has no iteration space.
    """
    scores = _scored(context, table)
    return corrected(context, table, scores, scores.time_s)


def corrected(context: GraphContext, table: SplitTable, scores: S, time_s: Mapping[str, Floats]) -> S:
    """Return scores corrected by measured runs, where the context was calibrated.

    ``time_s``: phases of the step by the closed forms, which measure the similarity of splits.
    """
    known = context.correction
    return scores if known is None else scores.slowed(known.factor(context, table, time_s))


def _scored(context: GraphContext, table: SplitTable) -> SplitScores:
    first = table.splits[0] if table.splits else None
    if isinstance(first, Mixture):
        return score_mixture(context, first, int(table.batch[0]))
    splits = [split for split in table.splits if isinstance(split, Split)]
    return score_splits(context, splits, table.batch.tolist())
