"""A long step is what its steady state makes of shorter ones."""

from dataclasses import replace

import pytest
from forerun_examples import request as small_request

from forerun.simulator import TIME_PARTS
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import EventResult, StepCosts, simulate_costs, step_costs
from forerun.simulator.events.step import steady
from forerun.simulator.events.step.steady import step_figures
from forerun.spaces.strategies import parse_strategy

STRATEGIES = (
    "pp4 dp1 mbs1",
    "pp4 dp1 mbs1 schedule=gpipe",
    "pp4 dp1 vpp3 schedule=interleaved",
    "pp3 dp1 layers=9,8,7 mbs1",
    "pp4 dp2 layers=4,8,5,7 mbs1",
    "pp4 dp1 schedule=zb-h1",
    "pp4 dp1 vpp2 schedule=zb-v",
    "pp4 dp1 schedule=dualpipe",
    "dp2 mbs2 zero1",
)


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.parametrize("framework", ["generic", "nanotron"])
def test_extended_figures_are_those_of_the_whole_step(
    text: str, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = step_costs(assign(small_request(framework=framework, global_batch=240), parse_strategy(text)))
    longest = []
    monkeypatch.setattr(
        steady,
        "step_use",
        lambda given: (longest.append(given.shape.microbatches), simulate_costs(given))[1],
    )
    figures, whole = step_figures(costs), simulate_costs(costs)

    assert max(longest) < costs.shape.microbatches
    assert figures.step_time_s == pytest.approx(whole.step_time_s, rel=1e-7)
    assert figures.peak_bytes == pytest.approx(whole.peak_memory_bytes, rel=1e-7)
    assert figures.fullest == whole.fullest
    assert figures.time_s == pytest.approx([whole.time_s[part] for part in TIME_PARTS], abs=1e-6 * whole.step_time_s)


@pytest.mark.parametrize(("batch", "text"), [(32, "pp4 dp2 mbs1"), (240, "dp2 mbs2 zero2"), (240, "dp2 mbs2 zero3")])
def test_a_short_step_or_one_with_traffic_in_every_microbatch_is_simulated_as_it_is(batch: int, text: str) -> None:
    costs = step_costs(assign(small_request(framework="generic", global_batch=batch), parse_strategy(text)))

    assert step_figures(costs).step_time_s == simulate_costs(costs).step_time_s


def test_what_never_becomes_even_is_simulated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = step_costs(assign(small_request(framework="generic", global_batch=240), parse_strategy("pp4 dp1 mbs1")))

    def growing(given: StepCosts) -> EventResult:
        result = simulate_costs(given)
        return replace(result, step_time_s=result.step_time_s + given.shape.microbatches**2)

    monkeypatch.setattr(steady, "step_use", growing)

    assert step_figures(costs).step_time_s == simulate_costs(costs).step_time_s + 240**2


def test_a_step_that_grows_by_less_than_its_busiest_stream_is_not_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = step_costs(assign(small_request(framework="generic", global_batch=240), parse_strategy("pp4 dp1 mbs1")))
    simulated = []

    def slower(given: StepCosts) -> EventResult:
        result = simulate_costs(given)
        simulated.append(given.shape.microbatches)
        return replace(result, step_time_s=result.step_time_s / 2)

    monkeypatch.setattr(steady, "step_use", slower)
    step_figures(costs)

    assert simulated[-1] == 240
