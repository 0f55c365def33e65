"""Every kind of workers keeps the contract: one outcome for each item, errors as failures, the same leaderboard."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import worker_items
from worker_items import die, die_once, quotient

from forerun.search.api import search
from forerun.search.explore.flat import slicing
from forerun.search.explore.flat.exhaustive import Best, Problem, SliceResult
from forerun.search.explore.flat.sample import search_space
from forerun.search.explore.flat.slicing import Cuts, SliceFailed, Task, search_one, search_with
from forerun.search.request.limits import TrainingLimits
from forerun.search.request.setting import Setting
from forerun.search.workers import Choice, Workers, open_workers
from forerun.simulator import MEMORY_PARTS, TIME_PARTS, ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, StrategyTable


@pytest.fixture(
    params=["serial", "processes", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow])],
    scope="module",
    name="workers",
)
def _workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with pytest.MonkeyPatch.context() as environment, contextlib.ExitStack() as opened:
        # Ray's workers know the path from the environment alone.
        environment.setenv("PYTHONPATH", str(Path(worker_items.__file__).parent), prepend=os.pathsep)
        workers = opened.enter_context(
            open_workers(Choice(kind=request.param, count=None if request.param == "serial" else 2))
        )
        assert workers.name == request.param, workers.remarks
        yield workers


def raising(context: Context, table: StrategyTable) -> ScoreTable:
    raise ZeroDivisionError("no such rule")


def refusing(context: Context, table: StrategyTable) -> ScoreTable:
    raise RequestError("the device lacks fp8; use bf16")


def content(piece: SliceResult) -> tuple[Any, ...]:
    assert piece.best is not None
    counts = (piece.enumerated, piece.legal, piece.feasible, dict(piece.rejected))
    return (
        *counts,
        piece.best.index.tobytes(),
        piece.best.keys.tobytes(),
        piece.best.scores.peak_memory_bytes.tobytes(),
    )


def test_every_item_ends_once_and_errors_are_failures(workers: Workers) -> None:
    outcomes = sorted(workers.run(quotient, 12, iter([1, 2, 0, 4] * 5)), key=lambda outcome: outcome.number)

    assert [outcome.number for outcome in outcomes] == list(range(20))
    assert [outcome.item for outcome in outcomes] == [1, 2, 0, 4] * 5
    assert [outcome.result for outcome in outcomes] == [12.0, 6.0, None, 3.0] * 5
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    assert len(failures) == 5
    assert str(failures[0]).startswith("ZeroDivisionError: ")
    assert "in quotient" in failures[0].trace


def test_items_are_drawn_as_they_are_needed(workers: Workers) -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1, 1000):
            drawn.append(number)
            yield number

    outcomes = workers.run(quotient, 1, items())
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]  # a generator

    assert len(drawn) <= workers.window + 1


def test_outcomes_can_bring_more_items_after_the_end(workers: Workers) -> None:
    class Queue(Iterator[int]):
        def __init__(self) -> None:
            self.left = [8]

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            return self.left.pop()

    queue, seen = Queue(), []
    for outcome in workers.run(quotient, 1, queue):
        seen.append(outcome.item)
        if outcome.item > 1:
            queue.left += [outcome.item // 2, 1]

    assert sorted(seen) == [1, 1, 1, 1, 2, 4, 8]


@pytest.mark.parametrize("objective", ["throughput", "cost,headroom,gpus"])
@pytest.mark.slow
def test_the_leaderboard_is_the_same_bit_for_bit(
    workers: Workers, make_setting: Callable[..., Setting], objective: str
) -> None:
    limits = TrainingLimits(step_s=20.0)
    problem = Problem(space=make_setting(gpus="8..16").space({"vpp": [1]}), objective=objective, top=50, limits=limits)
    task, size = Task(problem=problem, score=search_space.__kwdefaults__["score"]), problem.space.size
    expected = search_space(problem)

    pieces = [outcome.result for outcome in workers.run(search_one, task, Cuts(low=0, high=size, width=size // 7))]

    assert len(pieces) >= 7
    assert expected.best is not None and len(expected.best) > 1
    assert content(problem.merged(pieces)) == content(expected)
    assert content(problem.merged(pieces[::-1])) == content(expected)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search go over to other processes after its first slice of a thousand candidates."""
    monkeypatch.setattr(slicing, "PATIENCE_S", -1.0)
    monkeypatch.setattr(slicing, "WORTH_S", -1.0)
    monkeypatch.setattr(slicing, "kind_of", lambda _: SimpleNamespace(first=1000))
    monkeypatch.setattr(slicing, "cores", lambda: 2)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("count", "words"), [(1, "in this process"), (3, "in this process, then in 3 processes")])
@pytest.mark.slow
def test_the_number_of_workers_changes_nothing(count: int, words: str, make_setting: Callable[..., Setting]) -> None:
    space = make_setting(gpus="8..16").space({"mbs": [1], "schedule": ["1f1b"]})
    problem = Problem(space=space, objective="throughput,headroom", top=50)

    piece, who, _ = search_with(problem, Choice(kind="processes", count=count))

    assert who == words
    assert content(piece) == content(search_space(problem))


def piece_of(task: Task, item: tuple[int, int]) -> SliceResult:
    """A piece as large as any: all that is kept of a slice is full."""
    index = np.arange(item[0], item[0] + task.problem.top)
    keys = np.sin(index.astype(np.float64))
    scores = ScoreTable(
        step_time_s=keys,
        time_s=dict.fromkeys(TIME_PARTS, keys),
        peak_memory_bytes=keys,
        allocated_bytes=keys,
        memory_bytes=dict.fromkeys(MEMORY_PARTS, keys),
        peak_stage=index,
        fits=index >= 0,
    )
    best = Best(index=index, keys=keys[None, :], scores=scores)
    counts = {f"law {number}": 1 for number in range(40)}
    return SliceResult(enumerated=item[1] - item[0], legal=1, feasible=1, rejected=counts, best=best, closest=best)


