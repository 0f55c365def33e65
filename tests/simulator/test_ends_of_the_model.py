"""What stands before the first and behind the last layer costs what its own operators cost."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request, small_cluster

from forerun.simulator.layer.blocks import embedding_operators, head_operators
from forerun.simulator.layer.shard import shard_of
from forerun.simulator.layer.work import Work
from forerun.spaces.clusters import load_device
from forerun.spaces.models.shapes import transformer
from forerun.spaces.strategies import Context, Strategy, table_of


def context_of(vocab: int = 32000, *, framework: str = "megatron-lm", norm_bias: bool = True) -> Context:
    """Return a request for a GPT of hidden size 3072 on A100, sequences of 2,048 tokens."""
    made = request(cluster=small_cluster(load_device("a100-sxm4-80")), framework=framework)
    model = transformer(
        "gpt", layers=8, hidden=3072, ffn_hidden=12288, heads=24, vocab=vocab, gated=False, norm_bias=norm_bias
    )
    return replace(made, model=model)


def ends(context: Context) -> tuple[Work, Work]:
    """Return what embedding and head of a device compute for one sequence."""
    shard = shard_of(context, table_of([Strategy(dp=1, tp=1, pp=1, mbs=1)]), np.array([0]))
    return embedding_operators(context, shard).work, head_operators(context, shard).work


@pytest.mark.parametrize("norm_bias", [True, False])
def test_the_last_norm_is_of_the_kind_that_layers_have(norm_bias: bool) -> None:
    context = context_of(framework="megatron-deepspeed", norm_bias=norm_bias)
    profile = context.framework
    assert "rmsnorm" in profile.eager, "or this test sees nothing"
    fused = replace(profile, eager=tuple(name for name in profile.eager if name != "rmsnorm"))

    _, eagerly = ends(context)
    _, at_once = ends(replace(context, framework=fused))

    more_s = (eagerly.backward_s - at_once.backward_s).item()
    assert more_s == 0.0 if norm_bias else more_s > 1e-4


@pytest.mark.parametrize(
    ("vocab", "measured_s"), [(32_000, 0.7e-3), (64_000, 1.3e-3), (128_000, 2.4e-3), (256_000, 4.4e-3)]
)
def test_the_gradient_of_the_table_takes_as_long_as_measured(vocab: int, measured_s: float) -> None:
    """Measured (table vocab_parallel, A100, bf16): how much longer the backward pass of the first of eight equal stages
    takes than that of the others."""
    embedding, _ = ends(context_of(vocab))

    assert embedding.backward_s.item() == pytest.approx(measured_s, rel=0.3)
    assert embedding.backward_s.item() == pytest.approx(embedding.weight_gradient_s.item(), abs=0.15e-3)
