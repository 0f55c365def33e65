"""The driver of a sweep: it sends missing searches to workers, and writes their results.

It depends neither on Ray nor on the terminal: workers have a contract, and a ``Watch`` receives events.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forerun.search.board.leaderboard import flat_line, lines_to_csv
from forerun.search.board.sweeps import STATUSES
from forerun.search.files.documents import SCHEMA, cost_model_version, dump_json, versions
from forerun.search.files.journal import Record
from forerun.search.order.objectives import objective_named
from forerun.search.request.interrupts import EndedEarly
from forerun.search.sweep.chunks import Begun, ChunkTimes, Search, SearchPart, do, search_piece
from forerun.search.sweep.plan import SweepPlan, SweepSearch
from forerun.search.sweep.progress import Agenda, by_key
from forerun.search.sweep.rundir import RunDirectory
from forerun.search.workers import IN_THIS_PROCESS, Choice, Failure, Workers, open_workers
from forerun.search.workers.contract import WorkersLostError

Entry = dict[str, Any]
ASKED = ("model", "cluster", "framework", "global_batch", "seq_len", "precision")
"""Fields in which the searches of a sweep differ, shown with every row."""


def summary_document(plan: SweepPlan, records: Mapping[str, Record]) -> dict[str, Any]:
    """Return all results of a sweep, in an order that depends only on the plan.

    Rows of one search keep their order, which has more criteria than the order across searches. Ties are in the order
    of the plan. A strategy found by several seeds of one combination occurs once.
    """
    order, keyed = objective_named(plan.objective).across, list[tuple[tuple[float, ...], Entry]]()
    for piece in plan.pieces:
        worst: tuple[float, ...] = ()
        for entry in _entries(piece, records[piece.key]):
            worst = max(worst, order(entry))
            keyed.append(((*worst, entry["search"], entry["rank"]), entry))
    entries = [entry for _, entry in sorted(keyed, key=lambda one: one[0])]
    if any(piece.exploring for piece in plan.pieces):
        entries = _each_once(plan, entries)
    return {
        "schema": SCHEMA,
        "sweep": {"inputs": plan.digest, "objective": plan.objective, "cost_model": cost_model_version()},
        "searches": [_summary(piece, records[piece.key]) for piece in plan.pieces],
        "leaderboard": [{"place": place, **entry} for place, entry in enumerate(entries, start=1)],
        "versions": versions(),
    }


def _entries(piece: SweepSearch, record: Record) -> list[Entry]:
    request = piece.request.to_json()
    asked = {name: request.get(name) for name in ASKED}
    return [{"search": piece.number + 1, **asked, **row} for row in record.get("rows", ())]


def _each_once(plan: SweepPlan, entries: list[Entry]) -> list[Entry]:
    """Drop entries found earlier by another seed."""
    seen: set[tuple[str, str]] = set()
    requests = {piece.number + 1: piece.request for piece in plan.pieces}
    kept = []
    for entry in entries:
        asked = json.dumps(requests[entry["search"]].to_json(), sort_keys=True)
        if (asked, entry["strategy"]) not in seen:
            seen.add((asked, entry["strategy"]))
            kept.append(entry)
    return kept


def _summary(piece: SweepSearch, record: Record) -> dict[str, Any]:
    kept = ("status", "message", "space", "why", "defaults", "notes")
    return {
        "search": piece.number + 1,
        "key": piece.key,
        "request": piece.request.to_json(),
        **({"sampler": piece.exploring.sampler, "seed": piece.exploring.seed} if piece.exploring else {}),
        **{name: record[name] for name in kept if name in record},
    }


def entries_csv(document: Mapping[str, Any]) -> str:
    """Return the leaderboard as CSV: one column per field, parts as ``time_<part>_s`` and ``memory_<part>_gib``."""
    return lines_to_csv([flat_line(entry) for entry in document["leaderboard"]])


def _rates(entries: Sequence[Entry]) -> list[str]:
    """Return the unit of the rows' work as the name of its field; tokens without a row."""
    names = [name for name in ("tokens_per_s", "samples_per_s") if any(name in entry for entry in entries)]
    return names or ["tokens_per_s"]


def pieces_csv(document: Mapping[str, Any]) -> str:
    """Return one line per search: its request, its outcome, its best row."""
    best: dict[int, Entry] = {entry["search"]: entry for entry in reversed(document["leaderboard"])}
    lines = []
    for search in document["searches"]:
        row = best.get(search["search"], {})
        lines.append(
            {
                "search": search["search"],
                **{name: search["request"].get(name) for name in (*ASKED, "gpus", "usd_per_hour")},
                "status": search["status"],
                "message": search.get("message", "").split("\n")[0],
                **{
                    f"best_{name}": row.get(name)
                    for name in ("strategy", "gpus", "step_time_s", *_rates(document["leaderboard"]), "mfu")
                },
            }
        )
    return lines_to_csv(lines)


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
        """Take the finished searches of earlier runs, once."""

    def ended(self, piece: SweepSearch, record: Record) -> None:
        """Take the record of a search that is on disk."""

    def advanced(self, piece: SweepSearch, share: float) -> None:
        """Take the searched share of a long search after each part that is on disk."""


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

    Raises
    ------
    RequestError
        The folder does not fit the plan, or workers are unavailable.
    StorageError
        The folder cannot be written.
    EndedEarly
        Interrupted, with the result of the finished searches.
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
        item, result = outcome.item, outcome.result
        piece = item if isinstance(item, SweepSearch) else item.of
        if outcome.failure is not None:
            if piece is item or agenda.drop(piece):  # otherwise another part of it has failed before
                _end(run, watch, piece, _failed(outcome.failure), outcome.seconds)
        elif isinstance(result, Begun):
            run.append_part(agenda.begun(piece, result, outcome.seconds))
            watch.advanced(piece, agenda.count(piece, result.piece))
        elif isinstance(item, SearchPart):
            part = agenda.searched(item, result, outcome.seconds)
            if part is not None:
                run.append_part(part)
                watch.advanced(piece, agenda.count(piece, result))
        else:
            agenda.drop(piece)
            _end(run, watch, piece, result, outcome.seconds)


def _end(run: RunDirectory, watch: Watch, piece: SweepSearch, record: Record, seconds: float) -> None:
    run.append({"key": piece.key, **record, "seconds": round(seconds, 3)})
    watch.ended(piece, run.records[piece.key])


def _failed(failure: Failure) -> Record:
    return {"status": "failed", "message": str(failure), "trace": failure.trace}
