"""OOM risk of a strategy, from measured runs with equal predicted use of memory.

Peaks are predicted with an error of several per cent, so a predicted use of 98 % of a device runs out of memory more
often than one of 80 %. The outcome of published runs against their predicted share of the device's memory follows a
logistic curve over the logarithm of the share. ``benchmarks/accuracy/memory_risk.py`` fits it, also with each table
left out, and counts how often it is right.

Where runs of the user's machine calibrated memory, the curve is around the calibrated peak. The middle of the curve,
which is fitted to uncalibrated predictions, moves towards 100 % of the memory in proportion to the reduction of the
peak's uncertainty by the runs; its width combines the peak's uncertainty, which runs reduce, with a part that runs do
not reduce. Far from every run both are unchanged. Evaluated on runs left out:
benchmarks/results/2026-11-22-calibration-memory.md.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context

EVEN_SHARE = 1.02
"""Predicted share of the device's memory at which half of the runs ran out."""
STEEPNESS = 16.0
"""Logits per unit of the logarithm of the share."""
PEAKS_SHARE = 0.25
"""Share of the curve's variance that measured peaks can remove. Runs left out are predicted equally well with shares of
0 to a quarter, and worse with more, in each of two sources (benchmarks/results)."""
_DEVIATIONS = 1.2816
"""Standard deviations on either side of a normal distribution's mean that contain 80 %."""
RISKY = 0.1
"""Risk from which a row is marked."""


def oom_risk(share: float) -> float:
    """Return the share of runs that run out of memory among runs predicted to need ``share`` of the device's memory.

    >>> round(oom_risk(0.7), 3), round(oom_risk(0.97), 2)
    (0.002, 0.31)
    """
    return 0.0 if share <= 0 else float(curve(np.asarray(share), EVEN_SHARE, STEEPNESS))


def curve(share: Floats, even: float, steepness: float) -> Floats:
    """Return the risk at shares above 0 on a logistic curve; any shape.

    Half of the runs fail at ``even``, where the slope is ``steepness / 4`` per unit of the logarithm of ``share``.
    """
    return np.asarray(1.0 / (1.0 + (even / share) ** steepness))


def share_at(risk: float) -> float:
    """Return the largest share of the device's memory that a strategy may need at a risk; at most 1.

    Raises
    ------
    RequestError
        The risk is not a probability.

    >>> round(share_at(0.05), 2)
    0.85
    """
    if not 0 < risk < 1:
        raise RequestError(f"a risk of running out of memory is above 0 and below 1 (5% or 0.05), but got {risk:g}")
    return min(1.0, EVEN_SHARE * math.exp(math.log(risk / (1 - risk)) / STEEPNESS))


def chance_above(limit: float, low: float, high: float) -> float:
    """Return the probability that a peak with 80 % interval ``low`` to ``high`` exceeds ``limit`` (lognormal).

    >>> round(chance_above(80.0, 60.0, 80.0), 2), chance_above(90.0, 80.0, 80.0)
    (0.1, 0.0)
    """
    middle, half = math.log(low * high) / 2, math.log(high / low) / 2
    if half <= 0:
        return float(math.exp(middle) > limit)
    return math.erfc((math.log(limit) - middle) / half * _DEVIATIONS / math.sqrt(2)) / 2


def risking(context: Context, risk: float | None) -> Context:
    """Return the context in which strategies above an OOM risk do not fit; None: strategies above the memory.

    Raises
    ------
    RequestError
        The risk is not a probability.
    """
    return replace(context, memory_share=1.0 if risk is None else share_at(risk), oom_risk=risk)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPeaks:
    """Peaks of N strategies after runs were measured, as shares of the device's memory.

    ``peak``: predicted memory in use; ``needed``: the same without idle buffers, which an allocator frees before it
    fails. ``left``: variance of the peak's logarithm relative to its value before the runs; ``scale``: variance of the
    runs' errors relative to the expected one.
    """

    peak: Floats
    needed: Floats
    left: Floats
    scale: float

    def oom_risk(self) -> Floats:
        """Return the OOM risk of each."""
        return np.asarray(1.0 / (1.0 + np.exp(-self._logits())))

    def factor_to(self, risk: float) -> Floats:
        """Return the factor on each peak at which its OOM risk would be ``risk``."""
        return np.asarray(np.exp((math.log(risk / (1 - risk)) - self._logits()) * self._width()))

    def _logits(self) -> Floats:
        moved = np.log(self.needed) + self.left * (np.log(self.peak / self.needed) - math.log(EVEN_SHARE))
        return np.asarray(moved / self._width())

    def _width(self) -> Floats:
        """Return the change of a peak's logarithm that corresponds to one logit."""
        return np.asarray(np.sqrt(1 - PEAKS_SHARE + PEAKS_SHARE * self.scale * self.left) / STEEPNESS)
