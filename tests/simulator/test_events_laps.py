"""Virtual stages and weight gradients that run apart, with a large token table: the closed forms against the engine."""

from dataclasses import replace

import pytest
from forerun_examples import dense_model
from forerun_examples import request as small_request

from forerun.simulator import score
from forerun.simulator.events import simulate
from forerun.spaces.strategies import Context, parse_strategy, table_of

STRATEGIES = (
    "tp2 pp4 dp4 mbs1 vpp3 zero3 schedule=interleaved",
    "tp2 pp4 dp4 mbs1 vpp6 zero2 schedule=interleaved",
    "pp2 dp8 mbs1 vpp4 zero3 recompute=full schedule=interleaved",
    "pp2 dp4 mbs2 vpp3 zero2 schedule=interleaved placement=tp-cp-ep-pp-dp",
)


def with_a_large_vocabulary(host_layer_s: float = 0.0, **more: object) -> Context:
    """A table of 256,000 words has a third of the parameters of the model."""
    made = small_request(replace(dense_model(), vocab=256_000), framework="generic", global_batch=64)
    profile = replace(made.framework, host_layer_s=host_layer_s, host_microbatch_s=0.0, host_expert_s=0.0, **more)  # type: ignore[arg-type]  # its fields
    return replace(made, framework=profile)


def closed_and_events(context: Context, text: str) -> tuple[float, float]:
    strategy = parse_strategy(text)
    return float(score(context, table_of([strategy])).step_time_s[0]), simulate(context, strategy).step_time_s


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.slow
def test_traffic_of_a_table_hides_behind_one_virtual_stage_alone(text: str, overlap: bool) -> None:
    closed, events = closed_and_events(with_a_large_vocabulary(overlap_pipeline=overlap), text)

    assert closed == pytest.approx(events, rel=0.03)


@pytest.mark.parametrize("vpp", [2, 3, 6])
def test_a_host_is_late_for_every_virtual_stage_but_the_last(vpp: int) -> None:
    """The head's virtual stage takes longer than its launches, and catches up nothing for the others."""
    context = with_a_large_vocabulary(host_layer_s=4e-3)
    closed, events = closed_and_events(context, f"pp4 dp4 mbs1 vpp{vpp} schedule=interleaved")

    assert closed == pytest.approx(events, rel=0.01)


@pytest.mark.parametrize("text", ["pp2 dp8 mbs1 schedule=zb-h1", "pp2 dp16 mbs4 schedule=zb-h1"])
def test_reductions_hide_behind_weight_gradients_that_run_apart_and_nothing_else(text: str) -> None:
    closed, events = closed_and_events(with_a_large_vocabulary(), f"{text} placement=tp-cp-ep-pp-dp")

    assert closed == pytest.approx(events, rel=0.02)
