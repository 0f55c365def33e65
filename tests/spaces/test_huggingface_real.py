"""Configurations of released models, with the fields of config.json that set sizes: as large as their checkpoints, the
same as their entries of the catalogue, and with fields beyond those of their class."""

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.models import FeedForward, MixtureOfExperts, load_model, parameter_count
from forerun.spaces.models.huggingface import convert_config
from forerun.spaces.models.mixers import GatedDelta, LightningAttention, Mamba2

DECODER = {
    "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
    "intermediate_size": 4096, "vocab_size": 32000,
}  # fmt: skip


def rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(__file__).parent / file).read_text().splitlines()]


RELEASED = rows("released_configs.jsonl")


@pytest.mark.parametrize("row", RELEASED, ids=lambda row: row["name"])
def test_released_models_have_their_published_size(row: dict[str, Any]) -> None:
    """Checkpoints' counts where they are known to the last parameter, else what the model card says."""
    found = parameter_count(convert_config(row["config"], row["name"]).model, mtp=False)

    exact = isinstance(row["parameters"], int)
    assert found == pytest.approx(row["parameters"], rel=1e-9 if exact else 2e-3)


@pytest.mark.parametrize("row", rows("catalogue_configs.jsonl"), ids=lambda row: row["name"])
def test_a_config_and_its_catalogue_entry_are_the_same_model(row: dict[str, Any]) -> None:
    model = convert_config(row["config"], row["name"], ignore=frozenset({"vision_config"})).model
    known = load_model(row["name"])

    assert model.layers == known.layers
    assert parameter_count(model) == parameter_count(known)
    assert (model.hidden, model.vocab, model.tied_embeddings) == (known.hidden, known.vocab, known.tied_embeddings)
    assert model.mtp_layers == known.mtp_layers


def kinds(config: dict[str, Any]) -> list[type]:
    model = convert_config(config, "x").model
    return [type(layer.mixer) for layer in model.layers for _ in range(layer.count)]


def test_every_fourth_layer_of_qwen3_next_is_attention_without_a_list() -> None:
    config = DECODER | {
        "model_type": "qwen3_next", "full_attention_interval": 4, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
    }  # fmt: skip

    assert [kind is GatedDelta for kind in kinds(config)] == 2 * [True, True, True, False]


def test_minimax_numbers_its_layers() -> None:
    config = DECODER | {
        "model_type": "minimax_text_01", "attn_type_list": [0, 0, 0, 1] * 2, "num_local_experts": 8,
        "num_experts_per_tok": 2, "layernorm_mlp_beta": 1.0, "postnorm": True,
    }  # fmt: skip

    assert [kind is LightningAttention for kind in kinds(config)] == 2 * [True, True, True, False]


def test_blocks_of_nemotron_h_are_letters() -> None:
    config = DECODER | {
        "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-E", "mamba_num_heads": 16, "mamba_head_dim": 64,
        "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 512, "attention_head_dim": 64,
    }  # fmt: skip
    layers = convert_config(config, "x").model.layers

    assert isinstance(layers[0].mixer, Mamba2)
    assert [type(layer.mlp) for layer in layers] == [
        type(None),
        FeedForward,
        type(None),
        type(None),
        FeedForward,
        MixtureOfExperts,
    ]
    with pytest.raises(RequestError, match=r"'X' is not a block of M, \*, - and E"):
        convert_config(config | {"hybrid_override_pattern": "MX"}, "x")


def test_an_unknown_type_whose_fields_are_known_is_read_with_a_word() -> None:
    config = DECODER | {"model_type": "brand_new", "auto_map": {"AutoModelForCausalLM": "modeling.New"}}
    conversion = convert_config(config, "x")

    assert conversion.guessed == "brand_new"
    assert conversion.model.layers == convert_config(DECODER | {"model_type": "llama"}, "x").model.layers
    with pytest.raises(RequestError, match=r"fields of brand_new.*hyper_rank=4"):
        convert_config(config | {"hyper_rank": 4}, "x")
    with pytest.raises(RequestError, match=r"unknown model_type 'brand_new'"):
        convert_config(DECODER | {"model_type": "brand_new"}, "x")


def test_an_image_encoder_can_be_left_out() -> None:
    config = {
        "model_type": "llava",
        "text_config": DECODER | {"model_type": "llama"},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 512, "num_attention_heads": 8},
    }
    conversion = convert_config(config, "x")
    whole = conversion.model
    assert conversion.filled_in["vision_config.num_hidden_layers"] == 12
    text = convert_config(config, "x", ignore=frozenset({"vision_config"})).model

    assert [layer.name for layer in whole.layers] == ["image", "dense"]
    assert whole.layers[0].tokens == 50  # 224 x 224 pixels in patches of 32, and the class token
    assert whole.layers[1:] == text.layers
    with pytest.raises(RequestError, match=r"no encoder of the type 'own'"):
        convert_config(config | {"vision_config": {"model_type": "own"}}, "x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mpt", "no_bias": False}, r"no_bias=False: a model with biases is not modelled"),
        ({"model_type": "qwen3_next", "layer_types": ["rotating"] * 8}, r"layer_types has 'rotating'"),
        ({"model_type": "qwen3", "num_attention_heads": [16, 8]}, r"must be a whole number, but got \[16, 8\]"),
    ],
)
def test_what_cannot_be_read_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        convert_config(DECODER | fields, "x")


def test_blocks_of_nemotron_nas_differ_one_by_one() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 3.5}},
        {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"ffn_mult": 0.5}},
        {"attention": {"n_heads_in_group": 4}, "ffn": {"no_op": True}},
    ]
    layers = convert_config(DECODER | {"model_type": "nemotron-nas", "block_configs": blocks}, "x").model.layers

    assert [layer.mixer and layer.attention.kv_heads for layer in layers] == [2, None, 4]
    assert [layer.mlp and layer.feed_forward.hidden for layer in layers] == [2560, 512, None]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "operator"),
    [
        ("align", "two-dimensional convolutions"),
        ("reformer", "attention by hashing"),
        ("maxvit", "windows of an image"),
    ],
)
def test_a_missing_operator_is_named(kind: str, operator: str) -> None:
    with pytest.raises(RequestError, match=f"model_type {kind} needs .*{operator}"):
        convert_config({"model_type": kind}, "x")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "seamless_m4t", "architectures": ["SeamlessM4TModel"]}, "only its class ForTextToText"),
        ({"model_type": "timm_wrapper", "architecture": "resnet50"}, "a network of another library"),
        ({"model_type": "encoder-decoder", "decoder": {"model_type": "unheard"}}, "no decoder of the type 'unheard'"),
        (
            {"model_type": "vibevoice_asr", "acoustic_tokenizer_encoder_config": {"depths": [1, 1]}},
            "one stage before each of 6 ratios",
        ),
    ],
)
def test_what_is_not_read_is_said(config: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        convert_config(config, "x")


def test_windowed_layers_of_step_have_heads_of_their_own() -> None:
    config = next(row["config"] for row in RELEASED if row["name"] == "step-3.5-flash")

    model = convert_config(config, "x").model

    assert {layer.attention.heads for layer in model.layers if layer.attention.window} == {96}
    assert {layer.attention.heads for layer in model.layers if not layer.attention.window} == {64}
    assert [layer.count for layer in model.layers if isinstance(layer.mlp, FeedForward)] == [1, 2]
