"""Diagnosis of a request without a feasible strategy: limits, nearest candidate, helpful changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.search.answer.diagnosis.fixes import Fix, fixes, relaxed
from forerun.search.answer.diagnosis.no_answer import NoAnswer
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.goodput import days_of, usd_of, with_goodput
from forerun.search.answer.notes.in_time import fewest_in_time
from forerun.search.board.found import Found
from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import best_row
from forerun.search.explore.flat.exhaustive import slices
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import RULES, StrategySpace
from forerun.spaces.strategies.space import values_at
from forerun.spaces.units import format_count, format_seconds

TOP_BLOCKERS = 3
SAMPLES = 64
"""Most candidates, evenly over the space, searched for an example of each broken law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The reasons why nothing is feasible.

    ``blockers``: candidates by reason, most first; ``laws``: the law of each reason with the values of one illegal
    candidate (only if no candidate is legal). ``closest``: the legal candidate with the smallest excess of memory.
    ``fixes``: changes that make something feasible (by search), smallest first.
    """

    legal: int
    blockers: tuple[tuple[str, int], ...]
    laws: Mapping[str, str]
    closest: Row | None
    fixes: tuple[Fix, ...]

    @property
    def next_fix(self) -> Fix | None:
        """The fastest fix by flags alone with unchanged devices and work, else the first fix by flags."""
        typed = [fix for fix in self.fixes if fix.flags]
        same = [fix for fix in typed if fix.flags.startswith(("--framework", "--with", "--oom-risk"))]
        return max(same, key=lambda fix: fix.row.throughput_per_gpu, default=typed[0] if typed else None)

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as plain data."""
        return {
            "blockers": [
                {"reason": reason, "candidates": count, "law": self.laws.get(reason)} for reason, count in self.blockers
            ],
            "closest": None if self.closest is None else self.closest.to_json(),
            "excess_gib": None if self.closest is None else self.closest.excess_gib,
            "changes": [fix.to_json() for fix in self.fixes],
        }

    def text(self) -> str:
        """Return the diagnosis as text."""
        if self.legal:
            lines = [f"nothing is feasible: none of {self.legal:,} legal candidates fits into memory"]
        else:
            lines = ["nothing is feasible: no candidate satisfies all laws"]
        lines += _blocker_lines(self.blockers, self.laws)
        if self.closest is not None:
            row = self.closest
            largest = max(row.memory_gib, key=lambda part: row.memory_gib[part])
            lines.append(
                f"closest: {row.name} needs {row.peak_memory_gib:.1f} GiB, {row.excess_gib:.1f} GiB more than the "
                f"{row.memory_limit_gib:.1f} GiB available; largest part: {largest} {row.memory_gib[largest]:.1f} GiB"
            )
        if self.fixes:
            lines.append("smallest changes that make it feasible, each with an example:")
            lines += [
                f"  {fix.change}: {fix.row.name}, {fix.row.peak_memory_gib:.1f} GiB, "
                f"{fix.row.throughput_per_gpu:,.0f} tokens/s/GPU"
                for fix in self.fixes
            ]
            if any(fix.tree for fix in self.fixes):
                lines.append("  (offloaded tensors need a strategy tree; --json contains it, for simulate --tree)")
            if (best := self.next_fix) is not None:
                lines.append(f"Next: the same search with {best.flags}")
        else:
            lines.append(
                "no single change of axes, framework, number of GPUs, batch or sequence length makes it feasible"
            )
        return "\n".join(lines)


class NothingFeasible(NoAnswer):
    """Nothing fits; ``diagnosis`` has the reasons."""

    def __init__(self, diagnosis: Diagnosis, document: dict[str, Any]) -> None:
        super().__init__(diagnosis.text(), document, diagnosis.to_json())
        self.diagnosis = diagnosis


class BeyondLimits(NoAnswer):
    """All fitting strategies take too long or cost too much."""


def empty_space(setting: Setting, counts: SpaceCounts) -> RequestError:
    """Return the error for restrictions without a legal candidate: the broken laws and the restriction to lift."""
    blockers = _blockers(counts)
    laws = _laws(setting.space(), [reason for reason, _ in blockers[:TOP_BLOCKERS]])
    lines = ["the restricted space is empty: no candidate satisfies all laws", *_blocker_lines(blockers, laws)]
    freed = next((change for change, other in relaxed(setting) if _has_legal(other)), None)
    lines.append(f"nearest fix: {freed}" if freed else "no restriction that was lifted gives a legal candidate either")
    return RequestError("\n".join(lines))


