"""Costs of layers other than softmax attention with a dense MLP: cut by tensor ranks and of the right order."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request

from forerun.simulator.costs.memory_bound import LAUNCH_S
from forerun.simulator.layer.activations import layer_activations
from forerun.simulator.layer.blocks import layer_work
from forerun.simulator.layer.operators import EXPERT_BIAS_KERNELS
from forerun.simulator.layer.shard import shard_of
from forerun.spaces.models import (
    Attention,
    FeedForward,
    Layer,
    MixtureOfExperts,
    Model,
    layer_forward_flops,
    load_model,
)
from forerun.spaces.models.mixers import Indexer, Mamba2
from forerun.spaces.strategies import Context, Strategy, table_of

HIDDEN = 4096
ATTENTION = Attention(heads=32, kv_heads=8, head_dim=128, value_head_dim=128)
MAMBA2 = Mamba2(heads=64, head_dim=64, state=128, groups=8)
HYBRIDS = ("qwen3-next-80b-a3b", "nemotron3-nano-30b-a3b", "nemotron-h-8b", "qwen3-vl-8b", "whisper-large-v3")


def only(mixer: object, **fields: object) -> Layer:
    return Layer(name="x", count=1, mixer=mixer, mlp=None, norms=1, **fields)  # type: ignore[arg-type]


def of(layer: Layer, seq_len: int = 8192, **degrees: int) -> tuple[float, float, float]:
    """Seconds forward and backward, and bytes kept, on one rank."""
    model = Model(name="m", source="test", hidden=HIDDEN, vocab=32000, layers=(layer,))
    context = request(model, seq_len=seq_len)
    strategy = Strategy(**({"dp": 1, "tp": 1, "pp": 1, "mbs": 1} | degrees))
    shard = shard_of(context, table_of([strategy]), np.array([0]))
    work = layer_work(context, layer, shard)
    kept = layer_activations(context, layer, shard).kept
    return work.forward_s.item(), work.backward_s.item(), kept.item()


def test_a_scan_costs_per_token_what_it_costs_at_any_length_and_attention_does_not() -> None:
    scan = [of(only(MAMBA2), length)[0] / length for length in (16384, 65536)]
    softmax = [of(only(ATTENTION), length)[0] / length for length in (16384, 65536)]

    assert scan[1] == pytest.approx(scan[0], rel=0.02)
    assert softmax[1] > 1.5 * softmax[0]


def test_tensor_ranks_share_a_mixer() -> None:
    whole, half = of(only(MAMBA2)), of(only(MAMBA2), tp=2)

    assert 0.45 * whole[0] < half[0] < 0.75 * whole[0]
    assert half[2] < whole[2]


def test_chosen_keys_cost_less_than_all_and_their_indexer_something() -> None:
    indexer = Indexer(heads=4, head_dim=64, top_k=2048)
    full, sparse = (of(only(one), 65536)[0] for one in (ATTENTION, replace(ATTENTION, indexer=indexer)))
    window = of(only(replace(ATTENTION, window=2048)), 65536)[0]

    assert window < sparse < full


def test_chunks_cost_less_than_a_window_of_their_length() -> None:
    window, chunk = (of(only(replace(ATTENTION, window=4096, chunked=one)), 65536)[0] for one in (False, True))

    assert chunk < window


def test_an_encoder_beside_costs_by_its_own_tokens() -> None:
    layer = only(replace(ATTENTION, causal=False), hidden=1024, tokens=1024)
    short, long = of(layer, 2048), of(layer, 65536)

    assert long == pytest.approx(short)


def test_null_experts_and_latent_ones_save_work() -> None:
    experts = MixtureOfExperts(experts=16, top_k=4, expert_hidden=2048, gated=True)
    layers = [
        Layer(name="x", count=1, mixer=None, mlp=mlp, norms=1)
        for mlp in (experts, replace(experts, null_experts=16), replace(experts, latent=1024))
    ]
    plain, null, latent = (of(layer) for layer in layers)
    flops = [layer_forward_flops(layer, HIDDEN, 8192) for layer in layers]

    assert null[0] < plain[0]
    assert latent[0] < plain[0]
    assert flops[1] == pytest.approx(0.5 * flops[0], rel=0.01)


def test_biases_of_experts_cost_a_launch_each() -> None:
    """Twice the experts are twice the launches, whatever a microbatch has of tokens."""
    few = MixtureOfExperts(experts=16, top_k=4, expert_hidden=2048, gated=True)
    cost = {
        (count, bias): of(
            Layer(name="x", count=1, mixer=None, mlp=replace(few, experts=count, expert_bias=bias), norms=1)
        )
        for count in (16, 32)
        for bias in (False, True)
    }
    added = [sum(cost[count, True][:2]) - sum(cost[count, False][:2]) for count in (16, 32)]

    assert added[1] - added[0] == pytest.approx(16 * sum(EXPERT_BIAS_KERNELS) * LAUNCH_S, rel=0.01)


def test_a_layer_in_two_blocks_costs_what_it_costs_in_one() -> None:
    """Nemotron-H writes attention and MLP as layers of their own."""
    dense = FeedForward(hidden=8192, gated=True)
    one = of(Layer(name="x", count=1, mixer=ATTENTION, mlp=dense))
    mixer, mlp = of(only(ATTENTION)), of(Layer(name="x", count=1, mixer=None, mlp=dense, norms=1))

    assert np.add(mixer, mlp) == pytest.approx(one)


@pytest.mark.parametrize("name", HYBRIDS)
def test_no_layer_runs_faster_than_the_device_can(name: str) -> None:
    model = load_model(name)
    context: Context = request(model, seq_len=4096)
    shard = shard_of(context, table_of([Strategy(dp=1, tp=1, pp=1, mbs=1)]), np.array([0]))
    for layer in model.layers:
        seconds = layer_work(context, layer, shard).forward_s.item()
        flops = layer_forward_flops(layer, model.hidden, 4096, causal_half=True)
        assert seconds > 0.9 * flops / context.cluster.device.peak_flops_per_s["bf16"]


def test_only_a_model_with_rotary_positions_rotates_queries_and_keys() -> None:
    layer = only(ATTENTION)
    rotated = Model(name="m", source="test", hidden=HIDDEN, vocab=32000, layers=(layer,))
    took = {}
    for name, model in {
        "rotary": rotated,
        "learned": replace(rotated, learned_positions=8192),
        "biased": replace(rotated, rotary=False),
    }.items():
        context = request(model, seq_len=8192)
        shard = shard_of(context, table_of([Strategy(dp=1, tp=1, pp=1, mbs=1)]), np.array([0]))
        took[name] = layer_work(context, layer, shard).forward_s.item()
    assert took["biased"] == took["learned"] < took["rotary"]
