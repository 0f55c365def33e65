"""An append-only file; each line is on disk before ``append`` returns."""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from forerun.spaces import system
from forerun.spaces.locks import POLL_S, same_file
from forerun.spaces.reading import descriptor_of


class FileLostError(OSError):
    """An open file was removed or replaced, and its content is lost."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ESTALE, "it was removed or replaced meanwhile", str(path))


class GrowingFile:
    """An open file to which lines are appended.

    Raises:
        RequestError: the path is not a regular file.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: int | None = descriptor_of(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def lock(self) -> None:
        """Lock the file until it is closed, after waiting for the locks of other processes.

        Raises
        ------
        FileLostError
            The file was removed or replaced.
        OSError
            The file cannot be locked.
        """
        while not system.lock(self.check()):
            time.sleep(POLL_S)

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes, to drop a line that a crash cut short."""
        if self._stream is not None and size < os.fstat(self._stream).st_size:
            os.ftruncate(self._stream, size)

    def append(self, line: bytes) -> None:
        """Add a line; it is on disk in the file ``path`` when the method returns.

        Raises:
            FileLostError: the file was removed or replaced.
            OSError: the disk is full or refuses; the line is not written then.
        """
        stream = self.check()
        before = os.fstat(stream).st_size
        try:
            written = 0
            while written < len(line):
                written += system.write(stream, line[written:])
            system.sync(stream)
        except OSError:
            with suppress(OSError):  # otherwise the next opening removes the torn line
                os.ftruncate(stream, before)
            raise

    def check(self) -> int:
        """Return the descriptor of the file after checking that ``path`` still names it.

        Raises:
            FileLostError: the file was removed or replaced.
        """
        if self._stream is None or not same_file(self.path, self._stream):
            raise FileLostError(self.path)
        return self._stream

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            os.close(self._stream)
        self._stream = None
