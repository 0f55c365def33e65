"""A long step is what its steady state makes of shorter ones."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from forerun_examples import request as small_request

from forerun.simulator import TIME_PARTS
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import EventResult, StepCosts, simulate_costs, step_costs
from forerun.simulator.events.engine.live_run import LiveRun
from forerun.simulator.events.step import steady
from forerun.simulator.events.step.steady import step_figures, step_uses
from forerun.simulator.events.step.strategy_step import step_use
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


def simulated_by(monkeypatch: pytest.MonkeyPatch, simulated: Callable[[StepCosts], EventResult]) -> None:
    """Let steps be simulated otherwise, one or several lengths at once."""
    monkeypatch.setattr(steady, "step_use", simulated)
    monkeypatch.setattr(
        steady, "step_uses", lambda costs, counts: [simulated(with_microbatches(costs, count)) for count in counts]
    )


def with_microbatches(costs: StepCosts, count: int) -> StepCosts:
    return replace(costs, shape=replace(costs.shape, microbatches=count))


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.parametrize("framework", ["generic", "nanotron"])
@pytest.mark.slow
def test_lengths_that_share_their_beginning_are_each_as_by_themselves(text: str, framework: str) -> None:
    costs = step_costs(assign(small_request(framework=framework, global_batch=240), parse_strategy(text)))
    counts = [4 * costs.shape.pp, 5 * costs.shape.pp, 6 * costs.shape.pp]

    assert step_uses(costs, counts) == [step_use(with_microbatches(costs, count)) for count in counts]


def test_what_lengths_have_in_common_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = step_costs(assign(small_request(framework="generic", global_batch=240), parse_strategy("pp4 dp2 mbs1")))
    ended = []
    leave = LiveRun.leave
    monkeypatch.setattr(LiveRun, "leave", lambda run, task, now: (ended.append(task), leave(run, task, now))[1])
    step_uses(costs, [16, 20, 24])
    together, ended[:] = len(ended), []
    for count in (16, 20, 24):
        step_use(with_microbatches(costs, count))

    assert together < 0.75 * len(ended)


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.parametrize("framework", ["generic", "nanotron"])
@pytest.mark.slow
def test_extended_figures_are_those_of_the_whole_step(
    text: str, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = step_costs(assign(small_request(framework=framework, global_batch=240), parse_strategy(text)))
    longest = []
    simulated_by(monkeypatch, lambda given: (longest.append(given.shape.microbatches), simulate_costs(given))[1])
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


@pytest.mark.slow
def test_what_never_becomes_even_is_simulated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = step_costs(assign(small_request(framework="generic", global_batch=240), parse_strategy("pp4 dp1 mbs1")))

    def growing(given: StepCosts) -> EventResult:
        result = simulate_costs(given)
        return replace(result, step_time_s=result.step_time_s + given.shape.microbatches**2)

    simulated_by(monkeypatch, growing)

    assert step_figures(costs).step_time_s == simulate_costs(costs).step_time_s + 240**2


def test_a_step_that_grows_by_less_than_its_busiest_stream_is_not_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = step_costs(assign(small_request(framework="generic", global_batch=240), parse_strategy("pp4 dp1 mbs1")))
    simulated = []

    def slower(given: StepCosts) -> EventResult:
        result = simulate_costs(given)
        simulated.append(given.shape.microbatches)
        return replace(result, step_time_s=result.step_time_s / 2)

    simulated_by(monkeypatch, slower)
    step_figures(costs)

    assert simulated[-1] == 240
