"""A user's own model file: a dozen lines, and a clear message for each way to get it wrong."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model, load_model_file, model_names, parameter_count, transformer

OWN = """\
source: our own
hidden: 4096
vocab: 128256
max_seq_len: 8192
layers:
  - count: 32
    attention: {heads: 32, kv_heads: 8}
    mlp: {hidden: 14336, gated: true}
"""


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "our-model.yaml"
    path.write_text(text)
    return path


def test_a_dozen_lines_make_a_model(tmp_path: Path) -> None:
    model = load_model_file(own(tmp_path, OWN))

    assert model.name == "our-model"
    assert model.layers == load_model("llama3-8b").layers
    assert parameter_count(model) == parameter_count(load_model("llama3-8b"))


def test_model_wide_bias_yields_to_the_part(tmp_path: Path) -> None:
    text = OWN.replace("kv_heads: 8", "kv_heads: 8, output_bias: false") + "bias: true\nnorm: layer\n"
    model = load_model_file(own(tmp_path, text))
    attention = model.layers[0].attention

    assert attention.query_key_value_bias
    assert not attention.output_bias
    assert model.layers[0].norm_bias
    assert model.final_norm_bias


@pytest.mark.parametrize("name", model_names())
def test_files_of_the_catalogue_keep_the_schema_that_they_are_read_without(name: str) -> None:
    catalogue = files("forerun.spaces.models") / "data"

    assert load_model_file(Path(str(catalogue / f"{name}.yaml"))) == load_model(name)


def test_a_model_of_the_catalogue_needs_no_pydantic() -> None:
    code = "import sys; from forerun.spaces.models import load_model; load_model('llama3-8b'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "forerun.spaces.models.catalogue" in loaded
    assert "pydantic" not in loaded


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("hidden: 4096", "hiden: 4096", r"our-model.yaml, line 2.*hiden.*did you mean hidden"),
        ("kv_heads: 8", "kv_heads: 5", r"line 7.*32 heads are not divisible by kv_heads=5; use 1, 2, 4, 8, 16 or 32"),
        ("kv_heads: 8", "kv_heads: -8", r"line 7"),
        ("kv_heads: 8", "kv_heads: true", r"line 7"),
        ("hidden: 4096", "hidden: 4100", r"hidden=4100 is not divisible by heads=32; give head_dim"),
        ("hidden: 4096", "hidden: 4096.5", r"line 2"),
        ("vocab: 128256", "vocab: 0", r"tokens \(vocab\) or patches"),
        ("count: 32", "count: 0", r"line 6"),
        ("count: 32", "count: 1000000000", r"line 6"),
        ("    mlp: {hidden: 14336, gated: true}", "", r"either mlp or mixture"),
        (", gated: true", "", r"gated.*required"),
        ("{hidden: 14336, gated: true}", "[14336]", r"line 8"),
        ("count: 32", "count: 32\n    windows: []", r"windows is a list of at least one"),
        ("source: our own\n", "", r"source.*required"),
        (
            "mlp: {hidden: 14336, gated: true}",
            "mixture: {experts: 4, top_k: 8, expert_hidden: 64, gated: true}",
            r"top_k <= experts must hold, but got \(top_k=8, experts=4\)",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in OWN

    with pytest.raises(RequestError, match=message):
        load_model_file(own(tmp_path, OWN.replace(before, after, 1)))


def test_transformer_is_the_catalogue_in_one_call() -> None:
    llama = transformer("llama3-8b", layers=32, hidden=4096, ffn_hidden=14336, heads=32, kv_heads=8, vocab=128256)
    gpt = transformer(
        "gpt3-175b",
        layers=96,
        hidden=12288,
        ffn_hidden=4 * 12288,
        heads=96,
        vocab=50257,
        gated=False,
        tied=True,
        learned_positions=2048,
        norm_bias=True,
        bias=True,
    )
    mixtral = transformer(
        "mixtral-8x7b", layers=32, hidden=4096, ffn_hidden=14336, heads=32, kv_heads=8, vocab=32000, experts=8, top_k=2
    )

    for model in (llama, gpt, mixtral):
        assert parameter_count(model) == parameter_count(load_model(model.name))
        assert model.layers == load_model(model.name).layers


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kv_heads": 3}, "4 heads are not divisible by kv_heads=3; use 1, 2 or 4"),
        ({"hidden": 66}, "hidden=66 is not divisible by heads=4"),
        ({"layers": 0}, "layers must be at least 1, but got 0"),
        ({"experts": 4, "top_k": 5}, "top_k=5, experts=4"),
    ],
)
def test_impossible_shapes_are_refused(fields: dict[str, int], message: str) -> None:
    shape = {"layers": 2, "hidden": 64, "ffn_hidden": 128, "heads": 4, "vocab": 100} | fields

    with pytest.raises(RequestError, match=message):
        transformer("small", **shape)  # type: ignore[arg-type]
