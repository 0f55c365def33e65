"""Journal of the measurements of a profile, so that a killed run can continue.

The first line names the measured profile; each further line is one measurement, on disk before the next begins. A line
that a crash cut short is dropped.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forerun.search.files.growing import GrowingFile
from forerun.search.measured.profiling.document import Line
from forerun.search.measured.profiling.operators import ProfiledOperator
from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.plain import plain
from forerun.spaces.reading import read_bytes

Record = dict[str, Any]
LARGEST = 1 << 28
"""Most bytes; a hundred thousand measurements need a tenth."""

_BEGIN = b'{"profile":'


class ProfilingJournal:
    """An open journal; a context manager. ``records``: measurements of earlier runs by key.

    Raises:
        RequestError: the file is of another profile, or cannot be written.
    """

    def __init__(self, path: Path, header: Record) -> None:
        self.path, self.records = path, dict[str, Record]()
        content = b""
        try:
            if path.exists():
                content = self._read(read_bytes(path, most=LARGEST, kind="a journal"), header)
            fresh = not content
            self._file = GrowingFile(path)
            self._file.cut(len(content))
            if fresh:
                self._append({"profile": header})
        except OSError as error:
            raise RequestError(f"cannot write {path}: {error.strerror or error}") from None

    def _read(self, content: bytes, header: Record) -> bytes:
        """Return the complete lines, after storing their records."""
        if not content.startswith(_BEGIN[: len(content)]):
            raise RequestError(f"{self.path} is not a journal of a profile; name another output, or move the file away")
        lines = content.split(b"\n")[:-1]
        kept: list[bytes] = []
        for number, line in enumerate(lines):
            try:
                record = read_json(line.decode(), str(self.path), own=True)
            except (RequestError, UnicodeDecodeError):
                break
            if not isinstance(record, dict) or (number and not isinstance(record.get("key"), str)):
                break
            if number == 0:
                if record.get("profile") != json.loads(json.dumps(header)):
                    raise RequestError(
                        f"{self.path} is an unfinished profile of another request, device or version; "
                        "finish that one, or delete the file"
                    )
            else:
                self.records[str(record["key"])] = record
            kept.append(line)
        return b"".join(line + b"\n" for line in kept)

    def add(self, record: Record) -> None:
        """Write a measurement to disk.

        Raises:
            RequestError: the disk is full or refuses, or the file was removed.
        """
        try:
            self._append(record)
        except OSError as error:
            raise RequestError(f"cannot write {self.path}: {error.strerror or error}") from None
        self.records[str(record["key"])] = record

    def _append(self, record: Record) -> None:
        self._file.append(json.dumps(plain(record), allow_nan=False).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def remove(self) -> None:
        """Delete the file, after its content was written elsewhere."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def measured_lines(
    operators: Sequence[ProfiledOperator], journal: ProfilingJournal
) -> tuple[list[Line], dict[str, int]]:
    """Return a journal's measurements of some operators as profile lines, and the numbers skipped by reason."""
    lines, skipped = [], dict[str, int]()
    for one in operators:
        record = journal.records.get(one.key)
        if record is None:
            continue
        if "skipped" in record:
            skipped[record["skipped"]] = skipped.get(record["skipped"], 0) + 1
            continue
        seconds, spread = record["seconds"], record["spread"]
        lines.append(Line(name=one.name, shape=one.shape, seconds=seconds, spread=spread, fitted_s=one.fitted_s))
    return lines, skipped
