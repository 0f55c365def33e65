"""Leaderboard across all searches of a sweep, as JSON and CSV, without times of this run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.board.leaderboard import flat_line, lines_to_csv
from forerun.search.files.documents import SCHEMA, versions
from forerun.search.files.records import Record
from forerun.search.files.version import cost_model_version
from forerun.search.order.objectives import objective_named
from forerun.search.sweep.plan import SweepPlan, SweepSearch

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
