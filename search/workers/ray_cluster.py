"""Connection to an existing Ray cluster."""

import os
import socket
from importlib import import_module
from pathlib import Path
from typing import Any

from forerun.spaces.errors import RequestError

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}
"""Environment variables without usage reports (docs.ray.io/en/latest/cluster/usage-stats.html), without a change of GPU
variables in tasks without a GPU (Ray warns otherwise), and without C++ stack traces on a SIGTERM during Ray's start.
They must be set before ray is imported."""
OPTIONS = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
"""Options of ``ray.init`` that keep it from printing."""
PATIENCE_S = 3.0
"""Seconds until an address without connection or answer counts as unreachable."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""First bytes of an HTTP/2 client (RFC 9113, section 3.4), Ray's protocol: a preface and empty settings. The server's
first frame must be its settings, type 4."""


def load_ray(address: str | None) -> Any:
    """Import ray, typed as Any, since its functions are only partly typed.

    Parameters
    ----------
    address
        Cluster to join (HOST:PORT, ray://HOST:PORT or auto); None: no cluster.

    Raises
    ------
    RequestError
        No Ray answers at the address.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if address is not None:
        _probe(address)
        _show_token()
    return import_module("ray")


def join(ray: Any, address: str, **options: Any) -> None:
    """Join a cluster.

    Raises
    ------
    RequestError
        The cluster refuses the connection.
    """
    try:
        ray.init(address=address, **OPTIONS, **options)
    except Exception as error:
        if address == "auto" and isinstance(error, ConnectionError):
            raise RequestError(
                "no Ray cluster runs on this machine; start one with `ray start --head`, or name the HOST:PORT of one"
            ) from None
        raise RequestError(
            f"no Ray cluster lets us in at {address} ({first_line(error)}); both sides need the same version of Ray "
            "and, where the cluster asks for a token, RAY_AUTH_MODE=token and the same ~/.ray/auth_token"
        ) from None


def _show_token() -> None:
    """Make Ray send the user's token, which a head node with a token requires.

    This must run before ray is imported (docs.ray.io/en/latest/ray-security/token-auth.html).
    """
    if Path("~/.ray/auth_token").expanduser().is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _probe(address: str) -> None:
    """Check in seconds that a Ray cluster listens, since Ray itself takes minutes to fail."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not separator or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise RequestError(f"the address of a Ray cluster is HOST:PORT, ray://HOST:PORT or auto, but got {address!r}")
    why = ""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("", "0") and not _speaks(connection):
                why = "whatever listens there is not Ray"
    except (OSError, OverflowError, ValueError) as error:  # ValueError: an impossible host name
        why = first_line(error)
    if why:
        raise RequestError(
            f"no Ray cluster answers at {address} ({why}); start one with `ray start --head` or leave "
            "the address out to use this machine"
        )


def head_of(ray: Any) -> str:
    """Return HOST:PORT of the head node's control service; empty if this version of Ray does not provide it."""
    try:
        return str(ray.get_runtime_context().gcs_address)
    except Exception:  # clients of ray:// have none
        return ""


def node_of(ray: Any) -> str:
    """Return HOST:PORT of the node that receives tasks; empty if this Ray does not provide it, or without an answer."""
    try:
        driver = ray.get_runtime_context().get_node_id()
        (node,) = (each for each in ray.nodes() if each["NodeID"] == driver)
        address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    except Exception:  # clients of ray:// have none
        return ""
    return address if listens(address) else ""


def listens(address: str) -> bool:
    """Whether HOST:PORT accepts connections; an unknown address counts as listening."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return True
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def _speaks(connection: socket.socket) -> bool:
    """Whether the server answers in HTTP/2; Ray itself would wait for minutes otherwise."""
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


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or its kind."""
    return (str(error).splitlines() or [type(error).__name__])[0]
