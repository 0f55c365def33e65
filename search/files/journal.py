"""A file of records that only grows, each on disk before ``append`` returns.

A last line that a crash cut short is dropped when the file is opened again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forerun.search.files.growing import FileLostError, GrowingFile
from forerun.search.files.records import Record, line_of, read_records
from forerun.spaces.errors import ForerunError


class StorageError(ForerunError):
    """The disk refuses; what was finished before is kept, unless the message says that it is lost."""

    exit_code = 2


@contextmanager
def storage(path: Path, kept: str = "", lost: str = "") -> Iterator[None]:
    """Turn what the system says about ``path`` into what the user can do: ``kept``, or ``lost`` where the file is gone.

    Raises:
        StorageError: where the block raises OSError.
    """
    try:
        yield
    except OSError as error:
        more = lost if isinstance(error, FileLostError) else kept
        raise StorageError(f"cannot write {path}: {error.strerror or error}{more}") from None


class Journal:
    """An open file of records that all have the fields ``needed``; ``records`` are those it held when it was opened.

    Raises:
        RequestError: it is no regular file, or a line that is not the last one holds no record.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, needed: frozenset[str]) -> None:
        self.path, self._file = path, GrowingFile(path)
        try:
            read = list(read_records(path, needed))
            self._file.cut(sum(length for _, length in read))
        except BaseException:
            self.close()
            raise
        self.records = [record for record, _ in read]

    def append(self, record: Record) -> None:
        """Add a record; it is on disk when this returns.

        Raises:
            OSError: the disk is full or refuses; the record is not there then.
        """
        self._file.append(line_of(record))

    def check(self) -> None:
        """Look whether the file is still there.

        Raises:
            FileLostError: it was removed or replaced.
        """
        self._file.check()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
