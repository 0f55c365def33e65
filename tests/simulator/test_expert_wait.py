"""A device waits at every layer with experts until its host has read token counts, however large its microbatch."""

from dataclasses import replace

import pytest

from forerun.simulator import score
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework, parse_switches, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload

LAYERS, BATCH, WAIT_S = 48, 512, 1.5e-3


def context(wait_s: float = WAIT_S, model: str = "qwen3-30b-a3b") -> Context:
    return Context(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=BATCH, seq_len=4096),
        framework=replace(load_framework("nemo"), expert_wait_s=wait_s, host_expert_s=0.0),
    )


def step_s(made: Context, text: str) -> float:
    return float(score(made, table_of([parse_strategy(text)])).step_time_s[0])


@pytest.mark.parametrize("mbs", [1, 2, 4])
def test_every_layer_of_every_microbatch_waits(mbs: int) -> None:
    text = f"tp1 dp16 ep16 mbs{mbs} zero1"
    waited = step_s(context(), text) - step_s(context(0.0), text)
    assert waited == pytest.approx(LAYERS * BATCH / (16 * mbs) * WAIT_S, rel=0.02)


def test_dense_layers_do_not_wait() -> None:
    assert step_s(context(), "tp1 dp16 mbs1 zero1") > step_s(context(0.0), "tp1 dp16 mbs1 zero1")
    assert step_s(context(model="llama3-8b"), "tp1 dp8 mbs1") == step_s(context(0.0, "llama3-8b"), "tp1 dp8 mbs1")


def test_a_step_in_one_graph_does_not_wait() -> None:
    profile = load_framework("nemo")
    assert profile.expert_wait_s == WAIT_S
    assert switched(profile, parse_switches(["cuda-graphs=full"])).expert_wait_s == 0.0


@pytest.mark.parametrize(
    ("graphs", "left"),  # of 13 parts of a layer attention with norms of queries and keys has 7, experts 6
    [("off", 1.0), ("attn", (7 * 7 / 44 + 6) / 13), ("router", (7 * 7 / 44 + 3 * 7 / 44 + 3) / 13)],
)
def test_what_graphs_hold_is_not_waited_for(graphs: str, left: float) -> None:
    profile = replace(switched(load_framework("nemo"), parse_switches([f"cuda-graphs={graphs}"])), host_expert_s=0.0)
    made, none = (replace(context(), framework=replace(profile, expert_wait_s=one)) for one in (WAIT_S, 0.0))
    waited = step_s(made, "tp1 dp16 ep16 mbs4 zero1") - step_s(none, "tp1 dp16 ep16 mbs4 zero1")
    assert waited == pytest.approx(left * LAYERS * BATCH / (16 * 4) * WAIT_S, rel=0.02)


def test_a_published_run_at_micro_batch_2() -> None:
    """Megatron-Bridge, Qwen3 30B on 16 H100 in bf16: 10,494 tokens per second and GPU."""
    made = replace(context(), framework=load_framework("nemo"))
    rate = BATCH * 4096 / 16 / step_s(made, "tp1 pp2 dp8 ep8 mbs2 vpp24 zero1 schedule=interleaved")
    assert rate == pytest.approx(10494, rel=0.08)
