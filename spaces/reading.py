"""Reading of input files: only regular files, of limited size for their kind, and UTF-8 for text.

Compressed files may expand by the ratio of measured traces, and no further. Numbers, depth and values of documents are
limited by their parsers (``documents``). A function raises RequestError for a file that is missing, not a regular file,
unreadable, too large or not UTF-8, also while it is open.
"""

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from forerun.spaces.errors import RequestError

MAX_BYTES = 4 << 20
"""Limit of bytes of a user's document."""
LARGEST_RATIO = 64
"""Limit of the expansion of archives and compressed traces; profilers' traces reach 30, deflate 1,032."""
SMALL_BYTES = 4 << 20
"""Bytes allowed from an archive at any ratio."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, without ever waiting for a pipe or a device."""
    try:
        with os.fdopen(descriptor_of(path, os.O_RDONLY), "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file") from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}") from None


def descriptor_of(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor; a file opened for writing (``os.O_RDWR``) must not be a link.

    Raises
    ------
    OSError
        It cannot be opened.
    """
    if flags & os.O_RDWR and path.is_symlink():
        raise RequestError(f"{path} is a symbolic link, and what it points at may be another's; remove the link")
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except IsADirectoryError:
        raise RequestError(f"{path} is a directory; name a file in it") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise RequestError(f"{path} is a directory; name a file in it")
    raise RequestError(f"{path} is not a regular file")


def size_of(stream: BinaryIO) -> int:
    """Return the bytes of an open file."""
    return os.fstat(stream.fileno()).st_size


def read_bytes(path: Path, *, most: int = MAX_BYTES, kind: str = "a document") -> bytes:
    """Return the bytes of a regular file; ``kind``: name of files limited to ``most`` bytes."""
    if "\0" in str(path):
        raise RequestError(f"{path} cannot be read: a name of a file has no null byte")
    with opened(path) as stream:
        size = size_of(stream)
        data = b"" if size > most else stream.read(most + 1)
    if max(size, len(data)) > most:
        raise _too_large(path, max(size, len(data)), most, kind)
    return data


def _too_large(path: Path, size: int, most: int, kind: str) -> RequestError:
    return RequestError(f"{path} has {size:,} bytes, but {kind} has at most {most:,}; is it the right file?")


def read_text(path: Path, *, most: int = MAX_BYTES, kind: str = "a document") -> str:
    """Return the text of a regular file, without a leading byte order mark."""
    data = read_bytes(path, most=most, kind=kind)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}, line {line}: the file is not UTF-8 text (byte {data[error.start]:#04x})") from None


@contextmanager
def opened_text(path: Path, *, most: int, kind: str) -> Iterator[TextIO]:
    """Open the text of a regular file for reading in pieces; line ends are not converted."""
    with opened(path) as stream:
        if size_of(stream) > most:
            raise _too_large(path, size_of(stream), most, kind)
        try:
            with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
                yield text
        except UnicodeDecodeError as error:
            raise RequestError(f"{path}: not UTF-8 text (byte {error.object[error.start]:#04x})") from None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    import hashlib  # its library is slow to load and rarely used

    return hashlib.sha256(read_bytes(path, most=1 << 30, kind="a file")).hexdigest()


def check_ratio(source: Any, packed: int, unpacked: int) -> None:
    """Refuse a file that expands further than any trace or graph."""
    if unpacked > max(SMALL_BYTES, LARGEST_RATIO * packed):
        raise RequestError(
            f"{source} expands to over {LARGEST_RATIO} times its {packed:,} compressed bytes; no trace or graph does"
        )
