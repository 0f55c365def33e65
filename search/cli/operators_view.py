"""Operators of replayed traces: what each takes, against another run, and what if it took another time."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from math import isnan
from typing import Any

from rich.console import Console
from rich.table import Table

from forerun.search.cli.console import say
from forerun.search.cli.flags.kinds import Unreadable
from forerun.search.cli.replay_view import table
from forerun.simulator.improve.operator_changes import OperatorChange, changed_steps
from forerun.simulator.improve.run_questions import Question
from forerun.simulator.replay import Analysis
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.learned import served_exchanges
from forerun.simulator.replay.statistics import OperatorDifference, OperatorUse, operator_differences, operator_uses
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.files import csv_text
from forerun.spaces.units import format_seconds, parse_seconds

LEAST_DIFFERENCE = 0.001
"""Share of a step below which two runs take the same time for an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsView:
    """Operators of a run: ``uses``, those ``found`` by name (None: nobody asked), the answers ``asked`` for, and where
    there is another run its step (seconds) and the ``differences``."""

    uses: tuple[OperatorUse, ...]
    found: tuple[OperatorUse, ...] | None
    asked: tuple[Question, ...]
    step_s: float
    other_step_s: float | None
    differences: tuple[OperatorDifference, ...]

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        other: Analysis | None,
        changes: Sequence[OperatorChange],
        patterns: Sequence[str] = (),
    ) -> "OperatorsView":
        """Compute all of it; ``patterns`` name operators (shell wildcards).

        Raises:
            RequestError: a change or a pattern is for an operator or a rank that the run does not have.
        """
        uses = operator_uses(analysis.replay.graph.traces)
        others = () if other is None else operator_uses(other.replay.graph.traces)
        return cls(
            uses=uses,
            found=_found(uses, patterns) if patterns else None,
            asked=changed_steps(analysis, changes) if changes else (),
            step_s=analysis.replay.step_s,
            other_step_s=None if other is None else other.replay.step_s,
            differences=() if other is None else operator_differences(uses, others),
        )

    def to_csv(self) -> str:
        """Return a line per operator, the costliest first."""
        return csv_text([field.name for field in fields(OperatorUse)], map(asdict, self.uses))

    def to_json(self, top: int) -> dict[str, Any]:
        """Return the keys that ``replay --json`` has of operators; ``top`` of each kind."""
        document: dict[str, Any] = {
            "operators": [asdict(use) for use in self.uses[:top]],
            "what_if": [asdict(one) for one in self.asked],
        }
        if self.found is not None:
            document["found"] = [asdict(use) for use in self.found]
        if self.other_step_s is not None:
            differing = [{**asdict(one), "difference_s": one.difference_s} for one in self.differences[:top]]
            document["against"] = {"step_time_s": self.other_step_s, "operators": differing}
        return document

    def print(self, console: Console, top: int) -> None:
        """Print what was asked for, and the operators whose time differs most between the runs."""
        if self.found is not None:
            listed = table("\nOperators", "name", "kind", "phase", "count", "mean", "least", "most", "per step")
            for use in self.found:
                times = map(format_seconds, (use.mean_s, use.least_s, use.most_s, use.step_s))
                listed.add_row(use.name[:60], use.kind, use.phase, str(use.count), *times)
            say(console, listed)
        if self.asked:
            shown = table("\nWhat if", "operators", "changed", "a step", "saves")
            for one in self.asked:
                shown.add_row(one.name[:60], one.what, format_seconds(one.step_s), format_seconds(one.gain_s))
            say(console, shown)
        if self.other_step_s is not None:
            say(console, self._differences(self.other_step_s, top))

    def _differences(self, other_step_s: float, top: int) -> Table:
        change = f"{format_seconds(other_step_s)} per step ({self.step_s / other_step_s - 1:+.1%})"
        title = f"\nAgainst the other run, of {change}: operators per step, mean over ranks"
        shown = table(title, "operator", "phase", "this run", "other run", "difference")
        kept = [one for one in self.differences if abs(one.difference_s) > LEAST_DIFFERENCE * self.step_s]
        for one in kept[:top]:
            took, took_there = format_seconds(one.step_s), format_seconds(one.other_step_s)
            sign = "+" if one.difference_s > 0 else "-"
            shown.add_row(one.name[:60], one.phase, took, took_there, sign + format_seconds(abs(one.difference_s)))
        if not kept:
            shown.add_row(f"none differs by {LEAST_DIFFERENCE:.1%} of a step or more")
        return shown


def _found(uses: Sequence[OperatorUse], patterns: Sequence[str]) -> tuple[OperatorUse, ...]:
    """Return the operators that patterns name.

    Raises:
        RequestError: one names none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(use.name, pattern) for use in uses):
            raise unknown("operator of the traces", pattern, sorted({use.name for use in uses}))
    return tuple(use for use in uses if any(fnmatchcase(use.name, pattern) for pattern in patterns))


def messages_csv(graph: ReplayGraph) -> str:
    """Return a line per message that was matched: bytes and times of each, in seconds."""
    rows = []
    for one, took_s in served_exchanges(graph):
        place, span = one.members[0]
        rows.append(
            {
                "operation": "send and receive" if one.operation == "pair" else one.operation,
                "ranks": " ".join(str(graph.traces[member].rank) for member, _ in one.members),
                "step": int(graph.traces[place].step[span]),
                "label": graph.traces[place].messages[span].label,
                "bytes": "" if isnan(one.size_bytes) else one.size_bytes,
                "all_there_s": max(float(graph.start_s[member][span]) for member, span in one.members),
                "took_s": took_s,
            }
        )
    return csv_text(["operation", "ranks", "step", "label", "bytes", "all_there_s", "took_s"], rows)


def read_change(text: str) -> OperatorChange:
    """Read ``OPERATOR[@RANK]=X`` (a factor) or ``OPERATOR[@RANK]=+TIME`` (``-TIME``).

    Raises:
        Unreadable: it is neither.
    """
    name, equals, value = text.rpartition("=")
    at = re.fullmatch(r"(.+)@(\d{1,9})", name)
    operators, rank = (at[1], int(at[2])) if at else (name, None)
    try:
        if not (equals and operators):
            raise ValueError
        if value[:1] in "+-" and value[-1:].isalpha():  # a bare -1 is no factor
            delay_s = parse_seconds(value[1:]) * (-1 if value[0] == "-" else 1)
            return OperatorChange(operators=operators, rank=rank, delay_s=delay_s)
        if not 0 <= (factor := float(value)) <= 1e6:
            raise ValueError
        return OperatorChange(operators=operators, rank=rank, factor=factor)
    except (ValueError, RequestError):
        raise Unreadable(
            f"must be an operator and a factor or a time, as aten::relu=0.5 or all_reduce@3=+2ms, but got {text[:80]!r}"
        ) from None
