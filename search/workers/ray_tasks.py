"""Work in Ray tasks, on this machine or on a cluster.

Only raw tasks are used: what all items share is put once, a bounded window is in flight, and everything that is ready
is fetched at once (docs.ray.io/en/latest/ray-core/patterns). A task whose worker or node dies is started again by Ray.
"""

import atexit
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
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
from forerun.search.workers.handlers import kept_handlers
from forerun.search.workers.processes import few_threads
from forerun.search.workers.sockets import reached_from_outside
from forerun.spaces.errors import RequestError

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
"""Nothing is reported home (docs.ray.io/en/latest/cluster/usage-stats.html), and tasks without a GPU keep the
environment as it is, which Ray else warns about. Must be set before ray is imported."""
PATIENCE_S = 3.0
"""Seconds until an address that takes no connection, or does not speak, counts as unreachable."""
WATCH_S = 1.0
"""Seconds between two looks at whether the head node still listens, while nothing comes back."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client opens a connection of HTTP/2, which Ray speaks (RFC 9113, section 3.4): a preface and empty settings.
The server's first frame must be its settings, type 4."""


class RayWorkers(Workers):
    """One Ray task at a time per CPU of a cluster, or of ``count`` CPUs of this machine where no address is given.

    Raises:
        RequestError: no Ray answers at ``address``.
        Exception: whatever a local start raises.
    """

    name = "ray"

    def __init__(self, count: int | None, address: str | None = None) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        if address is not None:
            _probe(address)
            _show_token()
        ray: Any = import_module("ray")  # as Any: its functions are typed in part
        self._ray = ray
        self._address = address
        self._ours = not ray.is_initialized()
        before = _descendants()
        try:
            if self._ours:
                with kept_handlers():
                    _start(ray, count, address)
        except KeyboardInterrupt as stop:
            _leave_at_once(getattr(stop, "exit_code", 128 + signal.SIGINT))
            raise
        finally:
            self._family = {pid: began for pid, began in _descendants().items() if pid not in before}
            if not ray.is_initialized():
                _end(self._family)
        if address is None and self._ours:
            self._refuse_strangers()
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.count = cpus if count is None else min(count, cpus) if address is None else count
        self._head, self._lost = _head_of(ray), False
        self._node = _node_of(ray)
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_do)

    def _refuse_strangers(self) -> None:
        """End a Ray of our own that others could reach: who connects to it runs what he likes.

        Raises:
            RuntimeError: it listens beyond this machine.
        """
        reached = reached_from_outside(self._family)
        if reached:
            self._ray.shutdown()
            _end(self._family)
            raise RuntimeError(f"this version of Ray listens on {', '.join(reached[:3])}, where others can reach it")

    def describe(self) -> str:
        """Return in words who works."""
        return f"by Ray on {self.count} CPU{'s' if self.count > 1 else ''}" + (
            f" at {self._address}" if self._address else ""
        )

    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Yield outcomes as they come."""
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
        """Wait for an answer, and see to it that somebody is there to give one.

        Raises:
            WorkersLostError: the cluster is lost; Ray itself would end this process after a minute, without a word.
        """
        end_s = time.monotonic() + self.limit_s
        while True:
            ready, _ = self._ray.wait(list(flying), num_returns=1, timeout=WATCH_S)
            if ready:
                return
            if not _listens(self._head):
                raise self._cluster_lost("its head node does not answer any more")
            if not _listens(self._node):
                raise self._cluster_lost("the node that this process is on does not answer any more")
            if time.monotonic() > end_s:
                raise WorkersLostError(f"no task of Ray has answered for {self.limit_s:g} s; is the cluster stuck?")

    def _cluster_lost(self, why: str) -> WorkersLostError:
        """End what is left of a local Ray, and return the error that says so."""
        self._lost = True
        _end(self._family)
        where = f" at {self._address}" if self._address else ""
        return WorkersLostError(f"the Ray cluster{where} is lost: {why}")

    def _outcome(self, reference: Any, number: int, item: Any) -> ItemOutcome:
        try:
            result, failure, seconds = self._ray.get(reference)
        except self._ray.exceptions.LocalRayletDiedError:
            raise self._cluster_lost("the node that this process is on has died") from None
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError) as error:
            return ItemOutcome(number=number, item=item, failure=lost(ATTEMPTS, _first_line(error)))
        except self._ray.exceptions.RayError as error:
            return ItemOutcome(number=number, item=item, failure=failure_of(error))
        return ItemOutcome(number=number, item=item, result=result, failure=failure, seconds=seconds)

    def close(self) -> None:
        """Leave Ray, and end it where this object started it."""
        if self._ours and not self._lost and self._ray.is_initialized():
            self._ray.shutdown()
            _end(self._family)


def _start(ray: Any, count: int | None, address: str | None) -> None:
    """Start Ray on this machine, or join it at ``address``."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address is None:
        with few_threads():  # workers inherit it; a runtime environment would cost seconds more
            # "local" also where a Ray runs on this machine that nobody asked for.
            with _on_loopback():
                ray.init(
                    address="local", num_cpus=count, include_dashboard=False, _node_ip_address="127.0.0.1", **options
                )
        return
    try:
        ray.init(address=address, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}}, **options)
    except Exception as error:
        raise RequestError(
            f"no Ray cluster lets us in at {address} ({_first_line(error)}); both sides need the same version of Ray "
            "and, where the cluster asks for a token, RAY_AUTH_MODE=token and the same ~/.ray/auth_token"
        ) from None


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a Ray of our own listen on the loopback device alone: nobody else is to join it.

    It does so for a node at 127.0.0.1, which ``ray.init`` replaces by the address of a network (Ray 2.9 to 2.60).
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


