"""Every cost and every overlap that a framework's profile states reaches the step of some strategy, with its sign."""

from dataclasses import replace

import pytest
from forerun_examples import dense_model, moe_model, request, small_cluster

from forerun.simulator import score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import step_costs
from forerun.simulator.events.step.steady import step_figures
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, parse_strategy, table_of

STRATEGIES = table_of(
    [
        parse_strategy(text)
        for text in (
            "dp8 mbs1 zero1",
            "dp16 mbs1 zero3",
            "tp4 dp4 mbs1 sp zero1",
            "tp16 dp1 mbs1",
            "tp2 pp4 dp2 mbs1",
            "cp4 dp4 mbs1",
            "tp2 dp8 ep4 mbs1 zero1",
        )
    ]
)
"""Replicas, sharded parameters, tensor ranks in a node and across two, a pipeline, context ranks, and experts."""


def context_of(model: Model, **changes: object) -> Context:
    """Return a request on a slow network, under a changed profile."""
    context = request(model, framework="generic", global_batch=64, cluster=small_cluster(network=2e9))
    profile: FrameworkProfile = replace(context.framework, attention="flash", **BUSY)  # type: ignore[arg-type]
    return replace(context, framework=replace(profile, **changes))  # type: ignore[arg-type]  # fields' types


def steps_s(**changes: object) -> list[float]:
    """Step times of a dense model and a mixture, under a changed profile."""
    times: list[float] = []
    for model in (dense_model(), moe_model()):
        context = context_of(model, **changes)
        table = STRATEGIES if context.moe else STRATEGIES.take(STRATEGIES.column("ep") == 1)
        times.extend(score(context, table).step_time_s)
    return times


BUSY = {
    "host_layer_s": 1e-5,
    "overlap_gradients": 0.5,
    "overlap_parameters": 0.5,
    "overlap_tensor": 0.5,
    "overlap_tensor_backward": 0.8,
    "overlap_context": 0.5,
    "overlap_expert": 0.5,
}


@pytest.mark.parametrize(
    "field,value",
    [
        ("host_layer_s", 1e-2),
        ("host_rank_s", 1e-2),
        ("host_expert_s", 1e-2),
        ("host_step_s", 1e-1),
        ("host_microbatch_s", 1e-1),
        ("tensor_step_s", 1e-2),
        ("p2p_fixed_s", 1e-2),
        ("collective_launch_s", 1e-2),
    ],
)
def test_seconds_of_software_make_a_step_longer(field: str, value: float) -> None:
    plain, slower = steps_s(), steps_s(**{field: value})

    assert all(after >= before for before, after in zip(plain, slower, strict=True))
    assert any(after > 1.001 * before for before, after in zip(plain, slower, strict=True))


@pytest.mark.parametrize("field", [name for name in BUSY if name.startswith("overlap_")])
def test_traffic_that_hides_less_makes_a_step_longer(field: str) -> None:
    """A pipeline may lose the delay of transfers that share a port with hidden traffic, as the next test shows."""
    plain, slower = steps_s(), steps_s(**{field: 0.0})

    assert all(after >= before * (1 - 0.004) for before, after in zip(plain, slower, strict=True))
    assert sum(after < before * (1 - 1e-9) for before, after in zip(plain, slower, strict=True)) <= 2
    assert any(after > 1.001 * before for before, after in zip(plain, slower, strict=True))


def test_hidden_reductions_delay_transfers_through_the_same_port_as_in_events() -> None:
    strategy, table = parse_strategy("tp2 pp4 dp2 mbs1"), table_of([parse_strategy("tp2 pp4 dp2 mbs1")])
    hidden, exposed = (context_of(moe_model(), overlap_gradients=share) for share in (0.5, 0.0))
    costs = [step_costs(assign(context, strategy)) for context in (hidden, exposed)]
    assert costs[0].one_port
    events_s = [step_figures(one).step_time_s for one in costs]
    closed_s = [float(score(context, table).step_time_s[0]) for context in (hidden, exposed)]

    assert events_s[0] > events_s[1]
    assert closed_s[0] - closed_s[1] == pytest.approx(events_s[0] - events_s[1], rel=0.1)
