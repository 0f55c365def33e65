"""Journal of Optuna studies in a file that several processes write.

Its lines have the format of Optuna's own file storage, which optuna-dashboard and other programs read.
"""

import errno
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from forerun.search.files.growing import GrowingFile


class StudyFile(BaseJournalBackend):
    """Records of studies, one JSON line each; a last line that a crash cut short is removed by the next writer."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it."""
        self._path, self._file = path, GrowingFile(path)
        self._number = self._offset = 0

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            self._file.close()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Iterate over the records from a number on.

        Raises
        ------
        OSError
            The file was removed, or one of its lines is not a record.
        """
        if log_number_from < self._number:
            self._number = self._offset = 0
        for line in self._lines():
            record = self._record(line)
            self._number, self._offset = self._number + 1, self._offset + len(line)
            if self._number > log_number_from:
                yield record

    def append_logs(self, logs: Iterable[dict[str, Any]]) -> None:
        """Add records; they are on disk when this returns.

        Raises
        ------
        OSError
            The disk refuses a write, or the file was removed.
        """
        lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in logs)
        self._file.check()
        with closing(GrowingFile(self._path)) as file:  # a separate descriptor, so that closing it unlocks the file
            file.lock()
            file.cut(self._offset + sum(map(len, self._lines())))
            file.append(lines.encode())

    def _lines(self) -> list[bytes]:
        """Return the complete unread lines."""
        self._file.check()
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            return [line for line in stream if line.endswith(b"\n")]

    def _record(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise OSError(errno.EBADMSG, f"line {self._number + 1} is not a record of a study", str(self._path))
        return record
