"""Replicas: equal ones are simulated once; stragglers and jitter make all of them necessary."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request as small_request

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import Disturbance, StepCosts, compile_step, simulate, simulate_costs, step_costs
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy

STRATEGIES = (
    "tp2 pp4 dp4 mbs1 zero1",
    "dp8 mbs2 zero1",
    "dp8 mbs2 zero2",
    "dp8 mbs2 zero3",
    "pp4 dp2 vpp2 schedule=interleaved",
    "pp4 dp2 schedule=zb-h1",
    "pp4 dp2 schedule=dualpipe",
)


def costs(text: str) -> StepCosts:
    return step_costs(assign(small_request(framework="generic", global_batch=32), parse_strategy(text)))


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.parametrize("replicas", [2, 3])
def test_one_replica_stands_for_all_equal_ones(text: str, replicas: int) -> None:
    one, all_of_them = simulate_costs(costs(text)), simulate_costs(costs(text), replicas=replicas)
    pp = one.costs.shape.pp

    assert all_of_them.step_time_s == pytest.approx(one.step_time_s, rel=1e-12)
    assert all_of_them.bubble_share == pytest.approx(one.bubble_share, rel=1e-9, abs=1e-12)
    for number, stage in enumerate(all_of_them.stages):
        assert stage.peak_bytes == one.stages[number % pp].peak_bytes
        assert stage.idle_s == pytest.approx(one.stages[number % pp].idle_s, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("text", STRATEGIES)
def test_one_slow_device_slows_everybody_and_is_the_slowest_itself(text: str) -> None:
    setting, strategy = small_request(framework="generic", global_batch=32), parse_strategy(text)
    plain, slow = simulate(setting, strategy), simulate(setting, strategy, Disturbance(slow={1: 1.5}))

    assert 1.1 * plain.step_time_s < slow.step_time_s < 1.5 * plain.step_time_s
    assert slow.slowest == 1


def test_synchronous_replicas_wait_for_the_slowest_draw() -> None:
    """Without overlap a step is the longest of all replicas' computation, and then the reduction."""
    bare = replace(costs("dp8 mbs2"), overlap_gradients=0.0, host_step_s=0.0, host_microbatch_s=0.0)
    result = simulate_costs(bare, replicas=8, disturbance=Disturbance(seed=3, jitter=0.2))
    computed = [0.0] * 8
    for task in result.timeline():
        if task.kind in ("forward", "backward"):
            computed[task.stage] += task.end_s - task.start_s
    (cost,) = bare.stages

    assert np.std(computed) > 0
    assert result.step_time_s == pytest.approx(max(computed) + cost.reduce_s + cost.optimizer_s, rel=1e-9)


def test_jitter_keeps_the_mean_and_has_the_stated_spread() -> None:
    bare = costs("dp8 mbs2")
    plain = compile_step(bare, replicas=200)
    jittered = compile_step(bare, replicas=200, disturbance=Disturbance(jitter=0.1))
    passes = [task for task, kind in enumerate(plain.kind) if kind < 4]
    ratio = np.array([jittered.duration_s[task] / plain.duration_s[task] for task in passes])

    assert ratio.mean() == pytest.approx(1.0, abs=5 * 0.1 / np.sqrt(len(ratio)))
    assert ratio.std() == pytest.approx(0.1, rel=0.1)
    assert all(
        a == b for t, (a, b) in enumerate(zip(plain.duration_s, jittered.duration_s, strict=True)) if plain.kind[t] > 3
    )


def test_the_same_seed_gives_the_same_step_and_another_one_another() -> None:
    setting, strategy = small_request(framework="generic", global_batch=32), parse_strategy("pp4 dp2 mbs1")
    times = [simulate(setting, strategy, Disturbance(seed=seed, jitter=0.05)).step_time_s for seed in (1, 1, 2)]

    assert times[0] == times[1] != times[2]


def test_impossible_disturbances_are_refused() -> None:
    with pytest.raises(RequestError, match="jitter must be at least 0"):
        Disturbance(jitter=-1.0)
    with pytest.raises(RequestError, match="factor must be more than 0, but got 0"):
        Disturbance(slow={0: 0.0})
    with pytest.raises(RequestError, match="slow device 9 is not in the graph; use 0 to 7"):
        simulate_costs(costs("dp8 mbs2"), replicas=8, disturbance=Disturbance(slow={9: 2.0}))
    with pytest.raises(RequestError, match=r"replicas must be at least 1 and .* but got 0"):
        simulate_costs(costs("dp8 mbs2"), replicas=0)