def beyond_limits(setting: Setting, score: Scorer, document: dict[str, Any]) -> BeyondLimits:
    """Return the error for a training without a strategy within its time and money, with the nearest ones."""
    request, nearest = setting.request, {}
    # On one number of GPUs the fastest strategy is the cheapest.
    asked = {"fastest": "throughput", **({"cheapest": "cost"} if len(setting.gpus or ()) > 1 else {})}
    for what, objective in asked.items():
        row = best_row(setting, objective=objective, score=score)
        if row is not None:
            nearest[what] = with_goodput(setting, (row,))[0]
    conditions = []
    for what, row in nearest.items():
        sum_usd = "" if row.train_cost_usd is None else f" and {usd_of(row):,.0f} USD"
        conditions.append(
            f"  the {what} strategy needs {days_of(row):,.1f} days{sum_usd}: {row.gpus:,} GPUs, {row.name}"
        )
    days = "" if request.train_within_s is None else f" within {format_seconds(request.train_within_s)}"
    money = "" if request.train_usd is None else f" for {request.train_usd:,.0f} USD"
    tokens = format_count(setting.context.workload.tokens or 0.0)
    lines = [f"no strategy trains {tokens} tokens{days}{money}", *conditions]
    infeasible: dict[str, Any] = {
        "message": lines[0],
        "nearest": {what: row.to_json() for what, row in nearest.items()},
    }
    if nearest and request.train_within_s is not None:
        searched = fewest_in_time(setting, [nearest["fastest"]], NoteSearch(score=score))
        lines.append(f"  {searched.text()}")
        infeasible["enough"] = searched.enough and searched.enough.to_json()
    lines.append("nearest fix: a later end, more money, more GPUs (--gpus), or fewer tokens")
    return BeyondLimits("\n".join(lines), document, infeasible)


def _has_legal(setting: Setting) -> bool:
    """Whether any candidate is legal; stops at the first slice that has one."""
    return any(len(part.table) for part in slices(setting.space(), 0, setting.space().size))


def _blockers(counts: SpaceCounts) -> tuple[tuple[str, int], ...]:
    """Return candidates by reason, most first. Memory precedes the laws, since it rejects legal candidates."""
    return tuple(sorted(counts.rejected.items(), key=lambda item: (item[0] != "memory", -item[1], item[0])))


def _blocker_lines(blockers: tuple[tuple[str, int], ...], laws: Mapping[str, str]) -> list[str]:
    lines = ["top blockers, by number of candidates:"]
    for reason, number in blockers[:TOP_BLOCKERS]:
        lines.append(f"  {reason} {number:,}" + (f", for example: {laws[reason]}" if reason in laws else ""))
    return lines


def diagnose(setting: Setting, found: Found, score: Scorer) -> Diagnosis:
    """Diagnose a search without a feasible strategy."""
    counts = found.flat_space or found.space
    blockers = _blockers(counts)
    return Diagnosis(
        legal=counts.legal,
        blockers=blockers,
        laws={} if counts.legal else _laws(setting.space(), [reason for reason, _ in blockers[:TOP_BLOCKERS]]),
        closest=found.closest,
        fixes=tuple(fixes(setting, score)),
    )


def _laws(space: StrategySpace, reasons: Collection[str]) -> dict[str, str]:
    """Return the law of each reason with the values of one sampled candidate; some reasons may lack one."""
    samples = [values_at(space, sample * (space.size - 1) // (SAMPLES - 1)) for sample in range(SAMPLES)]
    laws: dict[str, str] = {}
    for rule in RULES:
        # Laws about replicas are uninformative if the degrees do not divide the devices.
        asked = [v for v in samples if v["dp"] or "gpus" not in rule.axes or rule.code == "devices"]
        if rule.code not in reasons or not asked:
            continue
        columns = {axis: np.array([values[axis] for values in asked], dtype=np.int64) for axis in asked[0]}
        broken = np.flatnonzero(rule.illegal(columns, space.context))
        if len(broken):
            laws[rule.code] = rule.message(asked[int(broken[0])], space.context)
    return laws
