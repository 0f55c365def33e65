"""A strategy that is predicted faster than the first row, and why it is not the first."""

from forerun.search.board.rows import Row
from forerun.search.request.preferences import against
from forerun.simulator.memory.risk import RISKY
from forerun.spaces.strategies import Context

WORTH = 0.005
"""Gain from which it is named."""


def faster_note(context: Context, first: Row, fastest: Row | None) -> tuple[str, ...]:
    """Return as one note what the fastest strategy by predicted time alone would gain and risk; none where that is the
    first row, or little faster."""
    if fastest is None:
        return ()
    gain = first.gpus * first.step_time_s / (fastest.gpus * fastest.step_time_s) - 1
    if gain < WORTH:
        return ()
    reasons = list(against(context, fastest.strategy, first.strategy))
    if fastest.oom_risk > max(first.oom_risk, RISKY):
        reasons.insert(0, f"{fastest.oom_risk:.0%} OOM risk")
    why = f"; ranked lower because of {', '.join(reasons)}" if reasons else ""
    return (f"{fastest.name} on {fastest.gpus} GPUs: {gain:+.1%} predicted throughput{why}",)
