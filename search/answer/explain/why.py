"""Texts about the order of two rows, and the share of measured pairs in the predicted order.

Predictions have errors of several per cent, but similar errors for neighbours, so that order is better than errors
suggest. Of pairs of measured runs that differ in strategy only, the share in the predicted order grows with the
predicted gap along ``1 - exp(-(gap / SCALE) ** SHAPE) / 2``: one half for equal predictions, 1 for a large gap.
``benchmarks/accuracy/order_trust.py`` fits it, also with each table left out, and counts how often the order is right.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.search.board.rows import AnyRow
from forerun.search.measured.intervals import LEVEL
from forerun.spaces.units import TIMES, format_seconds

SCALE, SHAPE = 0.053, 0.63
"""Gap (a difference of logarithms) at which 82 % of the pairs are in order, and the steepness of the curve there."""
NEGLIGIBLE = 0.002
"""Share of a step below which a difference is not mentioned."""
LISTED = 0.01
"""Share of a step from which a part is listed."""


def order_holds(gap: float) -> float:
    """Return the share of measured pairs in the predicted order at the relative gap of two step times.

    >>> [round(order_holds(gap), 2) for gap in (0.0, 0.01, 0.05, 0.25)]
    [0.5, 0.65, 0.81, 0.96]
    """
    return float(curve(np.log1p(abs(gap)), SCALE, SHAPE))


def curve(gap: NDArray[np.float64], scale: float, shape: float) -> NDArray[np.float64]:
    """Return the share of pairs in order at gaps (differences of logarithms, at least 0); any shape."""
    return np.asarray(1.0 - 0.5 * np.exp(-((gap / scale) ** shape)))


def why(rows: Sequence[AnyRow], second: str = "") -> str:
    """Return the paragraph below a leaderboard: bottleneck of the first row and loss of the second.

    ``second``: the reason why a faster row ranks second, as the end of a sentence.
    """
    if not rows:
        return ""
    text = bound_by(rows[0])
    if len(rows) == 1:
        return text
    return f"{text} {against(rows[0], rows[1]).removesuffix('.')}{second}.{trust(rows[0], rows[1])}"


def bound_by(row: AnyRow) -> str:
    """Return the largest parts of a step, and the peak memory with its largest part."""
    shares = sorted(((value / row.step_time_s, part) for part, value in row.breakdown_s.items()), reverse=True)
    parts = ", ".join(f"{name} {share:.0%}" for share, name in shares[:4] if share >= LISTED)
    largest = max(row.memory_gib, key=lambda name: row.memory_gib[name])
    verdict = "" if row.fits else " (does not fit)"
    stage = "" if row.facts is not None else f" on stage {row.peak_stage}"
    risk = f" {row.risk_text}." if row.risk_text else ""
    return (
        f"{row.name}: step {format_seconds(row.step_time_s)} ({parts}). Peak memory {row.peak_memory_gib:.1f} of "
        f"{row.memory_limit_gib:.1f} GiB{stage}{verdict}, mostly {largest} ({row.memory_gib[largest]:.1f} GiB).{risk}"
    )


def against(winner: AnyRow, other: AnyRow, *, name: str = "") -> str:
    """Explain the time between two rows part by part; ``name``: name of the other row in the text."""
    called = name or f"The runner-up {other.name}"
    scale = other.gpus / winner.gpus
    if winner.facts is not None and other.facts is not None:  # steps of operator graphs may differ in their samples
        scale *= winner.facts.global_batch / other.facts.global_batch
    gap = scale * other.step_time_s / winner.step_time_s - 1
    seconds = {part: scale * other.breakdown_s[part] - winner.breakdown_s[part] for part in winner.breakdown_s}
    floor = NEGLIGIBLE * winner.step_time_s
    lost = sorted(((s, part) for part, s in seconds.items() if s > floor), reverse=True)[:3]
    won = sorted(((-s, part) for part, s in seconds.items() if s < -floor), reverse=True)[:3]
    if other.gpus != winner.gpus:
        times = other.step_time_s / winner.step_time_s
        text = (
            f"{called} on {other.gpus} instead of {winner.gpus} GPUs has a step {times:.2f} times as long and takes "
            f"{abs(gap):.1%} {'more' if gap > 0 else 'less'} GPU time (scaled to {winner.gpus} GPUs)"
        )
    elif abs(gap) < 0.0005:
        text = f"{called} is as fast"
    elif gap + 1 >= TIMES:
        text = f"{called} takes {gap + 1:.1f} times as long"
    else:
        text = f"{called} is {abs(gap):.1%} {'slower' if gap > 0 else 'faster'}"
    if not other.fits:
        text += f", {'but' if gap < 0 else 'and'} does not fit"
    parts = [f"{part} +{format_seconds(s)}" for s, part in lost] + [f"{part} -{format_seconds(s)}" for s, part in won]
    if parts:
        return f"{text}: {', '.join(parts)}."
    return f"{text}; no part differs by more than {NEGLIGIBLE:.1%} of a step."


def trust(one: AnyRow, other: AnyRow) -> str:
    """Return the share of measured pairs with this predicted gap in the predicted order.

    Empty with calibrated intervals, different numbers of devices, or equal predictions.
    """
    gap = abs(other.step_time_s / one.step_time_s - 1)
    if one.facts is not None or one.interval_level not in (None, LEVEL) or one.gpus != other.gpus:
        return ""
    if not 0.0005 <= gap < TIMES - 1:  # a step twice as long needs no such sentence
        return ""
    return f" At a predicted gap of {gap:.1%}, measured order agreed {order_holds(gap):.0%} of the time."
