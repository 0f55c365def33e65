"""Defaults, aliases, and one clear refusal for every way a configuration can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.spaces.errors import RequestError
from forerun.spaces.models import FeedForward, MixtureOfExperts, load_model, parameter_count, resolve_model
from forerun.spaces.models.huggingface import convert_config, model_from_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_attention_heads": 8,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 6,
    "vocab_size": 1000,
}
COMPRESSED: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "intermediate_size": 2048,
    "num_attention_heads": 64,
    "num_hidden_layers": 43,
    "vocab_size": 1000,
}
VOXTRAL: dict[str, Any] = {"model_type": "voxtral", "text_config": LLAMA, "audio_config": {"num_hidden_layers": 10**9}}
RESNET: dict[str, Any] = {"model_type": "resnet", "depths": [1], "embedding_size": 64, "hidden_sizes": [64]}


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}


def test_missing_heads_and_head_dim_follow_transformers() -> None:
    conversion = convert_config(without(LLAMA, "num_key_value_heads"), "own")
    attention = conversion.model.layers[0].attention

    assert (attention.kv_heads, attention.head_dim) == (8, 8)
    assert conversion.filled_in == {"num_key_value_heads": 8, "head_dim": 8}


def test_gpt2_spellings_mean_the_same() -> None:
    plain = {"model_type": "gpt2", "vocab_size": 100}
    old = plain | {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": None}
    new = plain | {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "intermediate_size": 256,
    }

    assert model_from_config(old, "x")[0] == model_from_config(new, "x")[0]


def test_both_spellings_may_be_given_if_they_agree() -> None:
    agreeing = QWEN_MOE | {"num_local_experts": 16}

    assert model_from_config(agreeing, "x")[0] == model_from_config(QWEN_MOE, "x")[0]
    with pytest.raises(RequestError, match=r"num_local_experts=8 and num_experts=16 mean the same and disagree"):
        model_from_config(QWEN_MOE | {"num_local_experts": 8}, "x")


def test_sparse_steps_and_dense_layers() -> None:
    model, _ = model_from_config(QWEN_MOE | {"decoder_sparse_step": 2, "mlp_only_layers": [3]}, "x")
    kinds = [type(layer.mlp) for layer in model.layers for _ in range(layer.count)]

    assert kinds == [FeedForward, MixtureOfExperts, FeedForward, FeedForward, FeedForward, MixtureOfExperts]


def test_dense_layers_of_deepseek_come_first() -> None:
    config = {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "kv_lora_rank": 16,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 5,
        "q_lora_rank": None,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "vocab_size": 100,
    }
    model, _ = model_from_config(config, "x")
    dense, sparse = model.layers

    assert (dense.count, sparse.count) == (2, 3)
    assert isinstance(sparse.mlp, MixtureOfExperts)
    assert sparse.mlp.shared_hidden == 64
    assert sparse.attention.head_dim == 24
    assert sparse.attention.latent is not None
    assert sparse.attention.latent.query_rank is None


def test_qwen_windows_start_at_max_window_layers() -> None:
    config = QWEN_MOE | {"use_sliding_window": True, "sliding_window": 256, "max_window_layers": 4}
    model, _ = model_from_config(config, "x")

    assert [(layer.count, layer.attention.window) for layer in model.layers] == [(4, None), (2, 256)]


def test_layer_types_win_over_the_pattern() -> None:
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    model, _ = model_from_config(LLAMA | {"model_type": "gemma2", "sliding_window": 16, "layer_types": types}, "x")

    assert [(layer.count, layer.attention.window) for layer in model.layers] == [(1, None), (2, 16), (1, None)]


def test_the_language_model_before_a_resampler_may_be_in_the_outer_fields() -> None:
    inner = without(LLAMA, "model_type")
    nested, outer = (
        convert_config({"model_type": "idefics2"} | fields, "x").model for fields in ({"text_config": inner}, inner)
    )
    assert nested.layers[:2] == outer.layers[:2]  # the encoder and the resampler
    assert parameter_count(nested) == parameter_count(outer)


def test_text_config_is_the_language_model() -> None:
    nested = {
        "model_type": "unheard-of",
        "tie_word_embeddings": True,
        "text_config": LLAMA,
        "vision_config": {"depth": 9},
    }
    conversion = convert_config(nested, "x")

    assert conversion.model.layers == model_from_config(LLAMA, "x")[0].layers
    assert conversion.model.tied_embeddings
    assert conversion.left_out == ("vision_config",)


@pytest.mark.parametrize(
    ("model_type", "class_name", "parameters"),
    [
        ("gemma3", "Gemma3ForCausalLM", 2_628_658_432),
        ("llama4", "Llama4ForCausalLM", 107_769_861_120),
        ("mllama", "MllamaForCausalLM", 9_775_192_080),
        ("qwen3_5", "Qwen3_5ForCausalLM", 8_953_803_264),
        ("qwen3_5_moe", "Qwen3_5MoeForCausalLM", 34_660_610_688),
    ],
)
def test_a_causal_class_has_the_text_alone(model_type: str, class_name: str, parameters: int) -> None:
    # The counts of the classes, built by transformers 5.23 from the text part of the default configuration.
    text = {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]} if model_type == "mllama" else {}
    both = {"model_type": model_type, "text_config": text, "vision_config": {}}
    conversion = convert_config(both | {"architectures": [class_name]}, "x")

    assert parameter_count(conversion.model, mtp=False) == pytest.approx(parameters, rel=1e-3)
    assert conversion.left_out == ("vision_config",)
    assert convert_config(both, "x").left_out == ()
    assert parameter_count(convert_config(both, "x").model, mtp=False) > 1.004 * parameters


def test_the_class_name_stands_in_for_the_model_type() -> None:
    config = without(LLAMA, "model_type") | {"architectures": ["LlamaForCausalLM"]}

    assert model_from_config(config, "x")[0] == model_from_config(LLAMA, "x")[0]


def test_harmless_fields_are_listed_and_doubtful_ones_refused() -> None:
    harmless = {"rope_theta": 1e6, "use_cache": True, "some_text": "a", "some_switch": False, "some_list": []}
    _, ignored = model_from_config(LLAMA | harmless, "x")

    assert ignored == ("rope_theta", "some_list", "some_switch", "some_text", "use_cache")
    for value in (3, 0.5, True, [1], {"a": 1}):
        with pytest.raises(RequestError, match=r"may change cost: index_topk=.*--ignore-config-field index_topk"):
            model_from_config(LLAMA | {"index_topk": value}, "x")


def test_a_doubtful_field_can_be_ignored() -> None:
    config = LLAMA | {"index_topk": 2048}
    model, ignored = model_from_config(config, "x", ignore=frozenset({"index_topk"}))

    assert model == model_from_config(LLAMA, "x")[0]
    assert "index_topk" in ignored


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([LLAMA], r"config.json: a config.json is a mapping of fields to values, but got a list"),
        ("llama", r"but got a str"),
        ({}, r"model_type is missing"),
        ({"peft_type": "LORA", "r": 8, "base_model_name_or_path": "a/b"}, r"adapter \(LORA\).* a/b, and --lora 8"),
        (LLAMA | {"model_type": "lama"}, r"unknown model_type 'lama'; did you mean llama"),
        (LLAMA | {"model_type": 3}, r"unknown model_type '3'"),
        (LLAMA | {"model_type": ["llama"]}, r"unknown model_type"),
        (without(LLAMA, "hidden_size"), r"hidden_size or n_embd or n_embed or d_model is missing"),
        (without(LLAMA, "vocab_size"), r"vocab_size is missing"),
        (without(LLAMA, "intermediate_size"), r"intermediate_size .* is missing"),
        (LLAMA | {"hidden_size": -64}, r"hidden_size must be in 1\.\.2147483648, but got -64"),
        (LLAMA | {"hidden_size": "64"}, r"hidden_size must be a whole number, but got '64'"),
        (LLAMA | {"hidden_size": 64.0}, r"hidden_size must be a whole number, but got 64\.0"),
        (LLAMA | {"hidden_size": True}, r"hidden_size must be a whole number, but got True"),
        (LLAMA | {"hidden_size": float("nan")}, r"hidden_size must be a whole number, but got nan"),
        (LLAMA | {"hidden_size": [64]}, r"hidden_size must be a whole number"),
        (LLAMA | {"hidden_size": 10**400}, r"hidden_size must be in"),
        (LLAMA | {"num_hidden_layers": 10**9}, r"num_hidden_layers must be in 1\.\.10000"),
        (LLAMA | {"num_attention_heads": 2**31, "num_key_value_heads": 5, "head_dim": 64}, "use 1, 2, 4, 8"),
        (LLAMA | {"num_key_value_heads": 3}, r"8 heads are not divisible by kv_heads=3; use 1, 2, 4 or 8"),
        (LLAMA | {"hidden_size": 65}, r"hidden=65 is not divisible by heads=8; give head_dim"),
        (LLAMA | {"tie_word_embeddings": 1}, r"tie_word_embeddings must be true or false, but got 1"),
        (LLAMA | {"text_config": [1]}, r"text_config must be a mapping, but got list"),
        (QWEN_MOE | {"num_experts_per_tok": 17}, r"top_k=17, experts=16"),
        (QWEN_MOE | {"mlp_only_layers": "3"}, r"mlp_only_layers must be a list of int"),
        (QWEN_MOE | {"mlp_only_layers": [True]}, r"mlp_only_layers must be a list of int"),
        (LLAMA | {"model_type": "gemma2", "layer_types": ["full_attention"]}, r"one entry for each of 4 layers, .* 1"),
        (LLAMA | {"model_type": "gemma2", "layer_types": ["linear_attention"] * 4}, r"layer_types has 'linear_"),
        (COMPRESSED | {"compress_rates": [4, 128]}, r"compress_rates=\[4, 128\]: must have the tokens"),
        (COMPRESSED | {"compress_rates": {"compressed_sparse_attention": "4"}}, r"must be a whole number, but got '4'"),
        (COMPRESSED | {"compress_rates": {"compressed_sparse_attention": -4}}, r"must be in 1\.\."),
        (VOXTRAL, r"num_hidden_layers must be in 1\.\.10000, but got 1000000000"),
        (RESNET | {"num_labels": -5}, r"num_labels must be in 0\.\."),
    ],
)
def test_a_wrong_config_is_refused_in_one_sentence(config: object, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        convert_config(config, "x")

    assert "\n" not in str(caught.value)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=tries(150))
@given(base=st.sampled_from([LLAMA, QWEN_MOE]), changes=st.data())
def test_no_config_raises_anything_but_a_request_error(base: dict[str, Any], changes: st.DataObject) -> None:
    names = st.sampled_from([*base, "head_dim", "text_config", "layer_types", "sliding_window", "attention_bias"])
    config = base | changes.draw(st.dictionaries(names, JUNK, max_size=3))

    try:
        model, _ = model_from_config(config, "x")
    except RequestError:
        return
    assert parameter_count(model) > 0


def test_resolve_reads_names_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "our-llama"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(LLAMA | {"rope_theta": 1e6}))

    assert resolve_model("llama3-8b").model == load_model("llama3-8b")
    for text in (str(folder), str(file)):
        resolved = resolve_model(text)
        assert resolved.model.name == "our-llama"
        assert resolved.model.source == str(file)
        assert any("rope_theta" in note for note in resolved.notes)
        assert any("head_dim=8" in note for note in resolved.notes)


def test_resolve_reads_own_yaml(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "source: own\nhidden: 64\nvocab: 100\n"
        "layers:\n  - count: 2\n    attention: {heads: 4}\n    mlp: {hidden: 128, gated: true}\n"
    )

    assert resolve_model(str(file)).model.name == "own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lama3-8b", r"unknown model 'lama3-8b'; did you mean llama3-8b"),
        ("absent/config.json", r"absent/config\.json: no such file"),
        ("meta-llama/Llama-3-8B", "is not in the cache of Hugging Face .*, and HF_HUB_OFFLINE is set"),
        ("x" * 5000, r"unknown model"),
        ("a\0b", r"unknown model"),
        ("", r"unknown model"),
    ],
)
def test_resolve_names_what_is_missing(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        resolve_model(text)


def test_resolve_refuses_an_empty_folder_and_a_list(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has no config\.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(RequestError, match=r"is a mapping of fields to values, but got a list"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("field", ["time_step_limit", "hidden_size"])
def test_numbers_without_end_stop_a_config_only_where_they_count(field: str, tmp_path: Path) -> None:
    config = {
        "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*", "num_hidden_layers": 4, "hidden_size": 512,
        "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "vocab_size": 1000, "mamba_num_heads": 8, "mamba_head_dim": 64, "ssm_state_size": 64, "n_groups": 2,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {field: [0.0, float("inf")] if field == "time_step_limit" else float("inf")}))

    if field == "hidden_size":
        with pytest.raises(RequestError, match="hidden_size must be a whole number, but got 'Infinity'"):
            resolve_model(str(path))
    else:
        assert resolve_model(str(path)).model.hidden == 512


@pytest.mark.parametrize("field", ["tie_word_embeddings", "strange_width"])
def test_a_field_to_ignore_is_ignored_in_nested_sections_too(field: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
    vision = {"model_type": "", **sizes, "image_size": 32, "patch_size": 16, field: 8}
    config = {"model_type": "clip", "projection_dim": 32, "text_config": {**sizes, "vocab_size": 100}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "vision_config": vision}))

    if field == "strange_width":
        with pytest.raises(RequestError, match="pass --ignore-config-field strange_width"):
            resolve_model(str(path))
    assert resolve_model(str(path), ignore=frozenset({field})).model.layer_count == 4
