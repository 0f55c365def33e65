"""Seconds that candidates rank by: the predicted step, the price of a failed start, and what practice prefers.

Trying strategies in order until one runs, the least is lost in expectation by the order of ``t + c p / (1 - p)``, with
``t`` the step time, ``p`` the risk of running out of memory and ``c`` what a failed start costs (exchange two
neighbours of an order and compare). ``c`` is ``FAILED_START`` of the training's own time. Shapes: N candidates.
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
"""Cost of a failed start as a share of a step, for every step. On 24 groups of measured runs, some of which ran out of
memory, half of it costs 1.1 % less to launch (one group decides) and twice of it 1.6 % more; failed starts are as many
(``benchmarks/accuracy/launch_order.py``)."""
LEAST_SAFETY = 1e-9
"""Smallest probability of fitting that odds are counted with."""

Number = TypeVar("Number", float, Floats)


def failed_start(odds: Number) -> Number:
    """Return the expected price of failed starts as a share of a step, at some odds ``p / (1 - p)`` of failure."""
    return FAILED_START * odds


def odds_of(risk: Number) -> Number:
    """Return the odds ``p / (1 - p)`` of a risk ``p``."""
    odds: Number = risk / np.maximum(1.0 - risk, LEAST_SAFETY)
    return odds


def odds_of_failure(context: Context, scores: ScoreTable) -> Floats:
    """Return the odds of N candidates of running out of memory."""
    if scores.oom_risk is None:
        share = scores.peak_memory_bytes / context.cluster.device.memory_bytes
        odds: Floats = np.power(share / EVEN_SHARE, STEEPNESS)  # what ``risk.curve`` is a function of
        return odds
    return odds_of(scores.oom_risk)


def launch_factor(context: Context, table: StrategyTable, price: Floats | float = 0.0) -> Floats:
    """Return the factor, at least 1, by which N candidates count longer than their steps. ``price``: of failed starts;
    without it the factor is a lower bound."""
    factor = np.ones(len(table)) + price
    for share in dislikes(context, table):
        factor += share
    return factor


def worth_s(context: "Context | GraphContext", scores: ScoreTable, table: "StrategyTable | SplitTable") -> Floats:
    """Return the seconds by which N candidates rank: of operator graphs, whose batch may grow with the devices, those
    of a sample."""
    if isinstance(context, Context) and isinstance(table, StrategyTable):
        price = failed_start(odds_of_failure(context, scores))
        return np.asarray(scores.step_time_s * launch_factor(context, table, price))
    assert not isinstance(table, StrategyTable)
    # Steps that loading bounds differ in their last bits alone: they tie.
    mantissa, exponent = np.frexp(scores.step_time_s / table.batch)
    return np.asarray(np.ldexp(np.round(mantissa, 12), exponent))


def worth_of(context: Context, strategy: Strategy, step_s: float, risk: float) -> float:
    """Return the seconds by which one strategy ranks, of which step time and risk are known."""
    return step_s * float(launch_factor(context, table_of([strategy]), failed_start(odds_of(risk)))[0])


def risk_against(risk: float, other: float) -> float:
    """Return the share of a step that a risk of running out of memory counts longer than another."""
    return failed_start(odds_of(risk)) - failed_start(odds_of(other))