def _show_token() -> None:
    """Let a cluster see the user's token: a head node asks for it where there is one, and Ray shows it only if told to.

    Must run before ray is imported (docs.ray.io/en/latest/ray-security/token-auth.html).
    """
    if Path("~/.ray/auth_token").expanduser().is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _probe(address: str) -> None:
    """Find out in seconds, and not in Ray's minutes, that nobody listens."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not separator or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise RequestError(f"--address is HOST:PORT, ray://HOST:PORT or auto, but got {address!r}")
    why = ""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0") and not _speaks(connection):
                why = "whatever listens there is not Ray"
    except (OSError, OverflowError, ValueError) as error:  # ValueError: a name that no host can have
        why = _first_line(error)
    if why:
        raise RequestError(
            f"no Ray cluster answers at {address} ({why}); start one with `ray start --head` or leave "
            "--address out to use this machine"
        )


def _head_of(ray: Any) -> str:
    """Return HOST:PORT of the head node's control service; empty where this Ray does not say."""
    try:
        return str(ray.get_runtime_context().gcs_address)
    except Exception:  # a client of ray:// has none
        return ""


def _node_of(ray: Any) -> str:
    """Return HOST:PORT of the node that tasks are handed to; empty where this Ray does not say, or nobody answers."""
    try:
        own = ray.get_runtime_context().get_node_id()
        (node,) = (each for each in ray.nodes() if each["NodeID"] == own)
        address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    except Exception:  # a client of ray:// has none
        return ""
    return address if _listens(address) else ""


def _leave_at_once(exit_code: int) -> None:
    """End this process without its libraries' last words: threads of a Ray that was stopped while it started crash."""

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code)

    atexit.register(leave)


def _descendants() -> dict[int, str]:
    """Return the processes that this one has started, directly or not, with the ticks at which each began (Linux)."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            rest = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(rest[1]), rest[19]
    found, ours = dict[int, str](), {os.getpid()}
    while ours:
        ours = {pid for pid, (parent, _) in parents.items() if parent in ours and pid not in found}
        found |= {pid: parents[pid][1] for pid in ours}
    return found


def _end(family: dict[int, str]) -> None:
    """End processes that are still those that they were."""
    for pid, began in family.items():
        with suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19] == began:
                os.kill(pid, signal.SIGKILL)


def _listens(address: str) -> bool:
    """Whether somebody takes connections at HOST:PORT; an address that nobody said counts as listening."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return True
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def _speaks(connection: socket.socket) -> bool:
    """Whether the other side speaks HTTP/2; Ray itself would wait for minutes to find that it does not."""
    connection.sendall(HELLO)
    answer = b""
    while len(answer) < 4:
        try:
            received = connection.recv(64)
        except TimeoutError:
            return False
        if not received:
            return False
        answer += received
    return answer[3] == 4


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _do(shared: tuple[Work, Any], item: Any) -> tuple[Any, Failure | None, float]:
    work, common = shared
    return attempt(work, common, item)
