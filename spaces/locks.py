"""Locks on what several processes may write: one holds it, the others wait or say who does."""

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
"""Seconds from one look at a lock to the next; how the name of who holds it begins."""


@contextmanager
def held(path: Path, what: str, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock file ``path``, which is there only while somebody does.

    Parameters
    ----------
    path
        Where the lock file is made.
    what
        What its holder is writing, for messages.
    on_wait
        Called once with who holds the lock, which is then waited for; None: others are refused at once.

    Raises
    ------
    RequestError
        Another process holds it, or it cannot be made.
    """
    try:
        descriptor = _locked(path, what, on_wait)
    except OSError as error:
        raise RequestError(f"cannot write {what}: {error.strerror or error}") from None
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)  # what a holder who was killed left has been read
        with suppress(OSError):  # a full disk: the lock holds without a name
            system.write(descriptor, f"{HOLDER} {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        # Before it is unlocked: who waits finds that it is gone, and makes another.
        with suppress(OSError):
            if same_file(path, descriptor):
                path.unlink()
        os.close(descriptor)


def _locked(path: Path, what: str, on_wait: Callable[[str], None] | None) -> int:
    """Return the descriptor of the lock file once nobody else holds it."""
    waiting = False
    while True:
        descriptor = descriptor_of(path, os.O_RDWR | os.O_CREAT)
        try:
            locked, content = system.lock(descriptor), os.read(descriptor, 200).decode(errors="replace")
            if content and not content.startswith(HOLDER):
                raise RequestError(f"{path} is no lock of forerun; move it away")
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
    """Check that ``path`` still is the file or folder that is open as ``descriptor``."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
