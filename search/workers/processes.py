"""Work in processes of this machine.

Processes are spawned, so that they share no state, thread or lock with the caller. When one dies, the pool of
``concurrent.futures`` is lost with everything in flight; these items are then tried one at a time in a new pool, so
that only the item that kills its process uses up its attempts.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from forerun.search.workers.contract import ATTEMPTS, Failure, ItemOutcome, Work, Workers, attempt, lost

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that keep numpy's libraries from starting a thread per core in every process."""

_COMMON: dict[str, Any] = {}  # in a worker: data common to all items; written once, by the initializer


@dataclass(slots=True, kw_only=True)
class _Job:
    number: int
    item: Any
    deaths: int = 0


class ProcessWorkers(Workers):
    """``count`` processes; a pool exists during one ``run``."""

    name = "processes"

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None

    def describe(self) -> str:
        """Return a description of the workers."""
        return f"in {self.count} process{'es' if self.count > 1 else ''}"

    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Yield outcomes as they arrive; the module describes the death of a process."""
        source = enumerate(items)
        suspects: deque[_Job] = deque()
        flying: dict[Future[Any], _Job] = {}
        try:
            while True:
                broken = not self._fill(work, common, source, suspects, flying)
                if not flying and not broken:
                    return
                done = wait(flying, self.limit_s, return_when=FIRST_COMPLETED).done if flying else set[Future[Any]]()
                if flying and not done:  # all items in flight hang, or one for which the others wait
                    self._kill()
                    done = wait(flying).done
                for future in done:
                    if isinstance(future.exception(), BrokenProcessPool):
                        broken = True
                    else:
                        yield _outcome(flying.pop(future), future)
                if broken:
                    yield from self._recover(suspects, flying)
        except KeyboardInterrupt:
            self._kill()
            raise
        finally:
            self.close()

    def _fill(
        self,
        work: Work,
        common: Any,
        source: Iterator[tuple[int, Any]],
        suspects: deque[_Job],
        flying: dict[Future[Any], _Job],
    ) -> bool:
        """Send items until the window is full; suspects are sent first and alone.

        Return False if the pool is broken.
        """
        while len(flying) < (1 if suspects else self.window):
            if suspects:
                job = suspects.popleft()
                alone = True
            else:
                following = next(source, None)
                if following is None:
                    return True
                job = _Job(number=following[0], item=following[1])
                alone = False
            try:
                # Processes inherit both settings at their start, which may happen at any submission.
                resource_tracker.ensure_running()  # which accepts Ctrl-C again when it starts
                with few_threads(), uninterrupted():
                    flying[self._open(common).submit(_do, work, job.item)] = job
            except BrokenProcessPool:
                suspects.appendleft(job)
                return False
            if alone:
                return True
        return True

    def _recover(self, suspects: deque[_Job], flying: dict[Future[Any], _Job]) -> Iterator[ItemOutcome]:
        """Drop the broken pool; count a death if one item was alone, else suspect all items in flight."""
        for future in list(flying):  # some items may have finished before the pool broke
            if future.done() and not isinstance(future.exception(), BrokenProcessPool):
                yield _outcome(flying.pop(future), future)
        alone = len(flying) == 1
        for job in sorted(flying.values(), key=lambda job: job.number, reverse=True):
            job.deaths += alone
            if job.deaths >= ATTEMPTS:
                yield ItemOutcome(
                    number=job.number,
                    item=job.item,
                    failure=lost(job.deaths, f"a process ended, or gave no answer for {self.limit_s:g} s"),
                )
            else:
                suspects.appendleft(job)
        flying.clear()
        self.close()

    def _open(self, common: Any) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(common,),
            )
        return self._pool

    def _kill(self) -> None:
        """End the processes at once: an interrupt does not wait for items in flight."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()

    def close(self) -> None:
        """End the processes; items that have not begun are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


@contextmanager
def few_threads() -> Iterator[None]:
    """Limit numpy to one thread, unless the user has set the variables."""
    added = [name for name in THREAD_LIMITS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block Ctrl-C during the start of a process, which would otherwise die and break the pool."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(job: _Job, future: Future[Any]) -> ItemOutcome:
    error = future.exception()
    if error is not None:  # the item or its result could not be sent
        failure: Failure | None = Failure(kind=type(error).__name__, message=str(error))
        return ItemOutcome(number=job.number, item=job.item, failure=failure)
    result, failure, seconds = future.result()
    return ItemOutcome(number=job.number, item=job.item, result=result, failure=failure, seconds=seconds)


def _start_worker(common: Any) -> None:
    """Prepare a process: store the common data, leave Ctrl-C to the driver, end with the driver."""
    _COMMON["value"] = common
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent ends: a killed driver cannot end its workers, which would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(work: Work, item: Any) -> tuple[Any, Failure | None, float]:
    return attempt(work, _COMMON["value"], item)
