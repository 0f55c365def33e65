"""Work of a worker on one search of a sweep: a complete search, or a part of a long one.

A search begins on one worker. If it is unfinished after ``ChunkTimes.whole_s``, the worker returns its result so far
and the remaining range, which is cut into parts of ``part_s`` for all workers. Parts merge into the same result for any
cuts.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from forerun.search.answer.searches import explore_request, leaderboard_of
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.explore.flat.exhaustive import Problem, SliceResult, search_slice
from forerun.search.explore.flat.flat_search import problem_of
from forerun.search.explore.flat.sample import bounded, sampled
from forerun.search.explore.flat.slicing import cuts_of
from forerun.search.files.journal import Record
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.search.sweep.plan import SweepSearch
from forerun.spaces.errors import InfeasibleError, RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds until a search is cut, and seconds of each part: the most work lost by a kill.

    ``first`` are the candidates of a search's first slice (None: the default of its kind of model).
    """

    whole_s: float = 20.0
    part_s: float = 5.0
    first: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A long search: candidates ``[0, upto)`` of its ``problem`` are searched; ``width``: candidates of a part.

    ``setting``: its resolved request.
    """

    setting: Setting[AnyContext]
    problem: Problem
    piece: SliceResult
    upto: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPart:
    """The candidates ``[low, high)`` of one search with a resolved request."""

    of: SweepSearch
    problem: Problem
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteSearch:
    """A search with all parts; ``found`` is their merged result, ``setting`` its resolved request."""

    of: SweepSearch
    setting: Setting[AnyContext]
    found: SliceResult


Item = SweepSearch | SearchPart | CompleteSearch
Search = Callable[[ChunkTimes, SweepSearch], "Record | Begun"]


def do(common: tuple[ChunkTimes, Search], item: Item) -> "Record | Begun | SliceResult":
    """Do one item; unexpected errors propagate."""
    chunk_times, search = common
    if isinstance(item, SearchPart):
        return search_slice(item.problem, item.low, item.high)
    if isinstance(item, CompleteSearch):
        return recorded(lambda: leaderboard_of(item.setting, item.found))
    return search(chunk_times, item)


def search_piece(chunk_times: ChunkTimes, piece: SweepSearch) -> "Record | Begun":
    """Search in this process and return the record, or the result at the time limit."""
    exploring = piece.exploring
    if exploring is not None:
        return recorded(lambda: explore_request(piece.request, exploring=exploring))
    try:
        setting = resolve(piece.request)
        problem = problem_of(setting)
        problem = bounded(problem, sampled(problem))
    except RequestError as error:
        return {"status": "refused", "message": str(error)}
    start, result, cuts = time.perf_counter(), SliceResult(), cuts_of(problem, chunk_times.first)
    for low, high in cuts:
        begin = time.perf_counter()
        result = problem.merged([result, search_slice(problem, low, high)])
        cuts.steer(low, high, time.perf_counter() - begin)
        spent_s = time.perf_counter() - start
        if spent_s > chunk_times.whole_s and cuts.low < cuts.high:
            width = max(1, int(cuts.low * chunk_times.part_s / max(spent_s, 1e-6)))
            return Begun(setting=setting, problem=problem, piece=result, upto=cuts.low, width=width)
    return recorded(lambda: leaderboard_of(setting, result))


def recorded(search: Callable[[], Leaderboard]) -> Record:
    """Return the record of a search with any outcome; unexpected errors propagate."""
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
