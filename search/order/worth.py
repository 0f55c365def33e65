"""Seconds for ranking: predicted step, price of a failed start, and preferences of practice.

If strategies are tried until one runs, the expected loss is least in the order of ``t + c p / (1 - p)``, with step time
``t``, OOM risk ``p`` and cost ``c`` of a failed start (by exchange of two neighbours). ``c`` is ``FAILED_START`` of the
training's own time. Shapes: N candidates.
"""

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from forerun.search.order.preferences import dislikes
from forerun.simulator.memory.risk import EVEN_SHARE, STEEPNESS
from forerun.simulator.score_table import Floats, ScoreTable
from forerun.spaces.strategies import Context, Strategy, StrategyTable, table_of

if TYPE_CHECKING:
    from forerun.simulator.opgraph import GraphContext
    from forerun.simulator.opgraph.table import SplitTable

FAILED_START = 0.1
"""Cost of a failed start as a share of a step, for every step. On 24 groups of measured runs with out-of-memory runs,
half of it makes launches 1.1 % cheaper (one group decides) and twice of it 1.6 % dearer, with the same number of failed
starts (docs/decisions/accuracy-by-source.md)."""
LEAST_SAFETY = 1e-9
"""Smallest probability of fitting in odds."""

Number = TypeVar("Number", float, Floats)


def failed_start(odds: Number) -> Number:
    """Return the expected price of failed starts as a share of a step, at odds ``p / (1 - p)`` of failure."""
    return FAILED_START * odds


def odds_of(risk: Number) -> Number:
    """Return the odds ``p / (1 - p)`` of a risk ``p``."""
    odds: Number = risk / np.maximum(1.0 - risk, LEAST_SAFETY)
    return odds


def with_failed_starts(seconds: float, risk: float) -> float:
    """Return seconds of a step or a device with the price of failed starts at an OOM risk."""
    return seconds * (1 + failed_start(odds_of(risk)))


def odds_of_failure(context: Context, scores: ScoreTable) -> Floats:
    """Return the OOM odds of N candidates."""
    if scores.oom_risk is None:
        share = scores.peak_memory_bytes / context.cluster.device.memory_bytes
        odds: Floats = np.power(share / EVEN_SHARE, STEEPNESS)  # the argument of ``risk.curve``
        return odds
    return odds_of(scores.oom_risk)


def launch_factor(context: Context, table: StrategyTable, price: Floats | float = 0.0) -> Floats:
    """Return the factors (at least 1) from the step times of N candidates to their ranking seconds.

    ``price``: price of failed starts; without it the factors are lower bounds.
    """
    factor = np.ones(len(table)) + price
    for share in dislikes(context, table):
        factor += share
    return factor


def worth_s(context: "Context | GraphContext", scores: ScoreTable, table: "StrategyTable | SplitTable") -> Floats:
    """Return the ranking seconds of N candidates.

    They are per sample for operator graphs, whose batch may grow with the devices.
    """
    if isinstance(context, Context) and isinstance(table, StrategyTable):
        price = failed_start(odds_of_failure(context, scores))
        return np.asarray(scores.step_time_s * launch_factor(context, table, price))
    assert not isinstance(table, StrategyTable)
    # Steps bound by loading differ only in their last bits, so they count as equal.
    mantissa, exponent = np.frexp(scores.step_time_s / table.batch)
    return np.asarray(np.ldexp(np.round(mantissa, 12), exponent))


def worth_of(context: Context, strategy: Strategy, step_s: float, risk: float) -> float:
    """Return the ranking seconds of one strategy from its step time and risk."""
    return step_s * float(launch_factor(context, table_of([strategy]), failed_start(odds_of(risk)))[0])


def risk_against(risk: float, other: float) -> float:
    """Return the difference of the penalties of two OOM risks, as a share of a step."""
    return failed_start(odds_of(risk)) - failed_start(odds_of(other))
