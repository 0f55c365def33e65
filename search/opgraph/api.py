"""Search over the splits of an operator graph."""

import time
from dataclasses import dataclass, replace
from typing import Any

from forerun.search.board.leaderboard import SCHEMA, flat_line, lines_to_csv, versions
from forerun.search.opgraph.request import GraphSetting
from forerun.search.opgraph.rows import GraphRow
from forerun.search.opgraph.scoring import in_segments, scored_rows
from forerun.search.opgraph.space import enumerate_splits
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.opgraph.batch import PerDevice

SLICE = 512
"""Rows scored at once: bounds the memory of large models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBoard:
    """The best splits in rank order, and the best of every family whatever its rank."""

    setting: GraphSetting
    size: int
    legal: int
    feasible: int
    rejected: dict[str, int]
    rows: tuple[GraphRow, ...]
    families: tuple[GraphRow, ...]
    elapsed_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``forerun search --json`` prints for operator graphs."""
        return {
            "schema": SCHEMA,
            "request": self.setting.to_json(),
            "space": {
                "size": self.size,
                "legal": self.legal,
                "feasible": self.feasible,
                "rejected": self.rejected,
            },
            "leaderboard": [row.to_json() for row in self.rows],
            "families": [row.to_json() for row in self.families],
            "elapsed_s": self.elapsed_s,
            "candidates_per_s": self.legal / self.elapsed_s if self.elapsed_s > 0 else 0.0,
            "versions": versions(),
        }

    def to_csv(self) -> str:
        """Return the rows as CSV."""
        return lines_to_csv([flat_line(row.to_json()) for row in self.rows])


def search_graph(setting: GraphSetting) -> GraphBoard:
    """Score every legal split over the numbers of devices asked for, and rank those that fit.

    Raises:
        RequestError: no number of devices was named.
        NothingFits: nothing is legal, or nothing fits; the message has the smallest change that would help.
    """
    if setting.counts is None:
        raise RequestError("a search needs devices; add --gpus, like --gpus 64 or --gpus 4..1024")
    started = time.perf_counter()
    space = enumerate_splits(setting, setting.counts)
    rows: list[GraphRow] = []
    for begin in range(0, len(space.splits), SLICE):
        part = slice(begin, begin + SLICE)
        rows += scored_rows(setting.context, space.splits[part], space.batches[part])
    smaller = in_segments(setting.context, rows)
    rows += smaller
    fitting, size = [row for row in rows if row.fits], space.size + len(smaller)
    if not fitting:
        rejected = {**space.rejected, **({"memory": len(rows)} if rows else {})}
        raise NothingFits(_nothing(setting, rows, space.rejected), _empty(setting, size, len(rows), rejected))
    ordered = sorted(fitting, key=lambda row: _order(setting, row))
    rejected = dict(space.rejected)
    if len(rows) > len(fitting):
        rejected["memory"] = len(rows) - len(fitting)
    ranked = [replace(row, rank=place) for place, row in enumerate(ordered, start=1)]
    best: dict[str, GraphRow] = {}
    for row in ranked:
        best.setdefault(row.split.family, row)
    return GraphBoard(
        setting=setting,
        size=size,
        legal=len(rows),
        feasible=len(fitting),
        rejected=rejected,
        rows=tuple(ranked[: setting.top]),
        families=tuple(best.values()),
        elapsed_s=time.perf_counter() - started,
    )


class NothingFits(InfeasibleError):
    """No split is legal and fits; ``document`` is what ``--json`` prints."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = {**document, "message": message}


def _empty(setting: GraphSetting, size: int, legal: int, rejected: dict[str, int]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "request": setting.to_json(),
        "space": {"size": size, "legal": legal, "feasible": 0, "rejected": rejected},
        "leaderboard": [],
        "families": [],
        "versions": versions(),
    }


def _order(setting: GraphSetting, row: GraphRow) -> tuple[float, float, str]:
    """Return the key that ranks; ties break by fewer devices and then by the text of the split."""
    if setting.objective == "gpus":
        return row.gpus, -row.samples_per_s, str(row.split)
    if setting.objective == "headroom":
        return row.peak_memory_gib - row.memory_limit_gib, -row.samples_per_s, str(row.split)
    score = row.samples_per_s_per_gpu if setting.objective == "cost" else row.samples_per_s
    return -score, row.gpus, str(row.split)


def _nothing(setting: GraphSetting, rows: list[GraphRow], rejected: dict[str, int]) -> str:
    if not rows:
        counted = ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))
        return f"no split of {setting.context.model.name} is legal here (by reason: {counted})"
    least = min(rows, key=lambda row: row.peak_memory_gib)
    split = least.split
    if least.global_batch // split.replicas // split.segments > 1:
        more = "" if isinstance(setting.request.global_batch, PerDevice) else " or more GPUs"
        change = f"use a smaller batch than {setting.request.global_batch}{more}"
    else:
        change = "one sample at a time is too much: use more GPUs, or GPUs with more memory"
    return (
        f"nothing fits: the leanest split, {split}, needs {least.peak_memory_gib:.1f} GiB of the "
        f"{least.memory_limit_gib:.1f} GiB usable; {change}"
    )
