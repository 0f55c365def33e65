"""Parameters of a unit of FSDP: one flat buffer, or each by itself."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator import score
from forerun.simulator.costs import memory_bound_time_s
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.models.parameters import parameter_count
from forerun.spaces.models.tuning import tuned
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload

MODEL = load_model("llama3-8b")


def context(setting: str, lora: str | None = None, *, microbatches: int = 1, vocab: int = MODEL.vocab) -> Context:
    return Context(
        model=tuned(replace(MODEL, vocab=vocab), lora, ()),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=16 * microbatches, seq_len=4096),
        framework=switched(load_framework("fsdp"), {"fsdp-parameters": setting}),
    )


def costs(made: Context, zero: int, recompute: str = "none") -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and bytes by part."""
    scores = score(made, table_of([parse_strategy(f"tp1 dp16 mbs1 zero{zero} recompute={recompute}")]))
    seconds, held = scores.time_s, scores.memory_bytes
    return {k: float(v[0]) for k, v in seconds.items()}, {k: float(v[0]) for k, v in held.items()}


@pytest.mark.parametrize(("zero", "gathers"), [(0, None), (2, 1), (3, 2)])
def test_parameters_by_themselves_are_copied_when_gathered_and_reduced(zero: int, gathers: int | None) -> None:
    """With each of two microbatches. Out of the buffer in half precision, read and written, after slices were cast from
    fp32; gradients into the buffer of the reduction, and what comes of it added up."""
    (flat_s, _), (each_s, _) = (costs(context(setting, microbatches=2), zero) for setting in ("flat", "each"))
    per_parameter = 0.0 if gathers is None else gathers * (4.0 + 6.0 / 16) + 2.0 + 2.0 + 12.0 / 16
    device = load_cluster("dgx-h100").device
    took = 2 * float(memory_bound_time_s(device, np.array(per_parameter * parameter_count(MODEL))))
    assert each_s["optimizer"] - flat_s["optimizer"] == pytest.approx(took)
    assert {k: v for k, v in each_s.items() if k != "optimizer"} == {
        k: v for k, v in flat_s.items() if k != "optimizer"
    }


def test_a_third_unit_is_there_while_one_is_copied() -> None:
    """Beside the backward pass of a layer, which outweighs the loss of a small vocabulary."""
    (_, flat), (_, each) = (costs(context(setting, vocab=128), 3, "full") for setting in ("flat", "each"))
    layers = parameter_count(MODEL) - 2 * MODEL.vocab * MODEL.hidden - MODEL.hidden
    assert each["buffers"] - flat["buffers"] == pytest.approx(2 * layers / MODEL.layer_count)


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_exist_from_the_first_backward_pass_to_the_update(zero: int) -> None:
    """The loss of the only microbatch comes before them; slices have the type of the parameters that they update."""
    (_, one), (_, two) = (costs(context("each", microbatches=count), zero) for count in (1, 2))
    assert (one["gradients"], two["gradients"]) == (0.0, pytest.approx(4 * parameter_count(MODEL) / 16))
    assert {k: v for k, v in one.items() if k not in ("gradients", "reserve")} == {
        k: v for k, v in two.items() if k not in ("gradients", "reserve")
    }


def test_the_end_of_a_backward_pass_has_gradients_of_embedding_and_head_on_their_way() -> None:
    """With a short sequence and everything recomputed it is fuller than the loss."""
    made = context("each")
    short = replace(made, workload=replace(made.workload, seq_len=128))
    _, held = costs(short, 3, "full")
    ends = 2 * MODEL.vocab * MODEL.hidden + MODEL.hidden
    layer = (parameter_count(MODEL) - ends) / MODEL.layer_count
    assert held["gradients"] == pytest.approx(4 * parameter_count(MODEL) / 16)
    # Parameters of the last layer and of the ends stay gathered; two bytes a gradient, two on the wire.
    assert held["buffers"] == pytest.approx(2 * layer + (2 + 2 + 2) * ends, rel=0.02)


def test_slices_of_parameters_are_the_copy_that_the_optimizer_updates() -> None:
    _, held = costs(context("each"), 3)
    assert held["parameters"] == pytest.approx(4 * parameter_count(MODEL) / 16)
    assert held["optimizer"] == pytest.approx(8 * parameter_count(MODEL) / 16)


def test_a_flat_buffer_has_gradients_of_frozen_parameters_beside_adapters() -> None:
    """Of layers with adapters; ends and optimizer states are as they are."""
    (flat_s, flat), (each_s, each) = (costs(context(setting, "16", microbatches=2), 2) for setting in ("flat", "each"))
    frozen = parameter_count(MODEL) - 2 * MODEL.vocab * MODEL.hidden - MODEL.hidden
    assert flat["gradients"] - each["gradients"] == pytest.approx(4.0 * frozen / 16, rel=1e-3)
    assert flat_s["data"] > 5 * each_s["data"]
    assert flat["optimizer"] == each["optimizer"]


def test_replicas_that_share_nothing_have_no_units() -> None:
    made = context("flat", "16")
    other = replace(made, framework=replace(made.framework, unit_parameters=""))
    assert costs(made, 0) == costs(other, 0)
