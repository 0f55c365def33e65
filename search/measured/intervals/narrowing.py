"""Narrowing of intervals by measurements of the user, from the variances of prediction errors."""

from dataclasses import dataclass, replace

import numpy as np

from forerun.search.measured.intervals.cells import Floats, Points, Residuals
from forerun.search.measured.intervals.kriging import DEVIATIONS, KnownErrors, expected, known_errors_of

RUNS = 3
"""Number of proposed user runs."""
LESS = 0.75
"""Largest remaining share of a range for which a measurement is proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Half widths of the 80 % range of a step, as logarithms: now, with compute constants measured on the device
    (``profile``), and with ``RUNS`` runs of the strategy measured (``runs``).
    """

    now: float
    profile: float
    runs: float


def narrowing(errors: KnownErrors, asked: Points) -> Narrowing:
    """Estimate the range of one prediction after measurements equal to their predictions."""
    profiled = replace(asked, kinds=tuple(replace(kind, constants="own") for kind in asked.kinds))
    new = np.array([int(errors.known.points.tables.max()) + 1])
    measured = replace(asked, tables=new)
    simulated = Residuals(points=measured, log_ratio=np.zeros(1), rows=np.array([float(RUNS)]), missed=np.ones(1))
    after = known_errors_of(_joined(errors.known, simulated), errors.sizes)
    halves = (expected(known_errors, points)[1] for known_errors, points in
              ((errors, asked), (errors, profiled), (after, measured)))  # fmt: skip
    now, profile, runs = (DEVIATIONS * float(half[0]) for half in halves)
    return Narrowing(now=now, profile=profile, runs=runs)


def _joined(one: Residuals, other: Residuals) -> Residuals:
    """Return the cells of both."""

    def both(first: Floats, second: Floats) -> Floats:
        return np.concatenate([first, second])

    points, more = one.points, other.points
    return Residuals(
        points=Points(
            kinds=(*points.kinds, *more.kinds),
            gpus=both(points.gpus, more.gpus),
            busy=both(points.busy, more.busy),
            tables=np.concatenate([points.tables, more.tables]),
            reading=np.concatenate([points.reading, more.reading]),
            size=both(points.size, more.size),
        ),
        log_ratio=both(one.log_ratio, other.log_ratio),
        rows=both(one.rows, other.rows),
        missed=both(one.missed, other.missed),
    )


def range_text(half: float) -> str:
    """Return the range of a half width (a logarithm) around a prediction, in per cent.

    >>> range_text(0.4)
    '-33..+49%'
    """
    return f"{100 * np.expm1(-half):+.0f}..{100 * np.expm1(half):+.0f}%"
