"""Parameters of the default configuration of every class of transformers that is read, against the class itself.

``transformers_counts.jsonl`` has, for each, the fields without which it would be another model, and the parameters of
the model that transformers 5.23 builds from it on the meta device (multi-token-prediction blocks are not built).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.spaces.models import FeedForward, Model, parameter_count
from forerun.spaces.models.huggingface import convert_config
from forerun.spaces.models.huggingface.convert import families

ROWS = [json.loads(line) for line in (Path(__file__).parent / "transformers_counts.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def models() -> list[tuple[dict[str, Any], Model]]:
    return [(row, convert_config(row["config"], row["config"]["model_type"]).model) for row in ROWS]


def test_counts_are_those_of_the_classes(models: list[tuple[dict[str, Any], Model]]) -> None:
    for row, model in models:
        assert parameter_count(model, mtp=False) == pytest.approx(row["parameters"], rel=1e-3), row["config"]


def test_most_counts_are_exact(models: list[tuple[dict[str, Any], Model]]) -> None:
    # The rest lack scales, or biases that only balance experts, which are too small to cost anything.
    exact = sum(parameter_count(model, mtp=False) == row["parameters"] for row, model in models)

    assert exact > 0.6 * len(models)


def test_the_table_has_most_families() -> None:
    named = {row["config"]["model_type"] for row in ROWS}

    assert len(named) >= 200
    assert len(named & set(families())) > 0.85 * len(families())


def test_every_kind_of_layer_is_there(models: list[tuple[dict[str, Any], Model]]) -> None:
    layers = [layer for _, model in models for layer in model.layers]
    mixers = {layer.mixer.name for layer in layers if layer.mixer is not None}

    assert mixers >= {
        "attention",
        "latent attention",
        "sparse latent attention",
        "compressed attention",
        "Mamba",
        "Mamba-2",
        "gated DeltaNet",
        "Kimi Delta Attention",
        "lightning attention",
        "RWKV",
        "short convolution",
        "gated linear recurrence",
        "mLSTM",
    }
    assert any(layer.mlp is None for layer in layers)
    assert any(layer.mixer is None for layer in layers)
    assert any(layer.shared_weights for layer in layers)
    assert any(layer.cross_attention is not None for layer in layers)
    assert any(layer.tokens is not None for layer in layers)
    assert any(not isinstance(layer.mlp, FeedForward) and layer.mlp is not None for layer in layers)
