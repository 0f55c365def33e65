"""Memory stage by stage is what the core takes the peak of."""

import pytest
from forerun_examples import request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.simulator import score
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.spaces.strategies import parse_strategy, table_of


@settings(max_examples=tries(60))
@given(st.data())
def test_the_fullest_stage_is_the_peak(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 4))
    scores = score(context, table)
    for row in range(len(table)):
        strategy = table.strategy(row)
        stages = memory_by_stage(context, strategy)

        assert len(stages) == strategy.pp
        peak = scores.peak_memory_bytes[row]
        fullest = stages[int(scores.peak_stage[row])]
        assert sum(fullest.values()) == pytest.approx(peak, rel=1e-9)
        # Fullest of live tensors: the reserve has idle buffers, which are given back where room runs out.
        live = [sum(stage.values()) - stage["reserve"] for stage in stages]
        assert max(live) == pytest.approx(peak - fullest["reserve"], rel=1e-9)
        for part, size in fullest.items():
            assert size == pytest.approx(scores.memory_bytes[part][row], rel=1e-9, abs=1e-9 * peak)


def test_first_stages_of_1f1b_keep_most_activations() -> None:
    context = request()
    strategy = parse_strategy("tp2 pp4 dp2 mbs1 zero1")
    kept = [stage["activations"] for stage in memory_by_stage(context, strategy)]

    assert kept[1:] == sorted(kept[1:], reverse=True)
    assert kept[1] == pytest.approx(3 * kept[3]) and kept[2] == pytest.approx(2 * kept[3])


def test_one_stage_holds_everything() -> None:
    context = request()
    (stage,) = memory_by_stage(context, parse_strategy("tp2 dp8 mbs1"))

    peak = score(context, table_of([parse_strategy("tp2 dp8 mbs1")])).peak_memory_bytes[0]
    assert sum(stage.values()) == pytest.approx(peak)


@pytest.mark.parametrize("text", ["tp2/4 pp2 dp4 mbs2", "tp2 pp4 dp2 mbs1 recompute=none,none,full,full"])
def test_stages_that_differ(text: str) -> None:
    context, strategy = request(), parse_strategy(text)
    scores = score(context, table_of([strategy]))
    stages = memory_by_stage(context, strategy)

    assert len(stages) == strategy.pp
    assert max(sum(stage.values()) for stage in stages) == pytest.approx(scores.peak_memory_bytes[0])
    fullest = stages[int(scores.peak_stage[0])]
    for part, size in fullest.items():
        assert size == pytest.approx(scores.memory_bytes[part][0], abs=1.0)
