"""Atomic writing of output files; existing files are replaced only on request."""

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from forerun.spaces import system
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import cell
from forerun.spaces.plain import plain


def exists(path: Path) -> bool:
    """Check whether a file or folder exists; a name that is too long or has a null byte does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_output(path: Path, *, force: bool) -> None:
    """Refuse an output path that cannot, or must not, be written; call it before any computation.

    ``force``: replace an existing regular file. A symbolic link is replaced itself, not its target.

    Raises:
        RequestError: the path is a folder, a device or a pipe; its folder is missing or not writable; or it exists and
            ``force`` is not set.
    """
    try:
        if path.is_dir():
            raise RequestError(f"{path} is a folder; name a file, like {path / 'result'}{path.suffix}")
        if path.exists() and not path.is_file():
            raise RequestError(f"{path} is not a regular file; name another one")
        if os.path.lexists(path) and not force:
            raise RequestError(f"{path} exists; name another file, or add --force to write over it")
        if not path.parent.is_dir():
            raise RequestError(f"cannot write {path}: {path.parent} is not a folder; make it first")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise RequestError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    if not os.access(path.parent, os.W_OK):
        raise RequestError(f"cannot write {path}: {path.parent} is not writable; name a file in another folder")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` once it is complete; on an error nothing changes.

    Raises:
        OSError: the file cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with io.BufferedWriter(_Written(handle)) as stream:
            yield stream
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        system.rename(name, path)
    except BaseException:
        with suppress(FileNotFoundError):  # its folder is gone
            os.unlink(name)
        raise


class _Written(io.RawIOBase):
    """An open file written through ``system``, and synchronised to disk on closing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return system.write(self._descriptor, data)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
                system.sync(self._descriptor)
            finally:
                os.close(self._descriptor)


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a file as ``replacing`` does, for names given by the user.

    Raises:
        RequestError: the file cannot be written.
    """
    try:
        with replacing(path) as stream:
            yield stream
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise RequestError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8 atomically.

    Raises:
        RequestError: the file cannot be written.
    """
    with written(path) as stream:
        stream.write(text.encode("utf-8"))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table as CSV with a header; ``rows``: one mapping of ``columns`` each.

    Missing values and numbers that are not finite are blank.

    No text in it is a formula for a spreadsheet.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (row.get(column, "") for column in columns)
        writer.writerow([cell(value) if isinstance(value, str) else plain(value) for value in values])
    return text.getvalue()
