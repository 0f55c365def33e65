"""The calls of the operating system by which forerun changes anything: tests let each of them fail in turn."""

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Errors of file systems that have no locks."""


def write(descriptor: int, data: bytes | memoryview) -> int:
    """Write some of ``data``; return how many bytes.

    Raises:
        OSError: the disk is full or refuses.
    """
    return os.write(descriptor, data)


def sync(descriptor: int) -> None:
    """Wait until all that was written is on the disk.

    Raises:
        OSError: it never will be.
    """
    os.fsync(descriptor)


def rename(before: str | Path, after: str | Path) -> None:
    """Let a file take the place of another, at once and whole.

    Raises:
        OSError: it cannot; both are as before.
    """
    os.replace(before, after)


def lock(descriptor: int) -> bool:
    """Lock an open file for this process; return whether nobody else has it locked. The system unlocks it when the
    process ends, however it ends.

    A file system without locks locks for everybody.

    Raises:
        OSError: it cannot be locked.
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
    """Start a process; ``detached``: in a session of its own without our terminal, so that it may outlive us.

    Raises:
        OSError: there is no such program, or no room for a process.
    """
    if detached:
        null = subprocess.DEVNULL
        return subprocess.Popen([*command], env=env, stdin=null, stdout=null, stderr=null, start_new_session=True)
    return subprocess.Popen([*command], env=env, stdout=stdout)
