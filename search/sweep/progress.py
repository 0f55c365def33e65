"""Searches that run in parts: the results so far and the remaining work of each.

A part counts after it is on disk. After a crash the remaining work is the space without the parts on disk, so that only
parts in flight are searched twice.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forerun.search.explore.flat.exhaustive import Best, Problem, SliceResult
from forerun.search.explore.flat.flat_search import problem_of
from forerun.search.explore.flat.sample import bounded, sampled
from forerun.search.explore.flat.slicing import Cuts
from forerun.search.files.journal import Record
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.search.sweep.chunks import Begun, ChunkTimes, CompleteSearch, Item, SearchPart
from forerun.search.sweep.plan import SweepSearch
from forerun.simulator.opgraph.score import SplitScores
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.errors import RequestError

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


Span = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class SearchInParts:
    """One search in parts: ``found`` is the merged result of the parts on disk.

    ``setting`` and its ``problem`` are resolved once, for all parts.
    """

    of: SweepSearch
    setting: Setting[AnyContext]
    problem: Problem
    cuts: deque[Cuts]
    found: SliceResult = field(default_factory=SliceResult)

    @property
    def share(self) -> float:
        """Share of searched candidates."""
        return self.found.enumerated / self.problem.space.size

    def parts(self) -> Iterator[SearchPart]:
        """Cut the remaining work into parts; their width follows the measured seconds."""
        for cuts in self.cuts:
            for low, high in cuts:
                yield SearchPart(of=self.of, problem=self.problem, low=low, high=high)

    def add(self, piece: SliceResult) -> None:
        """Add the result of a part."""
        self.found = self.problem.merged([self.found, piece])

    def steer(self, part: SearchPart, seconds: float) -> None:
        """Adapt the width of later parts to measured seconds."""
        for cuts in self.cuts:
            cuts.steer(part.low, part.high, seconds)


class Agenda(Iterator[Item]):
    """Work to do next: endings, parts of begun searches, new searches.

    Outcomes add work, so that the iterator can continue after its end.
    """

    def __init__(self, pieces: Iterable[SweepSearch], chunk_times: ChunkTimes, workers: int) -> None:
        self._pieces = iter(pieces)
        self._chunk_times, self._workers = chunk_times, workers
        self._in_parts: dict[str, SearchInParts] = {}
        self._parts: deque[tuple[str, Iterator[SearchPart]]] = deque()
        self._endings: deque[CompleteSearch] = deque()

    def __next__(self) -> Item:
        if self._endings:
            return self._endings.popleft()
        while self._parts:
            part = next(self._parts[0][1], None)
            if part is not None:
                return part
            self._parts.popleft()
        return next(self._pieces)

    def go_on(self, piece: SweepSearch, parts: Iterable[Record]) -> None:
        """Continue a search with parts of earlier runs.

        Raises
        ------
        RequestError
            The parts overlap.
        """
        parts = list(parts)
        spans, size = [(part["low"], part["high"]) for part in parts], parts[0]["size"]
        missing = left(spans, size)
        if sum(high - low for low, high in (*spans, *missing)) != size:
            raise RequestError(
                f"parts of search {piece.number + 1} overlap; the run directory was changed by hand; name another"
            )
        seconds = sum(part["seconds"] for part in parts)
        width = int(sum(high - low for low, high in spans) * self._chunk_times.part_s / max(seconds, 1e-6))
        setting = resolve(piece.request)
        problem = problem_of(setting)
        running = self._open(piece, setting, bounded(problem, sampled(problem)), missing, width)
        for part in parts:
            running.add(piece_from_json(part["found"]))
        self._end_if_whole(piece)

    def begun(self, piece: SweepSearch, begun: Begun, seconds: float) -> Record:
        """Add a long search; return the record to write first."""
        size = begun.problem.space.size
        self._open(piece, begun.setting, begun.problem, [(begun.upto, size)], begun.width)
        return part_record(piece, (0, begun.upto), size, begun.piece, seconds)

    def searched(self, part: SearchPart, result: SliceResult, seconds: float) -> Record | None:
        """Receive a finished part; return its record, None if its search has failed meanwhile."""
        running = self._in_parts.get(part.of.key)
        if running is None:
            return None
        running.steer(part, seconds)
        return part_record(part.of, (part.low, part.high), running.problem.space.size, result, seconds)

    def count(self, piece: SweepSearch, result: SliceResult) -> float:
        """Count a part on disk; return the share of its search that is on disk."""
        running = self._in_parts[piece.key]
        running.add(result)
        self._end_if_whole(piece)
        return running.share

    def drop(self, piece: SweepSearch) -> bool:
        """Forget a search that has ended or failed; False for a search not in parts."""
        self._parts = deque((key, parts) for key, parts in self._parts if key != piece.key)
        return self._in_parts.pop(piece.key, None) is not None

    def _open(
        self, piece: SweepSearch, setting: Setting[AnyContext], problem: Problem, spans: Iterable[Span], width: int
    ) -> SearchInParts:
        options = {"width": max(width, 1), "workers": self._workers, "target": self._chunk_times.part_s}
        cuts = deque(Cuts(low=low, high=high, **options) for low, high in spans)  # type: ignore[arg-type]  # as declared
        running = SearchInParts(of=piece, setting=setting, problem=problem, cuts=cuts)
        self._in_parts[piece.key] = running
        self._parts.append((piece.key, running.parts()))
        return running

    def _end_if_whole(self, piece: SweepSearch) -> None:
        running = self._in_parts[piece.key]
        if running.found.enumerated == running.problem.space.size:
            self._endings.append(CompleteSearch(of=piece, setting=running.setting, found=running.found))


def part_record(piece: SweepSearch, span: Span, size: int, result: SliceResult, seconds: float) -> Record:
    """Return the record of a part."""
    return {
        "key": piece.key,
        "low": span[0],
        "high": span[1],
        "size": size,
        "seconds": round(seconds, 3),
        "found": piece_to_json(result),
    }


def left(spans: Iterable[Span], size: int) -> list[Span]:
    """Return the parts of ``[0, size)`` not covered by ``spans``.

    >>> left([(4, 6), (0, 2)], 10)
    [(2, 4), (6, 10)]
    """
    open_spans, at = [], 0
    for low, high in sorted(spans):
        if low > at:
            open_spans.append((at, low))
        at = max(at, high)
    return [*open_spans, (at, size)] if at < size else open_spans


def by_key(parts: Iterable[Record]) -> Mapping[str, list[Record]]:
    """Return parts by the key of their search, each span once."""
    spans_of: dict[str, dict[Span, Record]] = {}
    for part in parts:
        spans_of.setdefault(part["key"], {})[part["low"], part["high"]] = part
    return {key: list(spans.values()) for key, spans in spans_of.items()}
