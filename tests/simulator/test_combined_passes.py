"""Combined 1F1B: every device is one forward pass ahead, whose activations it keeps besides."""

from dataclasses import replace

import pytest
from forerun_examples import moe_model, request

from forerun.simulator import score
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.simulator.events.step.rescore import event_scores
from forerun.spaces.frameworks import load_framework
from forerun.spaces.frameworks.switches import with_settings
from forerun.spaces.strategies import Context, parse_strategy, table_of


def overlapping(setting: str, framework: str = "megatron-lm") -> Context:
    profile = with_settings(load_framework(framework), {"moe-overlap": setting})
    return replace(request(moe_model(), global_batch=64), framework=profile)


def kept(context: Context, text: str) -> float:
    """Activations on the first stage."""
    return memory_by_stage(context, parse_strategy(text))[0]["activations"]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("dp8 ep8 mbs2 zero1", 2.0),
        # Of four virtual stages each 2 (pp - 1) + (vpp - 1) pp + 1 = 9 passes are in flight on the first device.
        ("pp2 dp8 ep8 mbs1 vpp4 zero1 schedule=interleaved", 10 / 9),
        ("dp8 ep8 mbs8 zero1", 1.0),  # one microbatch a step
    ],
)
def test_one_more_pass_is_in_flight(text: str, more: float) -> None:
    assert kept(overlapping("on"), text) == pytest.approx(more * kept(overlapping("off"), text), rel=1e-9)
    assert kept(overlapping("domain", "nemo-blackwell"), text) == pytest.approx(
        kept(overlapping("off"), text), rel=1e-9
    )


@pytest.mark.parametrize("text", ["dp8 ep8 mbs2 zero1", "pp2 dp8 ep8 mbs1 vpp4 zero1 schedule=interleaved"])
def test_events_keep_as_much_and_take_as_long(text: str) -> None:
    context, table = overlapping("on"), table_of([parse_strategy(text)])
    flat, events = score(context, table), event_scores(context, table)
    assert events.peak_memory_bytes[0] == pytest.approx(flat.peak_memory_bytes[0], rel=0.02)
    assert events.step_time_s[0] == pytest.approx(flat.step_time_s[0], rel=0.02)
