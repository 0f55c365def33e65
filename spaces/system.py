"""System calls with which forerun changes files and processes; tests make each of them fail in turn.

A call that fails raises OSError.
"""

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Errors of file systems without locks."""


def write(descriptor: int, data: bytes | memoryview) -> int:
    """Write some of ``data``; return the number of written bytes."""
    return os.write(descriptor, data)


def sync(descriptor: int) -> None:
    """Wait until all written data is on the disk."""
    os.fsync(descriptor)


def rename(before: str | Path, after: str | Path) -> None:
    """Replace a file by another one atomically: after a failure both are unchanged."""
    os.replace(before, after)


def lock(descriptor: int) -> bool:
    """Lock an open file for this process; return False where another process has locked it.

    The system unlocks it at the end of the process.

    A file system without locks locks for every process.
    """
    try:
        import fcntl
    except ImportError:  # Windows, where nothing is locked
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def start(
    command: Sequence[str], *, env: Mapping[str, str], stdout: Any = None, detached: bool = False
) -> "subprocess.Popen[bytes]":
    """Start a process; ``detached``: in a separate session without our terminal, so that it may outlive us."""
    if detached:
        null = subprocess.DEVNULL
        return subprocess.Popen([*command], env=env, stdin=null, stdout=null, stderr=null, start_new_session=True)
    return subprocess.Popen([*command], env=env, stdout=stdout)
