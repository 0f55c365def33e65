"""What workers do for one search of a sweep: all of it, or a part of one that takes long.

A search begins on one worker. Where it is not at its end after ``Portions.whole_s`` the worker hands back what it has
and what is left, which is then cut into parts of ``part_s`` for all workers. Parts merge into the same result however
they are cut, so that only the seconds depend on it.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.search.api import leaderboard_of, problem_of
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.flat.exhaustive import Best, Piece, bounded, search_slice
from forerun.search.request.request import resolve
from forerun.search.stages.searching import explore_request
from forerun.search.sweep.journal import Record
from forerun.search.sweep.plan import SweepPiece
from forerun.search.workers.slicing import cuts_of
from forerun.spaces.errors import InfeasibleError, RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Portions:
    """Seconds that one worker keeps a search, and seconds of a part of what is left then: what a kill loses at most.

    ``first`` are the candidates of a search's first slice (None: as its kind of model has it).
    """

    whole_s: float = 20.0
    part_s: float = 5.0
    first: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A search that takes long: ``[0, upto)`` of its ``size`` candidates is searched; ``width`` are some for a part."""

    piece: Piece
    upto: int
    size: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The candidates ``[low, high)`` of one search."""

    of: SweepPiece
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A search all of whose parts are there; ``found`` is them together."""

    of: SweepPiece
    found: Piece


Item = SweepPiece | Part | Ending
Search = Callable[[Portions, SweepPiece], "Record | Begun"]


def do(common: tuple[Portions, Search], item: Item) -> "Record | Begun | Piece":
    """Do one item; anything unexpected escapes."""
    portions, search = common
    if isinstance(item, Part):
        return search_slice(bounded(problem_of(resolve(item.of.request))), item.low, item.high)
    if isinstance(item, Ending):
        return ending(item)
    return search(portions, item)


def search_piece(portions: Portions, piece: SweepPiece) -> "Record | Begun":
    """Search in this process and return what is to be recorded, or what was found when the time was over."""
    exploring = piece.exploring
    if exploring is not None:
        return recorded(lambda: explore_request(piece.request, exploring=exploring))
    try:
        setting = resolve(piece.request)
        problem = bounded(problem_of(setting))
    except RequestError as error:
        return {"status": "refused", "message": str(error)}
    start, found, cuts = time.perf_counter(), Piece(), cuts_of(problem, portions.first)
    for low, high in cuts:
        begin = time.perf_counter()
        found = problem.merged([found, search_slice(problem, low, high)])
        cuts.steer(low, high, time.perf_counter() - begin)
        spent_s = time.perf_counter() - start
        if spent_s > portions.whole_s and cuts.low < cuts.high:
            width = max(1, int(cuts.low * portions.part_s / max(spent_s, 1e-6)))
            return Begun(piece=found, upto=cuts.low, size=problem.space.size, width=width)
    return recorded(lambda: leaderboard_of(setting, found))


def ending(item: Ending) -> Record:
    """Return what is to be recorded of a search that is complete."""
    return recorded(lambda: leaderboard_of(resolve(item.of.request), item.found))


def recorded(search: Callable[[], Leaderboard]) -> Record:
    """Return the record of a search, however it ends; what nobody expects escapes."""
    try:
        board = search()
    except InfeasibleError as error:
        return {"status": "infeasible", "message": str(error)}
    except RequestError as error:
        return {"status": "refused", "message": str(error)}
    return {
        "status": "done",
        "space": dataclasses.asdict(board.space),
        "rows": [row.to_json() for row in board.rows],
        "why": board.why,
        "defaults": list(board.defaults),
        "notes": list(board.notes),
    }


def piece_to_json(piece: Piece) -> dict[str, Any]:
    """Return what was found as plain data, to the last bit."""
    return {
        "walked": piece.walked,
        "legal": piece.legal,
        "feasible": piece.feasible,
        "rejected": {reason: int(count) for reason, count in piece.rejected.items()},
        "best": _best_to_json(piece.best),
        "closest": _best_to_json(piece.closest),
        "fastest": _best_to_json(piece.fastest),
        "safest": _best_to_json(piece.safest),
    }


def piece_from_json(data: Mapping[str, Any]) -> Piece:
    """Return the inverse of ``piece_to_json``.

    >>> piece_from_json(piece_to_json(Piece(walked=8, rejected={"batch": 8}))).rejected
    {'batch': 8}
    """
    return Piece(
        walked=data["walked"],
        legal=data["legal"],
        feasible=data["feasible"],
        rejected=data["rejected"],
        best=_best_from_json(data["best"]),
        closest=_best_from_json(data["closest"]),
        fastest=_best_from_json(data.get("fastest")),
        safest=_best_from_json(data.get("safest")),
    )


def _best_to_json(best: Best | None) -> dict[str, Any] | None:
    return None if best is None else {"index": best.index.tolist(), "keys": best.keys.tolist()}


def _best_from_json(data: Mapping[str, Any] | None) -> Best | None:
    if data is None:
        return None
    keys = np.asarray(data["keys"], dtype=np.float64).reshape(len(data["keys"]), len(data["index"]))
    return Best(index=np.asarray(data["index"], dtype=np.int64), keys=keys)
