"""Addresses on which processes listen, from the tables of the kernel (Linux)."""

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def tables_readable() -> bool:
    """Whether the system shows the listening sockets of processes."""
    return any(os.access(table, os.R_OK) for table in TABLES)


def reached_from_outside(pids: Iterable[int]) -> list[str]:
    """Return the addresses beyond the loopback device, as HOST:PORT, on which any of the given processes listens.

    Without ``tables_readable`` the result is empty.
    """
    sockets = {number for pid in pids for number in _sockets_of(pid)}
    listened = [(host, port) for host, port, number in _listening() if number in sockets]
    return sorted({f"{host}:{port}" for host, port in listened if not _loopback(host)})


def _loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _sockets_of(pid: int) -> Iterator[str]:
    """Yield the numbers of the open sockets of a process."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if match := _SOCKET.fullmatch(os.readlink(entry)):
                    yield match[1]


def _listening() -> Iterator[tuple[str, int, str]]:
    """Yield host, port and number of every listening socket."""
    for table in TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == LISTENING:
                    host, _, port = cells[1].partition(":")
                    yield _host(host), int(port, 16), cells[9]


def _host(digits: str) -> str:
    """Return an address from the kernel's hexadecimal words of four bytes, in the order of this machine (x86, ARM)."""
    packed = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
