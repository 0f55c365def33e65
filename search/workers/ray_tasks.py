"""Work in Ray tasks, on this machine or on a cluster.

Only raw tasks are used: common data is put once, a bounded window is in flight, and all ready results are fetched at
once (docs.ray.io/en/latest/ray-core/patterns). Ray restarts a task whose worker or node dies.
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from forerun.search.workers.contract import (
    ATTEMPTS,
    Failure,
    ItemOutcome,
    Work,
    Workers,
    WorkersLostError,
    attempt,
    failure_of,
    lost,
)
from forerun.search.workers.process_tree import family_of, kept_handlers, kill
from forerun.search.workers.processes import few_threads
from forerun.search.workers.ray_cluster import OPTIONS, first_line, head_of, join, listens, load_ray, node_of
from forerun.search.workers.sockets import reached_from_outside, tables_readable

WATCH_S = 1.0
"""Seconds between two checks of the head node while no result arrives."""


class RayWorkers(Workers):
    """One Ray task at a time per CPU of a cluster, or of ``count`` CPUs of this machine without an address.

    Raises:
        RequestError: no Ray answers at ``address``.
        Exception: any error of a local start.
    """

    name = "ray"

    def __init__(self, count: int | None, address: str | None = None) -> None:
        self._address = address
        with _ended_at_once():
            ray = self._ray = load_ray(address)
            self._ours = not ray.is_initialized()
            if address is None and self._ours and not tables_readable():
                raise RuntimeError("this system does not show if others could reach it")
            before = family_of(os.getpid())
            try:
                if self._ours:
                    with kept_handlers():
                        _start(ray, count, address)
            finally:
                self._family = {pid: ticks for pid, ticks in family_of(os.getpid()).items() if pid not in before}
                if not ray.is_initialized():
                    kill(self._family)
        if address is None and self._ours:
            self._refuse_strangers()
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.count = cpus if count is None else min(count, cpus) if address is None else count
        self._head, self._lost = head_of(ray), False
        self._node = node_of(ray)
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_do)

    def _refuse_strangers(self) -> None:
        """Shut down a locally started Ray that other machines could reach, since every client can run code."""
        reached = reached_from_outside(self._family)
        if reached:
            self._ray.shutdown()
            kill(self._family)
            raise RuntimeError(f"this version of Ray listens on {', '.join(reached[:3])}, where others can reach it")

    def describe(self) -> str:
        """Return a description of the workers."""
        return f"by Ray on {self.count} CPU{'s' if self.count > 1 else ''}" + (
            f" at {self._address}" if self._address else ""
        )

    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Yield outcomes as they arrive."""
        ray, source = self._ray, enumerate(items)
        shared = ray.put((work, common))
        flying: dict[Any, tuple[int, Any]] = {}
        try:
            while True:
                while len(flying) < self.window and (following := next(source, None)) is not None:
                    flying[self._task.remote(shared, following[1])] = following
                if not flying:
                    return
                self._wait(flying)
                ready, _ = ray.wait(list(flying), num_returns=len(flying), timeout=0)
                for reference in ready:
                    yield self._outcome(reference, *flying.pop(reference))
        finally:
            if not self._lost:
                for reference in flying:
                    ray.cancel(reference, force=True)

    def _wait(self, flying: dict[Any, tuple[int, Any]]) -> None:
        """Wait for an answer, and check meanwhile that the cluster is alive."""
        end_s = time.monotonic() + self.limit_s
        while True:
            ready, _ = self._ray.wait(list(flying), num_returns=1, timeout=WATCH_S)
            if ready:
                return
            if not listens(self._head):
                raise self._cluster_lost("its head node does not answer any more")
            if not listens(self._node):
                raise self._cluster_lost("the node that this process is on does not answer any more")
            if time.monotonic() > end_s:
                raise WorkersLostError(f"no task of Ray has answered for {self.limit_s:g} s; is the cluster stuck?")

    def _cluster_lost(self, why: str) -> WorkersLostError:
        """End the rest of a local Ray, and return the error for the user."""
        self._lost = True
        kill(self._family)
        where = f" at {self._address}" if self._address else ""
        return WorkersLostError(f"the Ray cluster{where} is lost: {why}")

    def _outcome(self, reference: Any, number: int, item: Any) -> ItemOutcome:
        try:
            result, failure, seconds = self._ray.get(reference)
        except self._ray.exceptions.LocalRayletDiedError:
            raise self._cluster_lost("the node that this process is on has died") from None
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError) as error:
            return ItemOutcome(number=number, item=item, failure=lost(ATTEMPTS, first_line(error)))
        except self._ray.exceptions.RayError as error:
            return ItemOutcome(number=number, item=item, failure=failure_of(error))
        return ItemOutcome(number=number, item=item, result=result, failure=failure, seconds=seconds)

    def close(self) -> None:
        """Disconnect from Ray, and shut it down if this object started it."""
        if self._ours and not self._lost and self._ray.is_initialized():
            self._ray.shutdown()
            kill(self._family)


def _start(ray: Any, count: int | None, address: str | None) -> None:
    """Start Ray on this machine, or join it at ``address``."""
    if address is None:
        with few_threads():  # workers inherit the environment; a runtime environment would cost seconds more
            # "local" also ignores an unrelated Ray on this machine.
            with _on_loopback():
                ray.init(
                    address="local", num_cpus=count, include_dashboard=False, _node_ip_address="127.0.0.1", **OPTIONS
                )
        return
    join(ray, address, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}})


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make a locally started Ray listen on the loopback device only.

    Ray does so for a node at 127.0.0.1, which ``ray.init`` replaces by a network address (Ray 2.9 to 2.60).
    """
    services = import_module("ray._private.services")
    before = getattr(services, "resolve_ip_for_localhost", None)
    if before is None:
        yield
        return
    services.resolve_ip_for_localhost = lambda host: host  # type: ignore[attr-defined]
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = before  # type: ignore[attr-defined]


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """End this process without exit handlers of libraries if it is stopped in the block.

    A Ray that was stopped while it was imported or started crashes at exit, in its threads or its handlers.
    """

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code)

    try:
        yield
    except KeyboardInterrupt as stop:
        exit_code = int(getattr(stop, "exit_code", 128 + signal.SIGINT))
        atexit.register(leave)
        raise


def _do(shared: tuple[Work, Any], item: Any) -> tuple[Any, Failure | None, float]:
    work, common = shared
    return attempt(work, common, item)
