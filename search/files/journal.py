"""An append-only file of records; each is on disk before ``append`` returns.

A last line that a crash cut short is dropped when the file is reopened.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forerun.search.files.growing import FileLostError, GrowingFile
from forerun.search.files.records import Record, line_of, read_records
from forerun.spaces.errors import ForerunError


class StorageError(ForerunError):
    """The disk refuses a write; finished records are kept unless the message says otherwise."""

    exit_code = 2


@contextmanager
def storage(path: Path, kept: str = "", lost: str = "") -> Iterator[None]:
    """Convert a system error about ``path`` into advice for the user: ``kept``, or ``lost`` if the file was removed.

    Raises:
        StorageError: the block raises OSError.
    """
    try:
        yield
    except OSError as error:
        more = lost if isinstance(error, FileLostError) else kept
        raise StorageError(f"cannot write {path}: {error.strerror or error}{more}") from None


class Journal:
    """An open file of records with the fields ``needed``; ``records`` has its content at opening.

    Raises:
        RequestError: the path is no regular file, or a line before the last is no record.
        OSError: the file cannot be opened.
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
        """Add a record; it is on disk when the method returns.

        Raises:
            OSError: the disk is full or refuses; the record is not written then.
        """
        self._file.append(line_of(record))

    def check(self) -> None:
        """Check that the file still exists.

        Raises:
            FileLostError: the file was removed or replaced.
        """
        self._file.check()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
