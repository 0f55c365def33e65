"""Locks on files that several processes may write; other processes wait or name the owner."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forerun.spaces import system
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import descriptor_of

POLL_S, HOLDER = 0.05, "process"
"""Seconds between two attempts to lock, and the prefix of the owner's name."""


@contextmanager
def held(path: Path, what: str, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Own the lock file ``path``, which exists only while a process owns it.

    Parameters
    ----------
    path
        Path of the lock file.
    what
        Description of the locked work, for messages.
    on_wait
        Called once with the owner before a wait for the lock; None: refuse at once instead.

    Raises
    ------
    RequestError
        Another process owns the lock, or it cannot be created.
    """
    try:
        descriptor = _locked(path, what, on_wait)
    except OSError as error:
        raise RequestError(f"cannot write {what}: {error.strerror or error}") from None
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)  # the name of a killed owner has been read
        with suppress(OSError):  # a full disk: the lock works without a name
            system.write(descriptor, f"{HOLDER} {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        # Before the unlock: waiting processes find that the file is gone, and create another.
        with suppress(OSError):
            if same_file(path, descriptor):
                path.unlink()
        os.close(descriptor)


def _locked(path: Path, what: str, on_wait: Callable[[str], None] | None) -> int:
    """Return the descriptor of the lock file once no other process owns it."""
    waiting = False
    while True:
        descriptor = descriptor_of(path, os.O_RDWR | os.O_CREAT)
        try:
            locked, content = system.lock(descriptor), os.read(descriptor, 200).decode(errors="replace")
            if content and not content.startswith(HOLDER):
                raise RequestError(f"{path} is not a lock of forerun; move it away")
            if locked and same_file(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        held_still = same_file(path, descriptor)
        os.close(descriptor)
        if not held_still:
            continue
        if on_wait is None:
            raise RequestError(f"{what} is being written by {content or HOLDER}; wait for it or name another one")
        if not waiting:
            on_wait(content or HOLDER)
        waiting = True
        time.sleep(POLL_S)


def same_file(path: Path, descriptor: int) -> bool:
    """Check whether ``path`` still is the file or folder open as ``descriptor``."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
