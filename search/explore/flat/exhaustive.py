"""The exhaustive driver: enumerate a space in slices, score every legal candidate, keep the best few.

A slice is two integers. Its result is a ``SliceResult``: counts and the best candidates with their ranking keys.
Results of slices merge in any order, by any number of workers, into the same result. Memory grows with the chunk, not
the space.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.flat.bound import SLOWER, Bound, slowdowns
from forerun.search.explore.flat.fronts import front
from forerun.search.order.objectives import objective_named
from forerun.search.order.worth import odds_of_failure
from forerun.search.request.kinds import TRANSFORMERS, kind_of
from forerun.search.request.limits import NO_LIMITS, TrainingLimits
from forerun.search.request.model_kind import Space, Table
from forerun.search.request.scorer import Progress, Scorer
from forerun.simulator import score as simulator_score
from forerun.simulator.core.score import peaks
from forerun.simulator.memory.risk import RISKY
from forerun.simulator.score_table import Floats, ScoreTable, joined
from forerun.spaces.strategies import StrategySpace, StrategyTable
from forerun.spaces.strategies.walk import EnumeratedPart, Hopeless

if TYPE_CHECKING:
    from forerun.simulator.opgraph.space import EnumeratedSplits

CHUNK = TRANSFORMERS.chunk
"""Legal candidates scored at once: large enough to amortise numpy's calls, small enough for the cache."""
FIRST = TRANSFORMERS.first
"""Candidates of the first slice: a few per cent of them are legal in the usual space."""
PREFIXES = 1 << 24
"""Most prefixes of a slice, legal or not: limits memory if a sparse space suddenly becomes dense. Laws keep a tenth of
them at most, at some fifty bytes each; candidates below them are generated in parts."""
CLOSEST = 8
"""Number of kept candidates with the smallest excess of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Search of a flat space, done in slices by workers.

    Attributes
    ----------
    space
        Candidates, with their context.
    objective
        Name of the objective.
    top
        Number of the best candidates to keep; all of a front are kept.
    limits
        Limits on a step.
    slowdown
        Factors by which interruptions slow trainings, by number of GPUs; empty: no interruptions.
    bound
        Lower bound for skipping candidates; None: all are scored.
    ideas
        Whether only the best candidate of each set of degrees is kept.
    """

    space: Space
    objective: str
    top: int
    limits: TrainingLimits = NO_LIMITS
    slowdown: Mapping[int, float] = field(default_factory=dict)
    bound: Bound | None = None
    ideas: bool = False

    @property
    def idea_width(self) -> int:
        """Number of candidates per set of degrees (the slowest digits of an index); 1: no grouping."""
        return self.space.idea_width if self.ideas and isinstance(self.space, StrategySpace) else 1

    def merged(self, pieces: Iterable["SliceResult"]) -> "SliceResult":
        """Return the merged piece of several slices."""
        return merge(pieces, top=self.top, front=objective_named(self.objective).front, width=self.idea_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Some candidates in rank order: ``index`` (shape K) in the space, ``keys`` (shape M x K), lower is better, and
    their ``scores`` (K rows), so that no winner is scored again.
    """

    index: NDArray[np.int64]
    keys: Floats
    scores: ScoreTable

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: NDArray[np.intp]) -> "Best":
        """Return some of the candidates, in the given order."""
        return Best(index=self.index[rows], keys=self.keys[:, rows], scores=self.scores.take(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """Counts and best candidates of one or several slices."""

    enumerated: int = 0
    """Candidates, legal or not."""
    legal: int = 0
    """Legal candidates."""
    feasible: int = 0
    """Legal candidates within memory and the limits of the request."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """All others by reason: the code of a law, "memory" (legal, does not fit), "slower" (legal, not scored because a
    bound excludes it from the best), or a limit."""
    best: Best | None = None
    """Feasible candidates ranked by the objective."""
    closest: Best | None = None
    """Legal candidates that do not fit, ranked by the bytes that they miss; none if others are feasible."""
    fastest: Best | None = None
    """The best feasible candidate by predicted time alone."""
    safest: Best | None = None
    """The best feasible candidate with a low OOM risk."""


def interrupted(scores: ScoreTable, table: Table, slowdown: Mapping[int, float]) -> ScoreTable:
    """Return scores with steps prolonged by interruptions; ``slowdown``: factor by number of GPUs."""
    if not slowdown or not isinstance(table, StrategyTable):
        return scores
    return scores.slowed(slowdowns(table, slowdown))


def within(bound: Bound | None, table: Table) -> Table:
    """Return the candidates that may be among the best."""
    if bound is None or not len(table) or not isinstance(table, StrategyTable):
        return table
    keeps = bound.keeps(table)
    return table if keeps.all() else table.take(np.flatnonzero(keeps))


def search_slice(
    problem: Problem,
    low: int,
    high: int,
    *,
    score: Scorer = simulator_score,
    progress: Progress | None = None,
    chunk: int | None = None,
) -> SliceResult:
    """Return the piece of the candidates with index in ``[low, high)``; it does not depend on ``chunk``."""
    low, high = max(low, 0), min(high, problem.space.size)
    chunk = chunk or kind_of(problem.space.context).chunk
    piece, waiting = SliceResult(), list[Table]()
    enumerated = legal = 0
    bound = problem.bound
    for part in slices(problem.space, low, high, chunk, None if bound is None else bound.hopeless):
        enumerated, legal = enumerated + part.width, legal + len(part.table) + part.passed
        kept = within(bound, part.table)
        slower = len(part.table) - len(kept) + part.passed
        counted = {**part.rejected, **({SLOWER: slower} if slower else {})}
        piece = problem.merged([piece, SliceResult(enumerated=part.width, legal=slower, rejected=counted)])
        waiting.append(kept)
        if sum(map(len, waiting)) >= chunk or enumerated == high - low:
            scored = [score_chunk(problem, part, score) for part in chunks_of(waiting, chunk)]
            piece, waiting = problem.merged([piece, *scored]), []
        if progress is not None:
            progress(enumerated, legal)
    return piece


def score_chunk(problem: Problem, table: Table, score: Scorer) -> SliceResult:
    """Score legal candidates; of infeasible ones, only the closest is scored, and only if nothing fits."""
    context: Any = problem.space.context
    if score is not simulator_score or not isinstance(table, StrategyTable) or context.correction is not None:
        return _scored(problem, table, score)
    missing = peaks(context, table) - context.memory_limit_bytes
    fitting = np.flatnonzero(missing <= 0)
    over = len(table) - len(fitting)
    piece = _scored(problem, table.take(fitting), score) if len(fitting) else SliceResult()
    if not over or piece.feasible:
        return replace(piece, legal=len(table), rejected={**({"memory": over} if over else {}), **piece.rejected})
    closest = np.lexsort((table.index, missing))
    closest = closest[missing[closest] > 0][:CLOSEST]
    return replace(
        piece,
        legal=len(table),
        rejected={"memory": over, **piece.rejected},
        closest=_scored(problem, table.take(np.sort(closest)), score).closest,
    )


def _scored(problem: Problem, table: Table, score: Scorer) -> SliceResult:
    """Score some legal candidates, whether they fit in memory or not."""
    context: Any = problem.space.context
    bare = score(context, table)
    scores = interrupted(bare, table, problem.slowdown)
    kept, beyond = problem.limits.kept(scores, table)
    objective = objective_named(problem.objective)
    ranked = Best(index=table.index, keys=np.stack(objective.keys(context, scores, table)), scores=bare)
    over = int(np.count_nonzero(~scores.fits))
    closest = fastest = safest = None
    if not kept.any():
        missing = replace(ranked, keys=(scores.peak_memory_bytes - scores.limits(context))[None, :])
        closest = lowest(missing, ~scores.fits, CLOSEST)
    if objective.plain is not None:
        plain = replace(ranked, keys=objective.plain(scores.step_time_s, table)[None, :])
        fastest = lowest(plain, kept, 1)
    if not objective.front:
        safest = lowest(ranked, kept & (odds_of_failure(context, scores) <= RISKY / (1 - RISKY)), 1)
    return SliceResult(
        legal=len(table),
        feasible=int(np.count_nonzero(kept)),
        rejected={**({"memory": over} if over else {}), **beyond},
        best=_best(ranked, kept, problem.top, objective.front, problem.idea_width),
        closest=closest,
        fastest=fastest,
        safest=safest,
    )


def merge(pieces: Iterable[SliceResult], *, top: int, front: bool = False, width: int = 1) -> SliceResult:
    """Return the piece of all slices together; the order of ``pieces`` does not matter.

    A ``front`` is not cut, since a cut front cannot be merged. ``width``: width of an idea (``Problem.idea_width``).
    """
    pieces = list(pieces)
    rejected: Counter[str] = Counter()
    for piece in pieces:
        rejected.update(piece.rejected)
    feasible = sum(piece.feasible for piece in pieces)
    return SliceResult(
        enumerated=sum(piece.enumerated for piece in pieces),
        legal=sum(piece.legal for piece in pieces),
        feasible=feasible,
        rejected=rejected,
        best=_merge_best([piece.best for piece in pieces], top, front=front, width=width),
        closest=None if feasible else _merge_best([piece.closest for piece in pieces], CLOSEST),
        fastest=_merge_best([piece.fastest for piece in pieces], 1),
        safest=_merge_best([piece.safest for piece in pieces], 1),
    )


def lowest(candidates: Best, mask: NDArray[np.bool_], count: int, width: int = 1) -> Best:
    """Return the ``count`` candidates of ``mask`` with the lowest keys, ties by index.

    ``candidates``: N candidates in any order; ``mask`` (N): eligible ones. ``width``: only the best of candidates with
    equal quotient of index and ``width`` counts.
    """
    index, keys = candidates.index, candidates.keys
    rows = np.flatnonzero(mask)
    if width > 1 and len(rows):
        rows = _leaders(index, keys, rows, width)
    if len(rows) > count:
        first = keys[0, rows]
        threshold = np.partition(first, count - 1)[count - 1]
        # All ties with the last one stay, because later keys and the index decide among them.
        rows = rows[first <= threshold]
    order = np.lexsort((index[rows], *keys[::-1, rows]))[:count]
    return candidates.take(rows[order])


def _leaders(index: NDArray[np.int64], keys: Floats, rows: NDArray[np.intp], width: int) -> NDArray[np.intp]:
    """Return the best of ``rows`` for every quotient of an index by ``width``."""
    idea = index[rows] // width
    starts = np.flatnonzero(np.diff(idea, prepend=idea[0] - 1))
    least = np.minimum.reduceat(keys[0, rows], starts)
    # Only candidates with the lowest first key of their idea are sorted.
    rows = rows[keys[0, rows] <= np.repeat(least, np.diff(starts, append=len(rows)))]
    rows = rows[np.lexsort((index[rows], *keys[::-1, rows]))]
    return rows[np.sort(np.unique(index[rows] // width, return_index=True)[1])]


def _best(candidates: Best, mask: NDArray[np.bool_], count: int, is_front: bool, width: int) -> Best:
    """Return the ``count`` lowest candidates of ``mask``, or all of its front."""
    if not is_front:
        return lowest(candidates, mask, count, width)
    return candidates.take(front(candidates.index, candidates.keys, mask))


def gathered(parts: Sequence[Best]) -> Best:
    """Return the candidates of several parts, concatenated."""
    index = np.concatenate([part.index for part in parts])
    keys = np.concatenate([part.keys for part in parts], axis=1)
    return Best(index=index, keys=keys, scores=joined([part.scores for part in parts], np.arange(len(index))))


def _merge_best(parts: list[Best | None], count: int, *, front: bool = False, width: int = 1) -> Best | None:
    present = [part for part in parts if part is not None and len(part)]
    if not present:
        return next((part for part in parts if part is not None), None)
    if len(present) == 1 and (front or len(present[0]) <= count):
        return present[0]
    together = gathered(present)
    return _best(together, np.ones(len(together), dtype=bool), count, front, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Part of a space with ``width`` candidates: ``table`` has the legal ones to score, ``rejected`` counts illegal
    ones by reason, ``passed`` counts legal ones skipped as hopeless.
    """

    width: int
    table: Table
    rejected: Mapping[str, int]
    passed: int = 0


def slices(space: Space, low: int, high: int, chunk: int = CHUNK, hopeless: Hopeless | None = None) -> Iterator[Slice]:
    """Cut ``[low, high)`` into slices of about ``chunk`` legal candidates; dense slices in parts, the last with the
    full width.

    The width of a slice follows the density of the one before it, because the density changes slowly along the index.
    """
    width, widest = kind_of(space.context).first, PREFIXES * space.below
    while low < high:
        width = min(width, high - low)
        legal = 0
        parts: Iterator[EnumeratedPart | EnumeratedSplits] = space.walk(low, low + width, hopeless)
        part = next(parts)
        for after in parts:
            legal += len(part.table)
            yield Slice(width=0, table=part.table, rejected=part.rejected, passed=part.passed)
            part = after
        yield Slice(width=width, table=part.table, rejected=part.rejected, passed=part.passed)
        low += width
        growth = min(4.0, chunk / max(legal + len(part.table), 1))
        width = max(1, min(widest, int(width * growth)))


def chunks_of(tables: Sequence[Table], chunk: int) -> Iterator[Table]:
    """Yield the rows of all tables in tables of about equal size, ``chunk`` rows at most."""
    joined = _join([table for table in tables if len(table)])
    if joined is None:
        return
    count = -(-len(joined) // chunk)
    for part in range(count):
        yield joined.take(slice(part * len(joined) // count, (part + 1) * len(joined) // count))


def _join(tables: Sequence[Table]) -> "Table | None":
    """Return one table with the rows of all, slices of one space."""
    if len(tables) < 2:
        return tables[0] if tables else None
    first, *others = tables
    return first.joined(others)  # type: ignore[arg-type]  # all of one kind
