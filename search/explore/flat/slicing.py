"""The exhaustive search on any workers: it sends slices, receives pieces, and merges them.

The width of a slice follows the measured seconds of earlier slices. Cuts therefore depend on the machine, but pieces
merge into the same result for any cuts and order.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forerun.search.explore.flat.exhaustive import FIRST, Problem, SliceResult, search_slice
from forerun.search.explore.flat.sample import bounded, sampled
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import kind_of
from forerun.search.request.scorer import Progress, Scorer
from forerun.search.workers.contract import Failure, ItemOutcome, Workers, WorkersLostError
from forerun.search.workers.opening import Choice, SerialWorkers, cores, open_workers
from forerun.simulator import score as simulator_score
from forerun.spaces.errors import ForerunError, RequestError

TARGET_S = 0.4
"""Seconds of a slice: long against the milliseconds of sending it, short against a wait for the last one."""
ALONE_S = 1.0
"""Seconds of a slice with one worker: a slice has some hundred milliseconds of overhead if racks or switches divide its
candidates into many tables."""
TARGET_PER_WORKER_S = 0.005
"""Seconds of a slice per worker, for many workers: a slice costs the driver 1.1 to 1.5 ms with Ray
(benchmarks/results), so that it is busy for less than a third of its time."""
PATIENCE_S = 3.0
"""Processor seconds of this process after which other processes start: two spawned processes cost about one."""
WORTH_S = 4.0
"""Least estimated remaining seconds for starting other processes."""
WIDEST_SLICE = 1 << 40
STEP, LEAP = 4.0, 32.0
"""Largest growth of a slice's width, since the density of legal candidates changes along the index. After less than a
hundredth of the target time a larger growth is safe, and saves dozens of tiny slices at the start."""
SMALLEST_SHARE = 4
"""Largest factor between a full slice and the last ones: tiny slices cost more to send than they save."""


class SliceFailed(ForerunError):
    """A slice of a search raised an error, so the result is incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Common inputs of all slices of a search."""

    problem: Problem
    score: Scorer


def target_s(workers: int) -> float:
    """Return the target seconds of a slice for a number of workers per driver.

    >>> target_s(1), target_s(2), target_s(1024)
    (1.0, 0.4, 5.12)
    """
    return ALONE_S if workers == 1 else max(TARGET_S, TARGET_PER_WORKER_S * workers)


@dataclass(slots=True, kw_only=True)
class Cuts:
    """Iterator that cuts ``[low, high)`` into slices of about ``target_s`` and learns from outcomes.

    With several ``workers`` the last slices are smaller, so that no worker waits long for another. ``target`` replaces
    ``target_s`` if given; ``least``: fewest candidates of a slice except the last.
    """

    low: int
    high: int
    width: int = FIRST
    workers: int = 1
    target: float | None = None
    least: int = FIRST

    def __iter__(self) -> Iterator[tuple[int, int]]:
        while self.low < self.high:
            share = (self.high - self.low) // (2 * self.workers) if self.workers > 1 else self.width
            upper = min(self.high, self.low + min(self.width, max(share, self.least, self.width // SMALLEST_SHARE)))
            item, self.low = (self.low, upper), upper
            yield item

    def learn(self, outcome: ItemOutcome) -> None:
        """Steer the width by the seconds of one slice."""
        low, high = outcome.item
        self.steer(low, high, outcome.seconds)

    def steer(self, low: int, high: int, seconds: float) -> None:
        """Adapt the width to the seconds of ``[low, high)``."""
        wanted = (self.target or target_s(self.workers)) / max(seconds, 1e-6)
        factor = min(LEAP if wanted > 100.0 else STEP, max(1 / STEP, wanted))
        self.width = max(1, min(WIDEST_SLICE, int((high - low) * factor)))


def cuts_of(problem: Problem, width: int | None = None) -> Cuts:
    """Return the cuts of a complete space; ``width``: candidates of the first one (None: the default of its kind)."""
    first = kind_of(problem.space.context).first
    return Cuts(low=0, high=problem.space.size, width=width or first, least=first)


def search_with(
    problem: Problem,
    choice: Choice,
    *,
    score: Scorer = simulator_score,
    progress: Progress | None = None,
    sampling: Progress | None = None,
) -> tuple[SliceResult, str, tuple[str, ...]]:
    """Search a complete space; return its piece, a description of the workers, and remarks on them.

    ``sampling``: progress callback of the preceding sample (``sampled``).

    Unless ``choice`` names Ray the search begins in this process and continues in others only if it takes long, since
    those must start and compute cached costs again.

    Raises:
        RequestError: a slice raised this error, or no Ray answers at the address.
        SliceFailed: a slice raised another error.
        EndedEarly: interrupted, with the piece so far.
    """
    sample = sampled(problem, score, sampling)
    task, cuts = Task(problem=bounded(problem, sample), score=score), cuts_of(problem)
    try:
        return _by(choice, task, cuts, progress)
    except KeyboardInterrupt as stop:
        result = stop.found if isinstance(stop, EndedEarly) else SliceResult()
        if sample is not None and (result.best is None or not len(result.best)):
            result = replace(result, best=sample.best, fastest=sample.fastest, safest=sample.safest)
        raise EndedEarly(result, stop) from None


def _by(choice: Choice, task: Task, cuts: Cuts, progress: Progress | None) -> tuple[SliceResult, str, tuple[str, ...]]:
    """Search with the workers of a choice; see ``search_with``."""
    default_scorer = task.score is simulator_score  # other scorers may not be importable by processes
    asked = choice.kind is not None or choice.address is not None or choice.count is not None
    if asked and (choice.several != "processes" or not default_scorer):
        with open_workers(choice) as workers:
            return _run(workers, task, cuts, progress), workers.describe(), workers.remarks
    early = _run(
        SerialWorkers(),
        task,
        cuts,
        progress,
        give_up=_Patience(cuts, choice.count or cores()) if default_scorer else None,
    )
    if cuts.low >= cuts.high:
        return early, SerialWorkers().describe(), ()
    try:
        others = open_workers(choice)
    except KeyboardInterrupt as stop:
        raise EndedEarly(early, stop) from None
    with others as workers:
        complete = _run(workers, task, cuts, progress, done=early)
        return complete, f"{SerialWorkers().describe()}, then {workers.describe()}", workers.remarks


class _Patience:
    """Decides whether one process has worked long enough and much work remains."""

    def __init__(self, cuts: Cuts, workers: int) -> None:
        self.cuts, self.start_s, self.workers = cuts, time.process_time(), workers

    def ended(self) -> bool:
        """Whether other processes should take over."""
        spent_s = time.process_time() - self.start_s  # processor time, since busy cores do not help
        left_s = spent_s * (self.cuts.high - self.cuts.low) / max(self.cuts.low, 1)
        several = self.workers > 1 or bool(os.environ.get("RAY_ADDRESS"))
        return several and spent_s > PATIENCE_S and left_s > WORTH_S


def _run(
    workers: Workers,
    task: Task,
    cuts: Cuts,
    progress: Progress | None,
    *,
    done: SliceResult | None = None,
    give_up: _Patience | None = None,
) -> SliceResult:
    """Search the remaining ``cuts``, and add the results to ``done``."""
    piece = done or SliceResult()
    cuts.workers = workers.count
    outcomes = workers.run(search_one, task, iter(cuts))
    try:
        for outcome in outcomes:
            if outcome.failure is not None:
                raise _error(outcome.item, outcome.failure)
            cuts.learn(outcome)
            piece = task.problem.merged([piece, outcome.result])
            if progress is not None:
                progress(piece.enumerated, piece.legal)
            if give_up is not None and give_up.ended():
                break
    except (KeyboardInterrupt, WorkersLostError) as stop:
        raise EndedEarly(piece, stop) from None
    outcomes.close()  # type: ignore[attr-defined]  # outcomes are generators: workers let go of what is in flight
    return piece


def search_one(task: Task, item: tuple[int, int]) -> SliceResult:
    """Search one slice (work of a worker)."""
    return search_slice(task.problem, *item, score=task.score)


def _error(item: tuple[int, int], failure: Failure) -> ForerunError:
    if failure.exit_code == RequestError.exit_code:
        return RequestError(failure.message)
    return SliceFailed(
        f"candidates {item[0]} to {item[1] - 1} could not be scored: {failure}\n{failure.trace}".rstrip()
    )
