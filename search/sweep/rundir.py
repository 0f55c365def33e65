"""The run directory of a sweep: what is finished stays finished, whatever happens to the driver.

``sweep.json`` says what the directory was made for; it is written once, before anything else. ``pieces.jsonl`` grows
by one line per finished search, on disk before the next is awaited. A line that a crash cut short is dropped when the
directory is opened again, and only that search is done again. The results at the end are written anew and whole.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forerun.search.leaderboard import dump_json
from forerun.search.output import write_atomically
from forerun.search.sweep.plan import SweepPlan
from forerun.search.sweep.version import cost_model_version
from forerun.spaces.errors import ForerunError, RequestError

SCHEMA = 1
MANIFEST, RECORDS, LOCK = "sweep.json", "pieces.jsonl", ".lock"

Record = dict[str, Any]


class StorageError(ForerunError):
    """The disk refuses; what was finished before is kept."""

    exit_code = 2


class RunDirectory:
    """An open run directory; a context manager that one driver at a time can hold.

    ``records`` are the finished searches by key, later lines of a key before earlier ones.

    Raises:
        RequestError: the directory holds something else, another driver has it, or it was made for other inputs or by
            another version of the cost model; or it holds a sweep already and ``resume`` is not set.
        StorageError: it cannot be written.
    """

    def __init__(self, folder: Path, plan: SweepPlan, *, resume: bool) -> None:
        self.folder = folder
        self.records: dict[str, Record] = {}
        self.torn = False
        self._stream: int | None = None
        with _storage(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
            try:
                self._prepare(plan, resume=resume)
            except BaseException:
                self.close()
                raise

    def _prepare(self, plan: SweepPlan, *, resume: bool) -> None:
        manifest = self.folder / MANIFEST
        if manifest.exists():
            if not resume:
                raise RequestError(
                    f"{self.folder} holds a sweep already; continue it with --resume or name another folder"
                )
            _check(self.folder, _read_manifest(manifest), plan)
        else:
            others = sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
            if others:
                raise RequestError(f"{self.folder} is not empty and holds no sweep ({others[0]}); name another folder")
            write_atomically(manifest, dump_json(_manifest(plan)) + "\n")
        path = self.folder / RECORDS
        self._stream = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        known = {piece.key for piece in plan.pieces}
        for record in self._read(path):
            if record["key"] not in known:
                raise RequestError(f"{path} has a record of a search that is not in the plan; it was changed by hand")
            self.records[record["key"]] = record

    def _read(self, path: Path) -> Iterator[Record]:
        """Yield the records, and cut off a last line that is torn."""
        good = 0
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                record = _record(line)
                if record is not None:
                    good += len(line)
                    yield record
                elif stream.read(1):
                    raise RequestError(
                        f"{path}, line {number}: not a record, though others follow; the file was changed or damaged. "
                        "Remove the line to have its search done again"
                    )
                else:
                    self.torn = True
        if self.torn and self._stream is not None:
            os.ftruncate(self._stream, good)

    def append(self, record: Record) -> None:
        """Add a record; it is on disk when this returns.

        Raises:
            StorageError: the disk is full or refuses; the record is not there then.
        """
        line = (json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n").encode()
        with _storage(self.folder / RECORDS, kept=len(self.records)):
            if self._stream is None:
                raise OSError(0, "the directory is closed")
            before = os.fstat(self._stream).st_size
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._stream, line[written:])
                os.fsync(self._stream)
            except OSError:
                with suppress(OSError):  # else the torn line is cut off when the directory is opened again
                    os.ftruncate(self._stream, before)
                raise
        self.records[record["key"]] = record

    def write(self, name: str, text: str) -> None:
        """Write a result file, whole or not at all.

        Raises:
            StorageError: the disk is full or refuses.
        """
        with _storage(self.folder / name, kept=len(self.records)):
            write_atomically(self.folder / name, text)

    def close(self) -> None:
        """Let another driver have the directory."""
        for descriptor in (self._stream, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._stream = self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _storage(path: Path, kept: int | None = None) -> Iterator[None]:
    """Turn what the system says into what the user can do."""
    try:
        yield
    except OSError as error:
        more = "" if kept is None else f"; {kept} finished searches are kept, make room and continue with --resume"
        raise StorageError(f"cannot write {path}: {error.strerror or error}{more}") from None


def _lock(folder: Path) -> int | None:
    """Take the directory for this driver; the system lets go of it when the driver ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows, where a directory is not guarded
        return None
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RequestError(f"another sweep is running in {folder}; wait for it or name another folder") from None
    return descriptor


def _manifest(plan: SweepPlan) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "inputs": plan.digest,
        "cost_model": cost_model_version(),
        "objective": plan.objective,
        "pieces": [{"key": piece.key, "request": piece.request.to_json()} for piece in plan.pieces],
    }


def _read_manifest(path: Path) -> Mapping[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(manifest, dict) and {"inputs", "cost_model", "schema"} <= set(manifest):
            return manifest
    except ValueError:
        pass
    raise RequestError(f"{path} is not a sweep's; name another folder")


def _check(folder: Path, manifest: Mapping[str, Any], plan: SweepPlan) -> None:
    """Refuse to go on with other inputs.

    Raises:
        RequestError: saying what differs.
    """
    if manifest["cost_model"] != cost_model_version():
        raise RequestError(
            f"{folder} was made by another version of the cost model ({manifest['cost_model']}, this is "
            f"{cost_model_version()}), and rows of both would not compare; name another folder"
        )
    if manifest["inputs"] != plan.digest:
        theirs, ours = len(manifest.get("pieces", ())), len(plan.pieces)
        counts = f"{theirs} searches there, {ours} here" if theirs != ours else "the contents of some differ"
        raise RequestError(f"{folder} was made from other inputs ({counts}); name another folder")


def _record(line: bytes) -> Record | None:
    """Return the record that a line holds, None where it is torn."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and {"key", "status"} <= set(record) else None
