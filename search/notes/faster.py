"""A strategy that is predicted faster than the first row, and why it is not the first."""

from collections.abc import Sequence

from forerun.search.board.rows import Row
from forerun.search.request.preferences import against
from forerun.spaces.strategies import Context, Strategy

WORTH = 0.005
"""Gain from which it is named."""


def faster_note(context: Context, rows: Sequence[Row], fastest: Row | None) -> tuple[str, ...]:
    """Return as one note what the fastest strategy by predicted time alone would gain and risk; none where that is the
    first row or the second (of which more is said), or little faster."""
    first = rows[0]
    if fastest is None or (len(rows) > 1 and rows[1].name == fastest.name):
        return ()
    gain = _gain(first, fastest)
    if gain < WORTH:
        return ()
    told = f"{fastest.name} on {fastest.gpus} GPUs: {gain:+.1%} predicted throughput"
    return (told + lower_because(context, first, fastest),)


def lower_because(context: Context, first: Row, other: Row) -> str:
    """Return as the end of a sentence why a flat strategy that is predicted faster than the first row ranks lower; ""
    where it is no faster."""
    if _gain(first, other) <= 0 or other.tree or other.facts is not None or not isinstance(other.strategy, Strategy):
        return ""
    reasons = list(against(context, other.strategy, first.strategy))
    if other.oom_risk > first.oom_risk:
        reasons.insert(0, f"{other.oom_risk:.0%} OOM risk")
    return f"; ranked lower because of {', '.join(reasons)}" if reasons else ""


def _gain(first: Row, other: Row) -> float:
    return first.gpus * first.step_time_s / (other.gpus * other.step_time_s) - 1
