"""The run directory of a sweep: finished searches survive any end of the driver.

``sweep.json`` has the inputs of the directory and is written first and once. ``pieces.jsonl`` grows by one line per
finished search, on disk before the next result; ``parts.jsonl`` by one line per part of a long search. A line that a
crash cut short is dropped when the directory is opened again, and only its work is repeated. The final results are
written atomically.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from forerun.search.board.leaderboard import flat_line
from forerun.search.board.row_reading import row_from_json
from forerun.search.board.sweeps import MANIFEST, RECORD_FIELDS, RECORDS, STATUSES, read_manifest
from forerun.search.files.documents import cost_model_version, dump_json
from forerun.search.files.journal import Journal, Record, storage
from forerun.search.sweep.plan import SweepPlan
from forerun.search.sweep.progress import piece_from_json
from forerun.spaces.closing import Closing
from forerun.spaces.errors import RequestError
from forerun.spaces.fields import finite
from forerun.spaces.files import replacing
from forerun.spaces.locks import held

SCHEMA = 1
PARTS, LOCK = "parts.jsonl", ".lock"
PART_FIELDS = frozenset({"key", "low", "high", "size", "seconds", "found"})


class RunDirectory(Closing):
    """An open run directory; a context manager for one driver at a time.

    ``records`` are the finished searches by key, a later line of a key overrides earlier ones. ``parts`` are the parts
    of long searches at the opening of the directory.

    Raises
    ------
    RequestError
        The directory has other files, another driver uses it, or it was made for other inputs or by another version of
        the cost model; or it has a sweep already and ``resume`` is not set.
    StorageError
        The directory cannot be written.
    """

    def __init__(self, folder: Path, plan: SweepPlan, *, resume: bool) -> None:
        self.folder = folder
        self.records: dict[str, Record] = {}
        self.parts: list[Record] = []
        self._journals: dict[str, Journal] = {}
        self._lock = ExitStack()
        with ExitStack() as opened, storage(folder):
            opened.callback(self.close)
            folder.mkdir(parents=True, exist_ok=True)
            self._lock.enter_context(held(folder / LOCK, f"the sweep {folder}"))
            self._prepare(plan, resume=resume)
            opened.pop_all()

    def _prepare(self, plan: SweepPlan, *, resume: bool) -> None:
        manifest = self.folder / MANIFEST
        if manifest.exists():
            if not resume:
                raise RequestError(
                    f"{self.folder} is a sweep already; continue it with --resume or name another folder"
                )
            _check(self.folder, read_manifest(self.folder), plan)
        else:
            others = sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
            if others:
                raise RequestError(f"{self.folder} is not empty and is not a sweep ({others[0]}); name another folder")
            _replace(manifest, dump_json(_manifest(plan)) + "\n")
        for name, needed in ((RECORDS, RECORD_FIELDS), (PARTS, PART_FIELDS)):
            journal = self._journals[name] = Journal(self.folder / name, needed)
            _only_of(journal, plan)
        _whole(self._journals[RECORDS], _check_record)
        _whole(self._journals[PARTS], _check_part)
        self.records = {record["key"]: record for record in self._journals[RECORDS].records}
        self.parts = self._journals[PARTS].records

    def append(self, record: Record) -> None:
        """Add the record of a search; it is on disk when the method returns.

        Raises
        ------
        StorageError
            The disk is full or refuses; the record is not written then.
        """
        self._append(RECORDS, record)
        self.records[record["key"]] = record

    def append_part(self, part: Record) -> None:
        """Add a part of a search; it is on disk when the method returns.

        Raises
        ------
        StorageError
            The disk is full or refuses; the part is not written then.
        """
        self._append(PARTS, part)

    def _append(self, name: str, record: Record) -> None:
        with self._storage(name):
            self._journals[name].append(record)

    def _storage(self, name: str) -> AbstractContextManager[None]:
        count = len(self.records)
        return storage(
            self.folder / name,
            kept=f"; finished searches ({count}) are kept, make room and continue with --resume",
            lost=f"; finished searches ({count}) are lost, start the sweep again",
        )

    def write(self, name: str, text: str) -> None:
        """Write a result file atomically.

        Raises
        ------
        StorageError
            The disk is full or refuses.
        """
        with self._storage(name):
            for journal in self._journals.values():
                journal.check()
            _replace(self.folder / name, text)

    def close(self) -> None:
        """Release the directory to other drivers."""
        for journal in self._journals.values():
            journal.close()
        self._lock.close()


def _whole(journal: Journal, check: Callable[[Record], None]) -> None:
    """Refuse records that no search can write."""
    for record in journal.records:
        try:
            check(record)
        except (RequestError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RequestError(
                f"{journal.path} has a record of search {record['key']} that no search leaves behind ({error}); remove "
                "the line to have the search done again"
            ) from None


def _check_record(record: Record) -> None:
    for row in record.get("rows", ()):
        flat_line(row)
        read = row_from_json(row).to_json()
        changed = [name for name in read if name in row and name != "variants" and read[name] != row[name]]
        if changed:  # for example a number as text, which would be read as a number
            raise ValueError(f"{changed[0]} of a row is none")
    texts = [record.get("message", ""), record.get("why", "")]
    texts += [*record.get("defaults", ()), *record.get("notes", ())]
    if record["status"] not in STATUSES or not all(isinstance(text, str) for text in texts):
        raise ValueError("a text or the status is none")
    space = {"size": 0, "legal": 0, "feasible": 0, "rejected": {}, **record.get("space", {})}
    counts = [space.pop("size"), space.pop("legal"), space.pop("feasible"), *space.pop("rejected").values()]
    if space or not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("its space is none")


def _check_part(part: Record) -> None:
    span = part["low"], part["high"], part["size"]
    if not (all(type(end) is int for end in span) and 0 <= span[0] < span[1] <= span[2]):
        raise ValueError("its candidates are none")
    if not finite(part["seconds"]) >= 0:
        raise ValueError("its seconds are none")
    if piece_from_json(part["found"]).enumerated != span[1] - span[0]:
        raise ValueError("it has not enumerated its candidates")


def _only_of(journal: Journal, plan: SweepPlan) -> None:
    """Refuse records of searches that are not in the plan."""
    known = {piece.key for piece in plan.pieces}
    if any(not isinstance(record["key"], str) or record["key"] not in known for record in journal.records):
        raise RequestError(f"{journal.path} has a record of a search that is not in the plan; it was changed by hand")


def _replace(path: Path, text: str) -> None:
    with replacing(path) as stream:
        stream.write(text.encode("utf-8"))


def _manifest(plan: SweepPlan) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "inputs": plan.digest,
        "cost_model": cost_model_version(),
        "objective": plan.objective,
        "pieces": [{"key": piece.key, "request": piece.request.to_json()} for piece in plan.pieces],
    }


def _check(folder: Path, manifest: Mapping[str, Any], plan: SweepPlan) -> None:
    """Refuse a continuation with other inputs."""
    if manifest["cost_model"] != cost_model_version():
        raise RequestError(
            f"{folder} was made by another version of the cost model ({manifest['cost_model']}, this is "
            f"{cost_model_version()}), so that rows would not be comparable; name another folder"
        )
    if manifest["inputs"] != plan.digest:
        theirs, ours = len(manifest.get("pieces", ())), len(plan.pieces)
        counts = f"{theirs} searches there, {ours} here" if theirs != ours else "the contents of some differ"
        raise RequestError(f"{folder} was made from other inputs ({counts}); name another folder")
