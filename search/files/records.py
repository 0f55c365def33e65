"""Files of records: one JSON line each, which ends with a sum of what stands before it, so that a record that was
changed or cut short is not taken for one that was found."""

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.plain import plain
from forerun.spaces.reading import opened

Record = dict[str, Any]
LARGEST = 64 << 20
"""Bytes of a record at most; one of a search with all its rows has a hundredth."""
_SUM, _END = b',"sum":"', b'"}\n'


def line_of(record: Record) -> bytes:
    """Return a record as its line."""
    body = json.dumps(plain(record), allow_nan=False, separators=(",", ":")).encode()[:-1]
    return body + _SUM + _sum(body) + _END


def record_of(line: bytes, needed: Collection[str], source: str) -> Record | None:
    """Return the record that a line holds, which has the fields ``needed``; None where it is torn."""
    body, mark, rest = line.rpartition(_SUM)
    if not mark or rest != _sum(body) + _END:
        return None
    try:
        record = read_json((body + b"}").decode(), source, own=True)
    except (RequestError, UnicodeDecodeError):
        return None
    return record if isinstance(record, dict) and set(needed) <= set(record) else None


def read_records(path: Path, needed: Collection[str]) -> Iterator[tuple[Record, int]]:
    """Yield the records of a file with the bytes of their lines; a last line that a crash cut short is passed over.

    Raises:
        RequestError: it cannot be read, or a line that is not the last one holds no record.
    """
    with opened(path) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LARGEST + 1), b""), start=1):
            if len(line) > LARGEST:
                raise RequestError(f"{path}, line {number}: over {LARGEST:,} bytes, and no record has so many")
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
