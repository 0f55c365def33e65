"""What the leaderboard of an operator graph has besides its rows, and what is said where nothing fits."""

from dataclasses import replace
from typing import Any

from forerun.search.board.rows import Row, rows_of
from forerun.search.diagnosis.diagnosis import NoAnswer
from forerun.search.flat.exhaustive import Best, Piece, Problem
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import SplitSpace
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.split import Split


def best_of_families(setting: Setting[Any], problem: Problem, best: Best, score: Scorer) -> tuple[Row[Split], ...]:
    """Return the best row of every family of splits with its rank, whatever that is; none of a transformer."""
    if not isinstance(problem.space, SplitSpace):
        return ()
    first: dict[str, tuple[int, Split]] = {}
    for rank, split in enumerate(problem.space.strategies(best.index), start=1):
        first.setdefault(split.family, (rank, split))
    splits = [split for _, split in first.values()]
    rows = rows_of(setting.context, splits, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
    return tuple(replace(row, rank=rank) for row, (rank, _) in zip(rows, first.values(), strict=True))


def no_split_fits(
    setting: Setting[GraphContext], space: SplitSpace, piece: Piece, document: dict[str, Any]
) -> NoAnswer:
    """Return the error for a space in which nothing is legal, or nothing fits, with the smallest change that helps."""
    model, batch = setting.context.model.name, setting.request.global_batch
    if piece.closest is None or not len(piece.closest):
        counted = ", ".join(f"{reason} {count}" for reason, count in sorted(piece.rejected.items()))
        text = f"no split of {model} is legal here (by reason: {counted})"
        return NoAnswer(text, {**document, "message": text}, {"message": text, "closest": None})
    (split,) = space.strategies(piece.closest.index[:1])
    (row,) = rows_of(setting.context, [split])
    if setting.context.batch(split.devices) // split.replicas // split.segments > 1:
        change = f"use a smaller batch than {batch}{'' if isinstance(batch, PerDevice) else ' or more GPUs'}"
    else:
        change = "one sample at a time is too much: use more GPUs, or GPUs with more memory"
    text = (
        f"nothing fits: the leanest split, {split}, needs {row.peak_memory_gib:.1f} GiB of the "
        f"{row.memory_limit_gib:.1f} GiB usable; {change}"
    )
    return NoAnswer(text, {**document, "message": text}, {"message": text, "closest": row.to_json()})
