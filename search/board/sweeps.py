"""Reader of a sweep's output folder: its searches and their results.

It can be read while the sweep is running: unfinished searches have no record yet.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.board.folder import read_leaderboard
from forerun.search.files.documents import SCHEMA, versions
from forerun.search.files.journal import Record, read_records
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import read_text

MANIFEST, RECORDS = "sweep.json", "pieces.jsonl"
RECORD_FIELDS = frozenset({"key", "status"})
STATUSES = ("done", "infeasible", "refused", "failed")
"""Outcomes of a search of a sweep: with rows; nothing fits; impossible request; internal error."""
LARGEST_MANIFEST = 1 << 28
"""Bytes; the requests of 100,000 searches need half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptSearch:
    """One search of a sweep, numbered from 1: its request, and the ``record`` of its end."""

    number: int
    request: Mapping[str, Any]
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFolder:
    """A sweep on disk; ``pieces``: key and request of every search, in the order of the plan."""

    folder: Path
    objective: str
    pieces: tuple[Mapping[str, Any], ...]

    def searches(self) -> Iterator[SweptSearch]:
        """Yield the finished searches in the order of their ends; a later record of a search replaces an earlier one.

        Raises
        ------
        RequestError
            The records are damaged or not of this sweep.
        """
        numbers = {piece["key"]: number for number, piece in enumerate(self.pieces, start=1)}
        for record, _ in read_records(self.folder / RECORDS, RECORD_FIELDS):
            number = numbers.get(record["key"])
            if number is None:
                raise RequestError(f"{self.folder / RECORDS} has a record of a search that is not in the plan")
            yield SweptSearch(number=number, request=self.pieces[number - 1]["request"], record=record)

    def board_of(self, number: int) -> dict[str, Any]:
        """Return the document that ``search --out`` would have written for one search (``read_leaderboard``).

        Raises
        ------
        RequestError
            There is no such search, it found nothing, or its model or cluster is no longer available.
        """
        if not 1 <= number <= len(self.pieces):
            raise RequestError(f"{self.folder} has searches 1 to {len(self.pieces)}, but got --search {number}")
        ended = [search for search in self.searches() if search.number == number]
        if not ended:
            raise RequestError(f"search {number} of {self.folder} has not ended; continue it with --resume")
        return self.board(ended[-1])

    def board(self, search: SweptSearch) -> dict[str, Any]:
        """Return ``board_of`` a search that was read."""
        record = search.record
        if not record.get("rows"):
            ending = f"{record['status']}: {record.get('message', '')}"
            raise RequestError(f"search {search.number} of {self.folder} has no rows; {ending}")
        try:
            request = Request.from_json(search.request)
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"search {search.number} of {self.folder / MANIFEST} is damaged ({error!r})") from None
        setting = resolve(request, groups=True)
        return {
            "schema": SCHEMA,
            "request": {**setting.to_json(), "defaults": record["defaults"], "notes": record["notes"]},
            "space": record["space"],
            "leaderboard": record["rows"],
            "elapsed_s": record.get("seconds", 0.0),
            "versions": versions(),
        }


def read_search(folder: Path, search: int | None = None) -> Mapping[str, Any]:
    """Return the document of one search: the folder's (``read_leaderboard``), or number ``search`` of a sweep.

    Raises
    ------
    RequestError
        The folder has no such search, or its files are damaged.
    """
    if not is_sweep(folder):
        if search is not None:
            raise RequestError(f"{folder} is not a sweep; drop --search")
        return read_leaderboard(folder)
    sweep = read_sweep(folder)
    if search is None:
        raise RequestError(f"{folder} is a sweep of {len(sweep.pieces)} searches; name one of them with --search")
    return sweep.board_of(search)


def is_sweep(folder: Path) -> bool:
    """Whether a folder has a sweep."""
    return (folder / MANIFEST).exists()


def read_sweep(folder: Path) -> SweepFolder:
    """Return the sweep in a folder.

    Raises
    ------
    RequestError
        The folder has no sweep, or a damaged one.
    """
    manifest = read_manifest(folder)
    try:
        pieces = [{"key": str(piece["key"]), "request": dict(piece["request"])} for piece in manifest["pieces"]]
        return SweepFolder(folder=folder, objective=str(manifest["objective"]), pieces=tuple(pieces))
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{folder / MANIFEST} is damaged ({error}); run the sweep again") from None


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the inputs of a sweep's folder.

    Raises
    ------
    RequestError
        The folder is not that of a sweep.
    """
    path = folder / MANIFEST
    with suppress(RequestError):
        manifest = read_json(read_text(path, most=LARGEST_MANIFEST, kind="a manifest"), str(path), own=True)
        if isinstance(manifest, dict) and {"inputs", "cost_model", "schema"} <= set(manifest):
            return manifest
    raise RequestError(f"{path} is not the manifest of a sweep; name another folder")
