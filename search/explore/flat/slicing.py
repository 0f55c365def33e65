"""The exhaustive search on any workers: slices out, pieces in, one piece at the end.

The width of a slice follows the measured seconds of those before it. That makes the cuts depend on the machine, and
pieces merge into the same result however a space is cut and in whatever order they come.
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
from forerun.search.workers.opening import Choice, cores, open_workers
from forerun.search.workers.serial import SerialWorkers
from forerun.simulator import score as simulator_score
from forerun.spaces.errors import ForerunError, RequestError

TARGET_S = 0.4
"""Seconds of a slice: long against the milliseconds of sending it, short against a wait for the last one."""
ALONE_S = 1.0
"""Seconds of a slice where there is one worker: each slice costs some hundred milliseconds of its own where racks or
switches divide its candidates into many tables, and none waits for another."""
TARGET_PER_WORKER_S = 0.005
"""Seconds of a slice for each worker, where there are many: a slice costs the driver 1.1 to 1.5 ms with Ray
(benchmarks/results), so that it is busy for less than a third of its time however many workers it serves."""
PATIENCE_S = 3.0
"""Processor seconds of this process after which others are started: two spawned processes cost about one."""
WORTH_S = 4.0
"""Seconds that must be left, by the speed so far, for others to be started."""
WIDEST_SLICE = 1 << 40
STEP, LEAP = 4.0, 32.0
"""Growth of a slice's width at most: how many candidates are legal changes along the index. Where a slice took less
than a hundredth of its target a leap is safe, and saves dozens of tiny slices at the start."""
SMALLEST_SHARE = 4
"""The last slices are no smaller than a full one by more than this factor: a tiny one costs more to send than it
saves."""


class SliceFailed(ForerunError):
    """A slice of a search raised, so that there is no complete result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Inputs that all slices of a search share."""

    problem: Problem
    score: Scorer


def target_s(workers: int) -> float:
    """Return the seconds that a slice shall last where so many workers share a driver.

    >>> target_s(1), target_s(2), target_s(1024)
    (1.0, 0.4, 5.12)
    """
    return ALONE_S if workers == 1 else max(TARGET_S, TARGET_PER_WORKER_S * workers)


@dataclass(slots=True, kw_only=True)
class Cuts:
    """Cuts ``[low, high)`` into slices that shall last ``target_s`` each; an iterator that learns from outcomes.

    Where several ``workers`` share what is left, the last slices grow smaller, so that none waits long for another.
    ``target`` seconds, where given, replace ``target_s``; ``least`` candidates are in any slice but the last.
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
        """Steer the width by what one slice took."""
        low, high = outcome.item
        self.steer(low, high, outcome.seconds)

    def steer(self, low: int, high: int, seconds: float) -> None:
        """Steer the width by the seconds that ``[low, high)`` took."""
        wanted = (self.target or target_s(self.workers)) / max(seconds, 1e-6)
        factor = min(LEAP if wanted > 100.0 else STEP, max(1 / STEP, wanted))
        self.width = max(1, min(WIDEST_SLICE, int((high - low) * factor)))


def cuts_of(problem: Problem, width: int | None = None) -> Cuts:
    """Return the cuts of a whole space, the first of ``width`` candidates (None: what its kind begins with)."""
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
    """Search a whole space; return its piece, in words who did the work, and remarks about workers.

    ``sampling`` is told of the sample that goes before (``sampled``).

    Unless ``choice`` names Ray the search begins in this process, and goes on in others when that takes long: those
    would first have to start, and to cost what this one knows already.

    Raises:
        RequestError: a slice raised it, or no Ray answers at the address.
        SliceFailed: a slice raised anything else.
        EndedEarly: with the piece that was found by then.
    """
    sample = sampled(problem, score, sampling)
    task, cuts = Task(problem=bounded(problem, sample), score=score), cuts_of(problem)
    try:
        return _by(choice, task, cuts, progress)
    except KeyboardInterrupt as stop:
        found = stop.found if isinstance(stop, EndedEarly) else SliceResult()
        if sample is not None and (found.best is None or not len(found.best)):
            found = replace(found, best=sample.best, fastest=sample.fastest, safest=sample.safest)
        raise EndedEarly(found, stop) from None


def _by(choice: Choice, task: Task, cuts: Cuts, progress: Progress | None) -> tuple[SliceResult, str, tuple[str, ...]]:
    """Search by the workers of a choice; see ``search_with``."""
    ours = task.score is simulator_score  # another scorer need not be one that processes find by name
    asked = choice.kind is not None or choice.address is not None or choice.count is not None
    if asked and (choice.several != "processes" or not ours):
        with open_workers(choice) as workers:
            return _run(workers, task, cuts, progress), workers.describe(), workers.remarks
    early = _run(
        SerialWorkers(), task, cuts, progress, give_up=_Patience(cuts, choice.count or cores()) if ours else None
    )
    if cuts.low >= cuts.high:
        return early, SerialWorkers().describe(), ()
    try:
        others = open_workers(choice)
    except KeyboardInterrupt as stop:
        raise EndedEarly(early, stop) from None
    with others as workers:
        late = _run(workers, task, cuts, progress, done=early)
        return late, f"{SerialWorkers().describe()}, then {workers.describe()}", workers.remarks


class _Patience:
    """Says when one process has worked long enough and much is left."""

    def __init__(self, cuts: Cuts, workers: int) -> None:
        self.cuts, self.start_s, self.workers = cuts, time.process_time(), workers

    def ended(self) -> bool:
        """Whether others should go on."""
        spent_s = time.process_time() - self.start_s  # not by the clock: cores that others keep busy are no help
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
    """Search what ``cuts`` has left, and add it to ``done``."""
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
    """Search one slice: what workers do."""
    return search_slice(task.problem, *item, score=task.score)


def _error(item: tuple[int, int], failure: Failure) -> ForerunError:
    if failure.exit_code == RequestError.exit_code:
        return RequestError(failure.message)
    return SliceFailed(
        f"candidates {item[0]} to {item[1] - 1} could not be scored: {failure}\n{failure.trace}".rstrip()
    )
