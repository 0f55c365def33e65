"""What fine-tuning and packed sequences cost: gradients, optimizer states and passes that are not there."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request

from forerun.simulator import score
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import load_model, parameter_count
from forerun.spaces.models.tuning import tuned
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload


def context(model: str = "llama3-8b", lora: str | None = None, frozen: tuple[str, ...] = (), **work: object) -> Context:
    return Context(
        model=tuned(load_model(model), lora, frozen),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=64, seq_len=4096, **work),  # type: ignore[arg-type]
        framework=load_framework("megatron-lm"),
    )


def scored(made: Context, text: str = "tp1 dp8 mbs1") -> tuple[float, dict[str, float]]:
    scores = score(made, table_of([parse_strategy(text)]))
    return float(scores.step_time_s[0]), {part: float(values[0]) for part, values in scores.memory_bytes.items()}


def test_adapters_alone_have_gradients_and_states() -> None:
    _, parts = scored(context(lora="16"))
    count = 41_943_040
    assert parts["gradients"] == pytest.approx(4 * count)
    assert parts["optimizer"] == pytest.approx(12 * count)
    assert parts["parameters"] == pytest.approx(2 * (parameter_count(load_model("llama3-8b")) + count), rel=1e-3)


def test_frozen_products_have_no_weight_gradient() -> None:
    (whole_s, _), (part_s, _) = scored(context()), scored(context(lora="16"))
    assert 0.6 * whole_s < part_s < 0.85 * whole_s


def test_a_layer_without_a_backward_pass_keeps_nothing() -> None:
    """The frozen encoder of images runs forward only, so its activations and a part of the step are gone."""
    (whole_s, whole), (part_s, part) = (
        scored(context("qwen2.5-vl-7b", frozen=frozen), "tp2 dp4 mbs1") for frozen in ((), ("image",))
    )
    assert part_s < whole_s
    for name in ("activations", "gradients", "optimizer"):
        assert part[name] < whole[name]
    assert part["parameters"] == whole["parameters"]


@pytest.mark.parametrize(
    "text", ["tp2 dp4 mbs1 zero1", "tp1 pp4 dp2 mbs1", "tp1 pp2 dp4 mbs1 vpp2 schedule=interleaved"]
)
def test_stage_by_stage_says_the_same(text: str) -> None:
    made, strategy = context(lora="16"), parse_strategy(text)
    scores = score(made, table_of([strategy]))
    fullest = memory_by_stage(made, strategy)[int(scores.peak_stage[0])]
    assert sum(fullest.values()) == pytest.approx(float(scores.peak_memory_bytes[0]))
    costs = step_costs(assign(made, strategy))
    assert all(chunk.backward_s > 0 for chunk in costs.chunks)


def test_short_documents_make_attention_cheap_and_nothing_else() -> None:
    (whole_s, whole), (part_s, part) = scored(context()), scored(context(document_tokens=256.0))
    assert part_s < whole_s
    assert part == whole
    alone = scored(context(document_tokens=4096.0))[0]
    assert alone == whole_s


def test_documents_of_one_length_cost_the_sequences_of_that_length() -> None:
    """Sixteen documents in each of 64 sequences: the attention of 1,024 sequences of 256 tokens."""
    short = replace(context(), workload=Workload(global_batch=1024, seq_len=256))
    packed = context(document_tokens=256.0)
    first = scored(short, "tp1 dp8 mbs16")[0]
    assert scored(packed)[0] == pytest.approx(first, rel=1e-9)


def test_zero_3_gathers_what_is_frozen_too() -> None:
    """Slices of what is trained are its fp32 copy, so that they have two bytes more."""
    base = replace(context(lora="16"), framework=load_framework("torchtitan"))
    shared, split = (scored(base, f"tp1 dp8 mbs1 zero{zero}")[1] for zero in (2, 3))
    assert split["parameters"] == pytest.approx(shared["parameters"] / 8 + shared["optimizer"] * 2 / 12)


def test_an_untuned_request_has_no_frozen_parameters() -> None:
    assert np.all(np.isfinite(scored(request(), "tp2 dp4 mbs1")[0]))


@pytest.mark.parametrize(
    ("cluster", "precision", "text", "measured_s"),
    [
        ("dgx-h100", "fp8", "tp2 pp4 dp1 mbs1 vpp20 sp schedule=interleaved", 6.199),
        ("gb200-nvl72", "fp8", "tp1 pp2 dp4 mbs1 vpp20 zero1 schedule=interleaved", 2.640),
        ("gb200-nvl72", "mxfp8", "tp1 pp4 dp2 mbs1 vpp20 zero1 schedule=interleaved", 2.750),
    ],
)
def test_published_runs_with_adapters(cluster: str, precision: str, text: str, measured_s: float) -> None:
    """Megatron-Bridge 26.06, LoRA performance of Llama 3 70B (``benchmarks/measured/megatron_bridge.csv``). Rank and
    products are not stated there; its performance recipes put adapters beside attention."""
    made = Context(
        model=tuned(load_model("llama3-70b"), "16:attention", ()),
        cluster=load_cluster(cluster),
        workload=Workload(global_batch=32, seq_len=4096, precision=precision),
        framework=load_framework("nemo"),
    )
    assert scored(made, text)[0] == pytest.approx(measured_s, rel=0.1)
