"""The driver of a sweep: what is missing goes to workers, what comes back goes to disk.

It knows neither Ray nor the terminal: workers come behind their contract, and a ``Watch`` is told what happens.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.api import search_request
from forerun.search.infeasible import NothingFeasible
from forerun.search.leaderboard import dump_json
from forerun.search.request import Request
from forerun.search.sweep.final import entries_csv, final_document, pieces_csv
from forerun.search.sweep.plan import SweepPiece, SweepPlan
from forerun.search.sweep.rundir import Record, RunDirectory
from forerun.search.workers import IN_THIS_PROCESS, Choice, Outcome, Workers, open_workers
from forerun.spaces.errors import RequestError

STATUSES = ("done", "infeasible", "refused", "failed")
"""How a search of a sweep ends: with rows; nothing fits; the request makes no sense; it raised."""
FINISHED = ("done", "infeasible", "refused")
"""What ``--resume`` does not do again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep found: the document of ``leaderboard.json``, searches by status, how many were done this time."""

    document: dict[str, Any]
    counts: dict[str, int]
    searched: int
    skipped: int
    workers: str
    remarks: tuple[str, ...]


class Watch:
    """Is told how a sweep goes on; this one does nothing."""

    def opened(self, plan: SweepPlan, records: dict[str, Record], workers: str, remarks: tuple[str, ...]) -> None:
        """Called once, with what earlier runs have finished."""

    def ended(self, piece: SweepPiece, record: Record) -> None:
        """Called after each search, when its record is on disk."""


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    *,
    resume: bool = False,
    workers: Choice | None = None,
    watch: Watch | None = None,
    search: Callable[[Any, Request], Record] | None = None,
) -> SweepResult:
    """Search every piece of a plan that ``folder`` does not hold yet, and write the results there.

    ``workers`` says who does the work; None: this process. ``search`` replaces what is done for a request (for tests).
    The results depend on nothing but the plan.

    Raises:
        RequestError: the folder does not fit the plan, or workers cannot be had.
        StorageError: the folder cannot be written.
    """
    with RunDirectory(folder, plan, resume=resume) as run:
        missing = [piece for piece in plan.pieces if run.records.get(piece.key, {}).get("status") not in FINISHED]
        who = "nothing was left to search"
        remarks: tuple[str, ...] = ()
        if missing:
            with open_workers(_choice(workers or IN_THIS_PROCESS, len(missing))) as hands:
                who, remarks = hands.describe(), hands.remarks
                if watch is not None:
                    watch.opened(plan, run.records, who, remarks)
                for piece, record in _search(hands, search or search_piece, missing):
                    run.append(record)
                    if watch is not None:
                        watch.ended(piece, record)
        document = final_document(plan, run.records)
        run.write("leaderboard.json", dump_json(document) + "\n")
        run.write("leaderboard.csv", entries_csv(document))
        run.write("pieces.csv", pieces_csv(document))
        statuses = [run.records[piece.key]["status"] for piece in plan.pieces]
    return SweepResult(
        document=document,
        counts={status: statuses.count(status) for status in STATUSES},
        searched=len(missing),
        skipped=len(plan.pieces) - len(missing),
        workers=who,
        remarks=remarks,
    )


def search_piece(common: None, request: Request) -> Record:
    """Search one request in this process and return what is to be recorded; anything unexpected escapes."""
    try:
        board = search_request(request, workers=Choice(kind="serial"))
    except NothingFeasible as error:
        return {"status": "infeasible", "message": str(error)}
    except RequestError as error:
        return {"status": "refused", "message": str(error)}
    return {
        "status": "done",
        "space": dataclasses.asdict(board.space),
        "rows": [row.to_json() for row in board.rows],
        "why": board.why,
        "defaults": list(board.defaults),
        "notes": list(board.notes),
    }


def _search(
    workers: Workers, search: Callable[[Any, Request], Record], pieces: list[SweepPiece]
) -> Iterator[tuple[SweepPiece, Record]]:
    for outcome in workers.run(search, None, (piece.request for piece in pieces)):
        piece = pieces[outcome.number]
        yield piece, {"key": piece.key, **_record(outcome), "seconds": round(outcome.seconds, 3)}


def _record(outcome: Outcome) -> Record:
    if outcome.failure is not None:
        return {"status": "failed", "message": str(outcome.failure), "trace": outcome.failure.trace}
    record: Record = outcome.result
    return record


def _choice(choice: Choice, pieces: int) -> Choice:
    """One search needs no second process, unless the user asks for it."""
    return Choice(kind="serial") if pieces == 1 and choice == Choice() else choice
