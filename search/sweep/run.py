"""The driver of a sweep: it sends missing searches to workers, and writes their results.

It depends neither on Ray nor on the terminal: workers have a contract, and a ``Watch`` receives events.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forerun.search.board.sweeps import STATUSES
from forerun.search.files.documents import dump_json
from forerun.search.files.records import Record
from forerun.search.request.interrupts import EndedEarly
from forerun.search.sweep.chunks import Begun, ChunkTimes, Search, SearchPart, do, search_piece
from forerun.search.sweep.plan import SweepPlan, SweepSearch
from forerun.search.sweep.progress import Agenda, by_key
from forerun.search.sweep.rundir import RunDirectory
from forerun.search.sweep.summary import entries_csv, pieces_csv, summary_document
from forerun.search.workers import IN_THIS_PROCESS, Choice, Failure, Workers, open_workers
from forerun.search.workers.contract import WorkersLostError

FINISHED = ("done", "infeasible", "refused")
"""Outcomes that ``--resume`` does not repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """Results of a sweep: the document of ``leaderboard.json``, searches by status, number done in this run."""

    document: dict[str, Any]
    counts: dict[str, int]
    searched: int
    skipped: int
    workers: str
    remarks: tuple[str, ...]


class Watch:
    """Observer of the progress of a sweep; this one does nothing."""

    def opened(self, plan: SweepPlan, records: dict[str, Record], workers: str, remarks: tuple[str, ...]) -> None:
        """Called once, with the finished searches of earlier runs."""

    def ended(self, piece: SweepSearch, record: Record) -> None:
        """Called after each search, when its record is on disk."""

    def advanced(self, piece: SweepSearch, share: float) -> None:
        """Called after each part of a long search is on disk; ``share``: searched share."""


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    *,
    resume: bool = False,
    workers: Choice | None = None,
    watch: Watch | None = None,
    chunk_times: ChunkTimes | None = None,
    search: Search | None = None,
) -> SweepResult:
    """Search every piece of a plan that ``folder`` lacks, and write the results there.

    ``workers`` selects the workers; None: this process. ``chunk_times``: cuts of a long search; ``search`` replaces the
    search of a piece (for tests). The results depend only on the plan.

    Raises:
        RequestError: the folder does not fit the plan, or workers are unavailable.
        StorageError: the folder cannot be written.
        EndedEarly: interrupted, with the result of the finished searches.
    """
    watch = watch or Watch()
    with RunDirectory(folder, plan, resume=resume) as run:
        missing = [piece for piece in plan.pieces if run.records.get(piece.key, {}).get("status") not in FINISHED]
        who = "nothing was left to search"
        remarks: tuple[str, ...] = ()
        if missing:
            with open_workers(workers or IN_THIS_PROCESS) as hands:
                who, remarks = hands.describe(), hands.remarks
                watch.opened(plan, run.records, who, remarks)
                try:
                    _search(hands, run, missing, chunk_times or ChunkTimes(), search or search_piece, watch)
                except WorkersLostError as error:
                    kept = f"finished searches ({len(run.records)}) are kept, continue with --resume"
                    raise WorkersLostError(f"{error}; {kept}") from None
                except KeyboardInterrupt as stop:
                    ended = replace(plan, pieces=tuple(piece for piece in plan.pieces if piece.key in run.records))
                    remark = f"interrupted after {len(ended.pieces)} of {len(plan.pieces)} searches: --resume continues"
                    raise EndedEarly(_result(ended, run, missing, who, (*remarks, remark)), stop) from None
        result = _result(plan, run, missing, who, remarks)
        run.write("leaderboard.json", dump_json(result.document) + "\n")
        run.write("leaderboard.csv", entries_csv(result.document))
        run.write("pieces.csv", pieces_csv(result.document))
    return result


def _result(
    plan: SweepPlan, run: RunDirectory, missing: Collection[SweepSearch], workers: str, remarks: tuple[str, ...]
) -> SweepResult:
    """Return the results of a plan's searches, of which the ``missing`` ones were done in this run."""
    statuses = [run.records[piece.key]["status"] for piece in plan.pieces]
    searched = sum(piece in missing for piece in plan.pieces)
    return SweepResult(
        document=summary_document(plan, run.records),
        counts={status: statuses.count(status) for status in STATUSES},
        searched=searched,
        skipped=len(plan.pieces) - searched,
        workers=workers,
        remarks=remarks,
    )


def _search(
    workers: Workers,
    run: RunDirectory,
    missing: list[SweepSearch],
    chunk_times: ChunkTimes,
    search: Search,
    watch: Watch,
) -> None:
    """Run the missing searches; a result counts after it is on disk."""
    parts = by_key(run.parts)
    agenda = Agenda((piece for piece in missing if piece.key not in parts), chunk_times, workers.count)
    for piece in missing:
        if piece.key in parts:
            agenda.go_on(piece, parts[piece.key])
    run.parts.clear()
    for outcome in workers.run(do, (chunk_times, search), agenda):
        item, found = outcome.item, outcome.result
        piece = item if isinstance(item, SweepSearch) else item.of
        if outcome.failure is not None:
            if piece is item or agenda.drop(piece):  # otherwise another part of it has failed before
                _end(run, watch, piece, _failed(outcome.failure), outcome.seconds)
        elif isinstance(found, Begun):
            run.append_part(agenda.begun(piece, found, outcome.seconds))
            watch.advanced(piece, agenda.count(piece, found.piece))
        elif isinstance(item, SearchPart):
            part = agenda.searched(item, found, outcome.seconds)
            if part is not None:
                run.append_part(part)
                watch.advanced(piece, agenda.count(piece, found))
        else:
            agenda.drop(piece)
            _end(run, watch, piece, found, outcome.seconds)


def _end(run: RunDirectory, watch: Watch, piece: SweepSearch, record: Record, seconds: float) -> None:
    run.append({"key": piece.key, **record, "seconds": round(seconds, 3)})
    watch.ended(piece, run.records[piece.key])


def _failed(failure: Failure) -> Record:
    return {"status": "failed", "message": str(failure), "trace": failure.trace}
