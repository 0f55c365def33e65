"""Event by event, faster hardware is never slower, also where the core only estimates: the law is one of the model."""

import numpy as np
import pytest
from laws import ROUNDING, examples, slacks, with_flops, with_links, with_memory_rate
from random_requests import legal_table

from forerun.simulator import score
from forerun.simulator.events import event_scores
from forerun.spaces.strategies import Context, Schedule, StrategyTable

TURNS = 0.02
"""What ZB-V may lose: products that got faster change whose turn it is. Seen at most: 1.4 %."""


def worst_of_each(better: Context, worse: Context, table: StrategyTable) -> StrategyTable:
    """Return the candidate of every kind of estimate, and of none, that the core has grow most."""
    table = table.take(table.column("pp") > 1)
    growth, kinds = score(better, table).step_time_s / score(worse, table).step_time_s, slacks(worse, table)
    rows = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
    return table.take(np.array([own[np.argmax(growth[own])] for own in rows]))


@pytest.mark.slow  # event by event
@pytest.mark.parametrize("framework", ["generic", "torchtitan", "megatron-lm"])
@pytest.mark.parametrize("example", [0, -1])
def test_the_candidates_that_the_core_estimates_worst(framework: str, example: int) -> None:
    context = examples(framework)[example]
    table = legal_table(context, 16)
    for faster in (with_flops, with_memory_rate, with_links):
        better = faster(context, 2.0)
        chosen = worst_of_each(better, context, table)
        ratio = event_scores(better, chosen).step_time_s / event_scores(context, chosen).step_time_s
        allowed = np.where(chosen.column("schedule") == Schedule.ZB_V, TURNS, 0.0)
        assert len(chosen) >= 3
        assert np.all(ratio <= 1 + allowed + ROUNDING), [
            (str(chosen.strategy(n)), ratio[n]) for n in range(len(chosen))
        ]
