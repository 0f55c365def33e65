"""What every mixer promises: its parts go back to the model's width and are cut evenly over tensor ranks."""

import math
from dataclasses import replace

import pytest

from forerun.spaces.models import Attention, FeedForward, LatentAttention, Layer, layer_forward_flops, layer_parameters
from forerun.spaces.models.mixers import (
    CompressedAttention,
    GatedDelta,
    GatedRecurrence,
    Indexer,
    LightningAttention,
    Mamba,
    Mamba2,
    MatrixLstm,
    ParallelMixers,
    RwkvTimeMix,
    ShortConvolution,
)
from forerun.spaces.models.parts import Mixer, Product, Scan, Softmax, Width, matrices

HIDDEN, HEADS, WIDTH = 64, 8, 16
GROUPED = Attention(heads=HEADS, kv_heads=4, head_dim=WIDTH, value_head_dim=WIDTH)
INDEXER = Indexer(heads=4, head_dim=8, top_k=32)
LATENT = LatentAttention(query_rank=24, key_value_rank=20, rope_head_dim=4)
MAMBA2 = Mamba2(heads=HEADS, head_dim=WIDTH, state=32, groups=2, chunk=64)
MIXERS: tuple[Mixer, ...] = (
    GROUPED,
    replace(GROUPED, gate=HEADS * WIDTH, sinks=True, query_key_norm=True, norm_width="width"),
    replace(GROUPED, kv_heads=HEADS, latent=LATENT, indexer=INDEXER),
    replace(GROUPED, window=16, chunked=True),
    CompressedAttention(
        heads=HEADS, head_dim=WIDTH, query_rank=24, window=16, output_rank=12, output_groups=4, rate=4, indexer=INDEXER
    ),
    MAMBA2,
    Mamba(channels=128, state=16, rank=4),
    GatedDelta(heads=HEADS, key_heads=4, key_head_dim=WIDTH, value_head_dim=WIDTH),
    GatedDelta(heads=4, key_heads=4, key_head_dim=WIDTH, value_head_dim=WIDTH, decay_rank=8, gate_rank=8),
    LightningAttention(heads=HEADS, head_dim=WIDTH),
    RwkvTimeMix(channels=64),
    ShortConvolution(channels=64, taps=3),
    GatedRecurrence(width=64, blocks=4),
    MatrixLstm(heads=4, key_head_dim=8, value_head_dim=WIDTH),
    ParallelMixers(members=(GROUPED, MAMBA2)),
)
each_mixer = pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: mixer.name)


def layer(mixer: Mixer) -> Layer:
    return Layer(name="x", count=1, mixer=mixer, mlp=FeedForward(hidden=32, gated=True))


@each_mixer
def test_the_last_part_brings_the_tokens_back_to_the_width_of_the_model(mixer: Mixer) -> None:
    last = mixer.steps(HIDDEN)[-1]

    assert isinstance(last, Product)
    assert [width.whole for width in last.outputs] == [HIDDEN]
    assert last.inputs.whole == mixer.kept(HIDDEN).last.whole


@each_mixer
def test_parameters_are_those_of_the_products_and_vectors(mixer: Mixer) -> None:
    kinds = layer_parameters(layer(mixer), HIDDEN)
    products = [step for step in mixer.steps(HIDDEN) if isinstance(step, Product)]
    biases = sum(sum(width.whole for width in product.outputs) for product in products if product.bias)
    mlp = 3 * HIDDEN * 32 + 2 * HIDDEN

    assert kinds.total == sum(matrices(products)) + sum(mixer.vectors(HIDDEN)) + biases + mlp


@each_mixer
def test_what_ranks_share_is_divisible_by_the_heads(mixer: Mixer) -> None:
    """tp that divides ``heads`` and ``kv_heads`` divides every cut width."""
    tp = math.gcd(mixer.heads, mixer.kv_heads)
    for step in mixer.steps(HIDDEN):
        widths: tuple[Width, ...] = ()
        if isinstance(step, Product):
            widths = (step.inputs, *step.outputs)
        elif isinstance(step, Scan):
            widths = (step.traffic, step.state)
        assert all(width.count % tp == 0 for width in widths if width.cut), step


@each_mixer
def test_work_grows_with_the_sequence_linearly_or_with_its_square(mixer: Mixer) -> None:
    short, long = (layer_forward_flops(layer(mixer), HIDDEN, tokens) for tokens in (4096, 8192))
    square = any(
        isinstance(step, Softmax) and step.window is None and step.selected is None for step in mixer.steps(HIDDEN)
    ) or any(type(step).__name__ == "Scores" for step in mixer.steps(HIDDEN))

    assert long == pytest.approx(2 * short) if not square else 2 * short < long <= 4 * short


def test_a_scan_is_its_four_products() -> None:
    """Mamba-2: scores per group, then values, state in and out per head (arXiv 2405.21060)."""
    scan = next(step for step in MAMBA2.steps(HIDDEN) if isinstance(step, Scan))
    chunk, state = MAMBA2.chunk, MAMBA2.state
    per_chunk = 2 * MAMBA2.groups * chunk * chunk * state + 2 * HEADS * (
        chunk * chunk * WIDTH + 2 * chunk * WIDTH * state
    )

    assert scan.flops_per_token() == per_chunk / chunk


def test_shared_weights_have_no_parameters_of_their_own() -> None:
    shared = replace(layer(GROUPED), shared_weights=True, extra=7)

    assert layer_parameters(shared, HIDDEN).total == 7
    assert layer_forward_flops(shared, HIDDEN, 128) == layer_forward_flops(layer(GROUPED), HIDDEN, 128)


def test_a_layer_of_its_own_width_and_tokens_counts_with_them() -> None:
    encoder = replace(layer(GROUPED), hidden=32, tokens=100)

    assert layer_parameters(encoder, HIDDEN) == layer_parameters(layer(GROUPED), 32)
    assert layer_forward_flops(encoder, HIDDEN, 4096) == layer_forward_flops(layer(GROUPED), 32, 100)
