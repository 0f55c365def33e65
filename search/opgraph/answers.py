"""What the leaderboard of an operator graph has besides its rows, and what is said where nothing fits."""

from dataclasses import replace
from typing import Any

import numpy as np

from forerun.search.board.rows import Row
from forerun.search.diagnosis.no_answer import NoAnswer
from forerun.search.flat.best import first_row, rows_of_best
from forerun.search.flat.exhaustive import Best, Problem, SliceResult
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import SplitSpace
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.split import Split


def best_of_families(setting: Setting[Any], problem: Problem, best: Best) -> tuple[Row[Split], ...]:
    """Return the best row of every family of splits with its rank, whatever that is; none of a transformer."""
    if not isinstance(problem.space, SplitSpace):
        return ()
    first: dict[str, int] = {}
    for place, split in enumerate(problem.space.strategies(best.index)):
        first.setdefault(split.family, place)
    places = list(first.values())
    rows = rows_of_best(setting, problem, best.take(np.array(places)))
    return tuple(replace(row, rank=place + 1) for row, place in zip(rows, places, strict=True))


def no_split_fits(
    setting: Setting[GraphContext], problem: Problem, piece: SliceResult, document: dict[str, Any]
) -> NoAnswer:
    """Return the error for a space in which nothing is legal, or nothing fits, with the smallest change that helps."""
    model, batch = setting.context.model.name, setting.request.global_batch
    row = first_row(setting, problem, piece.closest)
    if row is None:
        counted = ", ".join(f"{reason} {count}" for reason, count in sorted(piece.rejected.items()))
        text = f"no split of {model} is legal here (by reason: {counted})"
        return NoAnswer(text, {**document, "message": text}, {"message": text, "closest": None})
    split: Split = row.strategy
    if row.graph.global_batch // split.replicas // split.segments > 1:
        change = f"use a smaller batch than {batch}{'' if isinstance(batch, PerDevice) else ' or more GPUs'}"
    else:
        change = "one sample at a time is too much: use more GPUs, or GPUs with more memory"
    text = (
        f"nothing fits: the leanest split, {split}, needs {row.peak_memory_gib:.1f} GiB of the "
        f"{row.memory_limit_gib:.1f} GiB usable; {change}"
    )
    return NoAnswer(text, {**document, "message": text}, {"message": text, "closest": row.to_json()})
