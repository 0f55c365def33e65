"""Operators of replayed traces: their times, compared with another run, and after a change."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from math import isnan
from typing import Any

from forerun.simulator.improve.operator_changes import OperatorChange, changed_steps
from forerun.simulator.replay import Analysis
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.learned import served_exchanges
from forerun.simulator.replay.statistics import OperatorUse, operator_differences, operator_uses
from forerun.spaces.errors import unknown
from forerun.spaces.files import csv_text


def operators_document(
    analysis: Analysis,
    other: Analysis | None,
    changes: Sequence[OperatorChange],
    patterns: Sequence[str],
    *,
    top: int,
) -> dict[str, Any]:
    """Return the keys about operators in the document of ``replay``.

    Parameters
    ----------
    analysis
        The run.
    other
        Another run to compare it with.
    changes
        Changes of operators for a predicted step.
    patterns
        Names of operators to find (shell wildcards).
    top
        Number of listed operators and differences.

    Raises
    ------
    RequestError
        A change or a pattern is for an operator or a rank missing in the run.
    """
    uses = operator_uses(analysis.replay.graph.traces)
    document: dict[str, Any] = {
        "operators": [asdict(use) for use in uses[:top]],
        "what_if": [asdict(one) for one in changed_steps(analysis, changes)] if changes else [],
    }
    if patterns:
        document["found"] = [asdict(use) for use in _matching(uses, patterns)]
    if other is not None:
        differences = operator_differences(uses, operator_uses(other.replay.graph.traces))
        differing = [{**asdict(one), "difference_s": one.difference_s} for one in differences[:top]]
        document["against"] = {"step_time_s": other.replay.step_s, "operators": differing}
    return document


def operators_csv(analysis: Analysis) -> str:
    """Return a line per operator, the costliest first."""
    uses = operator_uses(analysis.replay.graph.traces)
    return csv_text([field.name for field in fields(OperatorUse)], map(asdict, uses))


def _matching(uses: Sequence[OperatorUse], patterns: Sequence[str]) -> tuple[OperatorUse, ...]:
    """Return the operators that patterns name.

    Raises:
        RequestError: a pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(use.name, pattern) for use in uses):
            raise unknown("operator of the traces", pattern, sorted({use.name for use in uses}))
    return tuple(use for use in uses if any(fnmatchcase(use.name, pattern) for pattern in patterns))


def messages_csv(graph: ReplayGraph) -> str:
    """Return a line per matched message: bytes, and times in s."""
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
