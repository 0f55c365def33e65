"""Model FLOPs against closed forms."""

from dataclasses import replace

import pytest

from forerun.spaces.models import (
    active_parameters,
    layer_forward_flops,
    load_model,
    train_flops_per_sequence,
    transformer,
)
from forerun.spaces.models.parts import Softmax, Width


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-22b", "megatron-1t"])
def test_gpt_matches_the_formula_of_narayanan(name: str) -> None:
    # arXiv 2104.04473, equation 3: 96 B s l h^2 (1 + s / 6h + V / 16lh) with recomputation; without it 72 and V / 12lh.
    model = load_model(name)
    s, h, layers, vocab = 2048, model.hidden, model.layer_count, model.vocab
    expected = 72 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))

    assert train_flops_per_sequence(model, s) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2"])
def test_short_sequences_cost_six_flops_per_active_matrix_parameter(name: str) -> None:
    model = load_model(name)
    lookup = model.vocab * model.hidden

    per_token = train_flops_per_sequence(model, 1)

    # Norms are parameters and no matmuls: below 0.1 % of any of these models.
    assert per_token == pytest.approx(6 * (active_parameters(model) - lookup), rel=1e-3)


def test_the_causal_half_is_half_of_the_core() -> None:
    model = load_model("llama3-8b")
    s = 8192
    core = 3 * 2 * s * s * model.layer_count * 32 * 2 * 128

    saved = train_flops_per_sequence(model, s) - train_flops_per_sequence(model, s, causal_half=True)

    assert saved == pytest.approx(core / 2)


def test_encoders_have_no_causal_half() -> None:
    model = load_model("bert-large")

    assert train_flops_per_sequence(model, 512) == train_flops_per_sequence(model, 512, causal_half=True)


@pytest.mark.parametrize("window", [1, 7, 64, 100])
def test_mean_keys_of_a_window_is_its_brute_force_count(window: int) -> None:
    s = 64
    one = Width(count=1)
    core = Softmax(heads=one, kv_heads=one, head_dim=1, value_head_dim=1, causal=True, window=window)
    brute = sum(min(i + 1, window) for i in range(s)) / s

    assert core.mean_keys(s, causal_half=False) == min(window, s)
    # The continuous count leaves out half of the diagonal.
    assert core.mean_keys(s, causal_half=True) == pytest.approx(brute, abs=0.5)


def test_an_mtp_block_costs_a_layer_a_projection_and_a_head() -> None:
    model = load_model("deepseek-v3")
    s, h = 4096, model.hidden
    layer = layer_forward_flops(model.layers[-1], h, s)
    block = layer + 2 * s * 2 * h * h + 2 * s * h * model.vocab

    extra = train_flops_per_sequence(model, s) - train_flops_per_sequence(replace(model, mtp_layers=0), s)

    assert extra == pytest.approx(3 * block)


def test_vit_classifies_once_per_image() -> None:
    model = load_model("vit-l-16")
    more = replace(model, classes=model.classes + 1)

    extra = train_flops_per_sequence(more, 197) - train_flops_per_sequence(model, 197)

    assert extra == pytest.approx(3 * 2 * model.hidden)


def test_shared_experts_count_for_every_token() -> None:
    shape = {"layers": 2, "hidden": 64, "ffn_hidden": 128, "heads": 4, "vocab": 100, "experts": 4, "top_k": 1}
    plain = transformer("plain", **shape)  # type: ignore[arg-type]
    shared = transformer("shared", **shape, shared_hidden=32)  # type: ignore[arg-type]

    extra = train_flops_per_sequence(shared, 10) - train_flops_per_sequence(plain, 10)

    assert extra == 2 * 6 * 10 * 3 * 64 * 32
