"""Descendants of a process (by id and start ticks, since ids are reused), and its signal handlers."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Family = dict[int, str]
"""Ticks at which processes began, by process id."""


def began(pid: int) -> str:
    """Return the ticks at which a process began, "0" if the system has no ticks; empty without such a process."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state == "Z" else rest[18]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "0"


def family_of(pid: int) -> Family:
    """Return a process and its descendants (outside Linux only the process)."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    members, ring = {pid}, {pid}
    while ring:
        ring = {child for child, parent in parents.items() if parent in ring} - members
        members |= ring
    return {member: ticks for member in members if (ticks := began(member))}


def living(family: Family) -> list[int]:
    """Return the running processes."""
    return [pid for pid, ticks in family.items() if began(pid) == ticks]


def kill(family: Family) -> None:
    """Kill the running processes."""
    for pid in living(family):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end a program."""


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Restore signal handlers that a library replaces in the block, and call them where its own end the program."""
    numbers = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    except SystemExit:
        ours = before[signal.SIGTERM]
        if callable(ours):
            ours(signal.SIGTERM, None)
        raise
    finally:
        for number, handler in before.items():
            with suppress(ValueError):  # not in the main thread, so libraries replace no handlers
                if handler is not None:
                    signal.signal(number, handler)
