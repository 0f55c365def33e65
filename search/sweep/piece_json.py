"""Results of parts of a search on disk, exact to the last bit, so that a search continues after a crash."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.search.explore.flat.exhaustive import Best, SliceResult
from forerun.simulator.opgraph.table import SplitScores
from forerun.simulator.score_table import ScoreTable

TYPES: Mapping[str, type] = {"fits": np.bool_, "peak_stage": np.int64}
"""Types of the score columns other than float64."""


def piece_to_json(piece: SliceResult) -> dict[str, Any]:
    """Return the rows of a piece as plain data, to the last bit."""
    return {
        "enumerated": piece.enumerated,
        "legal": piece.legal,
        "feasible": piece.feasible,
        "rejected": {reason: int(count) for reason, count in piece.rejected.items()},
        "best": _best_to_json(piece.best),
        "closest": _best_to_json(piece.closest),
        "fastest": _best_to_json(piece.fastest),
        "safest": _best_to_json(piece.safest),
    }


def piece_from_json(data: Mapping[str, Any]) -> SliceResult:
    """Return the inverse of ``piece_to_json``.

    >>> piece_from_json(piece_to_json(SliceResult(enumerated=8, rejected={"batch": 8}))).rejected
    {'batch': 8}
    """
    return SliceResult(
        enumerated=data["enumerated"],
        legal=data["legal"],
        feasible=data["feasible"],
        rejected=data["rejected"],
        best=_best_from_json(data["best"]),
        closest=_best_from_json(data["closest"]),
        fastest=_best_from_json(data.get("fastest")),
        safest=_best_from_json(data.get("safest")),
    )


def _best_to_json(best: Best | None) -> dict[str, Any] | None:
    if best is None:
        return None
    scores = {field.name: _plain(getattr(best.scores, field.name)) for field in dataclasses.fields(best.scores)}
    return {"index": best.index.tolist(), "keys": best.keys.tolist(), "scores": scores}


def _best_from_json(data: Mapping[str, Any] | None) -> Best | None:
    if data is None:
        return None
    count = len(data["index"])
    kind = SplitScores if "hidden_s" in data["scores"] else ScoreTable
    return Best(
        index=np.asarray(data["index"], dtype=np.int64),
        keys=np.asarray(data["keys"], dtype=np.float64).reshape(len(data["keys"]), count),
        scores=kind(**{name: _column(name, value, count) for name, value in data["scores"].items()}),
    )


def _plain(column: Any) -> Any:
    """Return a column of scores as a list, by part if it has parts; None without such a column."""
    if isinstance(column, Mapping):
        return {part: values.tolist() for part, values in column.items()}
    return None if column is None else column.tolist()


def _column(name: str, value: Any, count: int) -> Any:
    """Return the inverse of ``_plain`` for a column with a number of rows."""
    if isinstance(value, Mapping):
        return {part: np.asarray(values, dtype=np.float64).reshape(count) for part, values in value.items()}
    return None if value is None else np.asarray(value, dtype=TYPES.get(name, np.float64)).reshape(count)
