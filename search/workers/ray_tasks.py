"""Work in Ray tasks, on this machine or on a cluster.

Only raw tasks are used: what all items share is put once, a bounded window is in flight, and everything that is ready
is fetched at once (docs.ray.io/en/latest/ray-core/patterns). A task whose worker or node dies is started again by Ray.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from forerun.search.workers.contract import ATTEMPTS, Failure, Outcome, Work, Workers, attempt, failure_of, lost
from forerun.search.workers.processes import few_threads
from forerun.spaces.errors import RequestError

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
"""Nothing is reported home (docs.ray.io/en/latest/cluster/usage-stats.html), and tasks without a GPU keep the
environment as it is, which Ray else warns about. Must be set before ray is imported."""
PATIENCE_S = 3.0
"""Seconds until an address that takes no connection, or does not speak, counts as unreachable."""
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
        if self._ours:
            _start(ray, count, address)
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.count = cpus if count is None else min(count, cpus) if address is None else count
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_do)

    def describe(self) -> str:
        """Return in words who works."""
        return f"by Ray on {self.count} CPU{'s' if self.count > 1 else ''}" + (
            f" at {self._address}" if self._address else ""
        )

    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[Outcome]:
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
                ready, _ = ray.wait(list(flying), num_returns=1)
                ready, _ = ray.wait(list(flying), num_returns=len(flying), timeout=0)
                for reference in ready:
                    yield self._outcome(reference, *flying.pop(reference))
        finally:
            for reference in flying:
                ray.cancel(reference, force=True)

    def _outcome(self, reference: Any, number: int, item: Any) -> Outcome:
        try:
            result, failure, seconds = self._ray.get(reference)
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError) as error:
            return Outcome(number=number, item=item, failure=lost(ATTEMPTS, str(error).splitlines()[0]))
        except self._ray.exceptions.RayError as error:
            return Outcome(number=number, item=item, failure=failure_of(error))
        return Outcome(number=number, item=item, result=result, failure=failure, seconds=seconds)

    def close(self) -> None:
        """Leave Ray, and end it where this object started it."""
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()


def _start(ray: Any, count: int | None, address: str | None) -> None:
    """Start Ray on this machine, or join it at ``address``."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address is None:
        with few_threads():  # workers inherit it; a runtime environment would cost seconds more
            # "local" also where a Ray runs on this machine that nobody asked for.
            ray.init(address="local", num_cpus=count, include_dashboard=False, **options)
        return
    try:
        ray.init(address=address, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}}, **options)
    except Exception as error:
        raise RequestError(
            f"no Ray cluster lets us in at {address} ({_first_line(error)}); both sides need the same version of Ray "
            "and, where the cluster asks for a token, RAY_AUTH_MODE=token and the same ~/.ray/auth_token"
        ) from None


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
    if not separator or not port.isdigit():
        raise RequestError(f"--address is HOST:PORT, ray://HOST:PORT or auto, but got {address!r}")
    why = ""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0") and not _speaks(connection):
                why = "whatever listens there is not Ray"
    except (OSError, OverflowError) as error:
        why = _first_line(error)
    if why:
        raise RequestError(
            f"no Ray cluster answers at {address} ({why}); start one with `ray start --head` or leave "
            "--address out to use this machine"
        )


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
