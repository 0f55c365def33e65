"""How workers are chosen and opened: what makes no sense, addresses where no Ray answers, and what takes its place."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from forerun.search.workers import Choice, open_workers, ray_cluster, ray_tasks, sockets
from forerun.spaces.errors import RequestError


@pytest.mark.parametrize(
    "fields,law",
    [
        ({"kind": "ray2"}, "unknown kind of workers 'ray2'; did you mean ray?"),
        ({"kind": "processes", "count": 0}, "at least 1, but got 0"),
        ({"kind": "serial", "count": 4}, "serial means one worker, but got 4"),
        ({"kind": "processes", "address": "auto"}, "--address is for --workers ray"),
    ],
)
def test_choices_that_make_no_sense(fields: dict[str, Any], law: str) -> None:
    with pytest.raises(RequestError, match=law):
        Choice(**fields)


@pytest.mark.parametrize("address,law", [("nowhere", "HOST:PORT"), ("127.0.0.1:{port}", "no Ray cluster answers at")])
def test_an_unreachable_address_is_said_at_once(address: str, law: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with pytest.raises(RequestError, match=law):
            open_workers(Choice(kind="ray", address=address.format(port=unused.getsockname()[1])))


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "closes", "http"])
def test_whatever_listens_and_is_not_ray_is_said_at_once(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "PATIENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                if answer is None:
                    connection.recv(1024)  # until the other side has lost patience
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(RequestError, match="whatever listens there is not Ray"):
            open_workers(Choice(kind="ray", address=f"127.0.0.1:{server.getsockname()[1]}"))
        thread.join()


@pytest.mark.parametrize(
    ("error", "why"),
    [(ModuleNotFoundError(name="ray"), "it is not installed"), (RuntimeError("raylet died\ntrace"), "raylet died")],
)
def test_where_ray_does_not_start_processes_work(error: Exception, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_cluster, "import_module", fail)
    with open_workers(Choice(kind="ray", count=1)) as workers:
        assert workers.name == "processes"
        assert [outcome.result for outcome in workers.run(pow, 2, [3])] == [8]

    assert workers.remarks == (f"Ray did not start: {why}; the work is done in 1 process",)


def test_the_package_of_workers_does_not_load_ray() -> None:
    code = "import sys, forerun.search.api; assert not {'ray', 'optuna', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not sockets.TABLES[0].exists(), reason="no tables of the kernel to read")
@pytest.mark.parametrize(
    ("family", "host", "outside"),
    [
        (socket.AF_INET, "127.0.0.1", False),
        (socket.AF_INET6, "::1", False),
        (socket.AF_INET, "0.0.0.0", True),
        (socket.AF_INET6, "::", True),
    ],
)
def test_whoever_listens_beyond_this_machine_is_seen(family: int, host: str, outside: bool) -> None:
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no such device")
    with server:
        port = server.getsockname()[1]
        reached = sockets.reached_from_outside([os.getpid()])
        assert any(one.endswith(f":{port}") for one in reached) is outside
    assert not sockets.reached_from_outside([])


@pytest.mark.parametrize("seen", [True, False])
def test_a_ray_that_others_could_reach_is_refused(seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes do the work, and the remark states why; so where nobody can see who reaches it."""
    ended = list[str]()

    class Ray:
        started = False

        def is_initialized(self) -> bool:
            return self.started

        def init(self, **_: object) -> None:
            self.started = True

        def shutdown(self) -> None:
            ended.append("ray")

    monkeypatch.setattr(ray_cluster, "import_module", lambda name: Ray())
    monkeypatch.setattr(ray_tasks, "reached_from_outside", lambda pids: ["0.0.0.0:6379"])
    monkeypatch.setattr(sockets, "TABLES", (Path("/proc/net/tcp" if seen else "/none"),))
    with open_workers(Choice(kind="ray", count=1)) as workers:
        assert workers.name == "processes"
        assert ("listens on 0.0.0.0:6379" if seen else "does not show") in workers.remarks[0]
    assert ended == ["ray"] * seen
