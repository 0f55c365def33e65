"""Files of records: one JSON line each, which ends with a sum of what stands before it, so that a record that was
changed or cut short is not taken for one that was found."""

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError

Record = dict[str, Any]
_SUM, _END = b',"sum":"', b'"}\n'


def line_of(record: Record) -> bytes:
    """Return a record as its line."""
    body = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()[:-1]
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
        RequestError: a line that is not the last one holds no record.
        OSError: it cannot be read.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            record = record_of(line, needed, str(path))
            if record is not None:
                yield record, len(line)
            elif stream.read(1):
                raise RequestError(
                    f"{path}, line {number}: not a record, though others follow; the file was changed or damaged. "
                    "Remove the line to have its search done again"
                )


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()