@pytest.mark.slow  # a long search
def test_the_memory_of_the_driver_does_not_follow_the_slices(
    workers: Workers, make_setting: Callable[..., Setting]
) -> None:
    problem = Problem(space=make_setting().space(), objective="throughput", top=1000)
    task = Task(problem=problem, score=search_space.__kwdefaults__["score"])
    peaks = []
    for slices in (50, 500):
        merged = SliceResult()
        tracemalloc.start()
        for outcome in workers.run(piece_of, task, ((1000 * n, 1000 * n + 1000) for n in range(slices))):
            merged = problem.merged([merged, outcome.result])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (merged.enumerated, len(merged.best or ())) == (1000 * slices, 1000)

    # Had the driver kept the rows of all slices, 450 more would be 14 MB.
    assert peaks[1] - peaks[0] < 1_000_000


def test_a_killed_worker_loses_nothing(workers: Workers, tmp_path: Path) -> None:
    if workers.name == "serial":
        pytest.skip("the worker is the driver")
    outcomes = list(workers.run(die_once, str(tmp_path), range(12)))

    assert (tmp_path / "died").exists()
    assert sorted(outcome.item for outcome in outcomes) == list(range(12))
    assert all(outcome.failure is None and outcome.result == outcome.item for outcome in outcomes)


@pytest.mark.slow  # workers die and start again
def test_only_the_item_that_kills_its_worker_fails() -> None:
    with open_workers(Choice(kind="processes", count=2)) as workers:
        outcomes = {outcome.item: outcome for outcome in workers.run(die, 3, range(8))}

    assert sorted(outcomes) == list(range(8))
    assert [item for item, outcome in outcomes.items() if outcome.failure] == [3]
    assert str(outcomes[3].failure).startswith("WorkerLost: the worker died 3 times")


def test_processes_end_with_their_workers() -> None:
    with open_workers(Choice(kind="processes", count=2)) as workers:
        list(workers.run(quotient, 1, [1, 2]))

    assert not multiprocessing.active_children()


def test_processes_end_when_their_driver_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        "import os, time\n"
        "from forerun.search.workers import Choice, open_workers\n"
        "if __name__ == '__main__':\n"
        "    workers = open_workers(Choice(kind='processes', count=1))\n"
        "    for outcome in workers.run(pow, 2, [3, 4]):\n"
        "        import multiprocessing\n"
        "        print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "        time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        child = int(driver.stdout.readline())
        os.kill(child, 0)  # it lives
        driver.kill()
    deadline = time.monotonic() + 20
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not _lives(child)


def _lives(process: int) -> bool:
    """Whether a process runs; one that ended and was not yet fetched does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["serial", "processes"])
@pytest.mark.slow
def test_a_slice_that_raises_is_an_error_and_not_infeasible(kind: str, make_setting: Callable[..., Setting]) -> None:
    problem = Problem(space=make_setting().space({"mbs": [1], "vpp": [1]}), objective="throughput", top=5)

    with pytest.raises(SliceFailed, match=r"candidates 0 to \d+ could not be scored: ZeroDivisionError: no such rule"):
        search_with(problem, Choice(kind=kind), score=raising)
    with pytest.raises(RequestError, match="lacks fp8"):
        search_with(problem, Choice(kind=kind), score=refusing)


def test_the_output_says_who_worked() -> None:
    request: dict[str, Any] = {"cluster": "dgx-h100", "gpus": 8, "global_batch": 64, "seq_len": 4096}
    ours = search("llama3-8b", **request)
    others = search("llama3-8b", **request, workers=Choice(kind="processes", count=2))

    assert ours.workers == others.workers == "in this process"  # it ends before others would have started
    assert ours.rows == others.rows
    assert ours.space == others.space


@pytest.mark.slow  # starts processes
@pytest.mark.usefixtures("impatient")
def test_a_search_goes_over_to_processes_when_it_takes_long(make_setting: Callable[..., Setting]) -> None:
    problem = Problem(
        space=make_setting(gpus="8..16").space({"mbs": [1], "schedule": ["1f1b"]}), objective="throughput", top=50
    )
    piece, who, remarks = search_with(problem, Choice())

    assert who.startswith("in this process, then in ")
    assert remarks == ()
    assert content(piece) == content(search_space(problem))


def test_cuts_cover_the_space_and_follow_the_seconds() -> None:
    from forerun.search.workers.contract import ItemOutcome

    cuts, seen, widths = Cuts(low=0, high=10_000, width=100, target=0.4), [], []
    for low, high in cuts:
        seen += [low, high]
        widths.append(high - low)
        cuts.learn(ItemOutcome(number=0, item=(low, high), seconds=0.0001 * (high - low)))

    assert seen[0] == 0 and seen[-1] == 10_000
    assert seen[1:-1:2] == seen[2::2]
    assert widths[:3] == [100, 400, 1600] and max(widths) == 4000


@pytest.mark.slow  # a long search
def test_tiny_slices_are_few() -> None:
    from forerun.search.workers.contract import ItemOutcome

    cuts, seconds = Cuts(low=0, high=10**10, workers=2), []
    for low, high in cuts:
        seconds.append((high - low) * 1e-9)
        cuts.learn(ItemOutcome(number=0, item=(low, high), seconds=seconds[-1]))

    assert sum(seconds) == pytest.approx(10.0)
    assert sum(each < 0.1 * max(seconds) for each in seconds) <= 3
    assert seconds[-1] <= max(seconds) / 4
