"""A file that grows line by line, each on disk before ``append`` returns, however the process ends."""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from forerun.spaces import system
from forerun.spaces.locks import POLL_S, same_file
from forerun.spaces.reading import descriptor_of


class FileLostError(OSError):
    """A file that is being written was removed or replaced: what it held is lost."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ESTALE, "it was removed or replaced meanwhile", str(path))


class GrowingFile:
    """An open file that lines are added to.

    Raises:
        RequestError: it is no regular file.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: int | None = descriptor_of(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def lock(self) -> None:
        """Wait until no other process has the file locked, and lock it until it is closed.

        Raises
        ------
        FileLostError
            The file was removed or replaced.
        OSError
            It cannot be locked.
        """
        while not system.lock(self.check()):
            time.sleep(POLL_S)

    def cut(self, size: int) -> None:
        """Cut off what is behind ``size`` bytes: a line that a crash cut short."""
        if self._stream is not None and size < os.fstat(self._stream).st_size:
            os.ftruncate(self._stream, size)

    def append(self, line: bytes) -> None:
        """Add a line; it is on disk when this returns, in the file that ``path`` names.

        Raises:
            FileLostError: the file was removed or replaced.
            OSError: the disk is full or refuses; the line is not there then.
        """
        stream = self.check()
        before = os.fstat(stream).st_size
        try:
            written = 0
            while written < len(line):
                written += system.write(stream, line[written:])
            system.sync(stream)
        except OSError:
            with suppress(OSError):  # else the torn line is cut off when the file is opened again
                os.ftruncate(stream, before)
            raise

    def check(self) -> int:
        """Return the descriptor of the file that ``path`` still names.

        Raises:
            FileLostError: it was removed or replaced.
        """
        if self._stream is None or not same_file(self.path, self._stream):
            raise FileLostError(self.path)
        return self._stream

    def close(self) -> None:
        """Let go of the file."""
        if self._stream is not None:
            os.close(self._stream)
        self._stream = None
