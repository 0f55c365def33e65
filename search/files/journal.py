"""An append-only file of records; each is on disk before ``append`` returns.

A last line that a crash cut short is dropped when the file is reopened.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forerun.search.files.growing import FileLostError, GrowingFile
from forerun.spaces.documents import read_json
from forerun.spaces.errors import ForerunError, RequestError
from forerun.spaces.plain import plain
from forerun.spaces.reading import opened

Record = dict[str, Any]
LARGEST = 64 << 20
"""Most bytes of a record; a search with all its rows needs a hundredth."""
_SUM, _END = b',"sum":"', b'"}\n'


def line_of(record: Record) -> bytes:
    """Return a record as its line."""
    body = json.dumps(plain(record), allow_nan=False, separators=(",", ":")).encode()[:-1]
    return body + _SUM + _sum(body) + _END


def record_of(line: bytes, needed: Collection[str], source: str) -> Record | None:
    """Return the record of a line with the fields ``needed``; None for a torn line."""
    body, mark, rest = line.rpartition(_SUM)
    if not mark or rest != _sum(body) + _END:
        return None
    try:
        record = read_json((body + b"}").decode(), source, own=True)
    except (RequestError, UnicodeDecodeError):
        return None
    return record if isinstance(record, dict) and set(needed) <= set(record) else None


def read_records(path: Path, needed: Collection[str]) -> Iterator[tuple[Record, int]]:
    """Yield the records of a file with the bytes of their lines; a last line that a crash cut short is skipped.

    Raises:
        RequestError: the file cannot be read, or a line before the last is not a record.
    """
    with opened(path) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LARGEST + 1), b""), start=1):
            if len(line) > LARGEST:
                raise RequestError(f"{path}, line {number}: over {LARGEST:,} bytes, the limit of a record")
            record = record_of(line, needed, str(path))
            if record is not None:
                yield record, len(line)
            elif stream.read(1) or not line.startswith(b"{"):
                raise RequestError(
                    f"{path}, line {number}: not a record, nor one that a crash cut short; the file was changed or "
                    "damaged. Remove the line to have its search done again"
                )


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


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
        RequestError: the path is not a regular file, or a line before the last is not a record.
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
