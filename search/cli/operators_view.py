"""Operators of replayed traces: what each takes, against another run, and what if it took another time."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from forerun.search.cli.console import say
from forerun.search.cli.replay_view import table
from forerun.simulator.improve.operator_changes import OperatorChange, changed_steps
from forerun.simulator.improve.run_questions import Question
from forerun.simulator.replay import Analysis
from forerun.simulator.replay.statistics import OperatorDifference, OperatorUse, operator_differences, operator_uses
from forerun.spaces.errors import RequestError
from forerun.spaces.files import csv_text
from forerun.spaces.units import format_seconds, parse_seconds

LEAST_DIFFERENCE = 0.001
"""Share of a step below which two runs take the same time for an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsView:
    """Operators of a run: ``uses``, the answers ``asked`` for, and where there is another run its step (seconds) and
    the ``differences``."""

    uses: tuple[OperatorUse, ...]
    asked: tuple[Question, ...]
    step_s: float
    other_step_s: float | None
    differences: tuple[OperatorDifference, ...]

    @classmethod
    def of(cls, analysis: Analysis, other: Analysis | None, changes: Sequence[OperatorChange]) -> "OperatorsView":
        """Compute all of it.

        Raises:
            RequestError: a change is for an operator or a rank that the run does not have.
        """
        uses = operator_uses(analysis.replay.graph.traces)
        others = () if other is None else operator_uses(other.replay.graph.traces)
        return cls(
            uses=uses,
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
        if self.other_step_s is not None:
            differing = [{**asdict(one), "difference_s": one.difference_s} for one in self.differences[:top]]
            document["against"] = {"step_time_s": self.other_step_s, "operators": differing}
        return document

    def print(self, console: Console, top: int) -> None:
        """Print the answers, and the operators whose time differs most between the runs."""
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


def read_change(text: str) -> OperatorChange:
    """Read ``OPERATOR[@RANK]=X`` (a factor) or ``OPERATOR[@RANK]=+TIME`` (``-TIME``).

    Raises:
        ArgumentTypeError: it is neither.
    """
    name, equals, value = text.rpartition("=")
    at = re.fullmatch(r"(.+)@(\d{1,9})", name)
    operators, rank = (at[1], int(at[2])) if at else (name, None)
    try:
        if not (equals and operators):
            raise ValueError
        if value[:1] in "+-":
            delay_s = parse_seconds(value[1:]) * (-1 if value[0] == "-" else 1)
            return OperatorChange(operators=operators, rank=rank, delay_s=delay_s)
        if not 0 <= (factor := float(value)) <= 1e6:
            raise ValueError
        return OperatorChange(operators=operators, rank=rank, factor=factor)
    except (ValueError, RequestError):
        raise argparse.ArgumentTypeError(
            f"must be an operator and a factor or a time, as aten::mm=0.5 or all_reduce@3=+2ms, but got {text[:80]!r}"
        ) from None
