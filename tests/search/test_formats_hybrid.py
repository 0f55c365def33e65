"""Launch files of models whose layers are not all attention and feed-forward, and back."""

from dataclasses import replace

import pytest

from forerun.search.formats import Launch, format_named, import_texts
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.models.mixers import Mamba2
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, parse_strategy
from forerun.spaces.strategies.rules import violations
from forerun.spaces.workload import Workload

NEMOTRON_H = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"


def launch(model: Model, text: str) -> Launch:
    workload = Workload(global_batch=64, seq_len=4096)
    return Launch(strategy=parse_strategy(text), model=model, workload=workload, devices_per_node=8)


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("nemotron-h-8b", "tp2 pp1 dp4 mbs1 zero1 sp"),
        ("nemotron-h-8b", "tp2 pp4 dp2 mbs1 zero1 sp"),
        ("nemotron-h-8b", "tp2 pp4 dp2 mbs1 zero1 sp recompute=full:3 layers=10,14,14,14"),
        ("nemotron3-nano-30b-a3b", "tp1 pp2 dp8 ep8 mbs1 zero1 recompute=layernorm+moe_act"),
        ("qwen3-next-80b-a3b", "tp2 pp4 dp8 ep8 mbs1 vpp2 zero1 sp schedule=interleaved"),
    ],
)
def test_what_is_read_is_what_was_written(name: str, model: str, text: str) -> None:
    found = import_texts(format_named(name).express(launch(load_model(model), text)))
    assert str(found.strategy) == text
    assert not found.unknown and not found.unmodelled and not found.notes


@pytest.mark.parametrize("text", ["pp4 dp2 mbs1 vpp3 zero1 schedule=interleaved split=balanced", "pp2 dp4 mbs1 zero1"])
def test_stages_are_bars_in_the_pattern_of_layers(text: str) -> None:
    item, made = format_named("megatron-lm"), launch(load_model("nemotron-h-8b"), f"tp1 {text}")
    script = item.express(made)["launch.sh"]
    pattern = script.partition("--hybrid-layer-pattern ")[2].split("\n")[0].strip("'")
    assert pattern.replace("|", "") == NEMOTRON_H
    assert pattern.count("|") == made.strategy.pp * made.strategy.vpp - 1
    assert "--num-virtual-stages-per-pipeline-rank" not in script and "pretrain_hybrid.py" in script
    assert str(import_texts({"launch.sh": script}).strategy) == str(made.strategy)


def script(pattern: str, more: str = "") -> dict[str, str]:
    arguments = f"--tensor-model-parallel-size 1 --hidden-size 64 --micro-batch-size 1 --global-batch-size 8 {more}"
    return {"train.sh": f"torchrun --nproc_per_node 8 pretrain_mamba.py {arguments} {pattern} --bf16"}


def test_older_words_and_patterns_without_bars_are_read() -> None:
    text = f"--hybrid-override-pattern '{NEMOTRON_H}' --is-hybrid-model --mamba-num-heads 128"
    found = import_texts(script(text, "--pipeline-model-parallel-size 2"))
    assert found.strategy.pp == 2 and found.strategy.layers_per_stage is None
    assert found.model["layers"] == 52 and found.model["scan_heads"] == 128


def test_pairs_of_letters_are_one_layer() -> None:
    found = import_texts(script("--hybrid-layer-pattern 'M-M-|*EM-'", "--pipeline-model-parallel-size 2"))
    assert found.model["layers"] == 4
    assert found.strategy.pp == 2 and found.strategy.vpp == 1


@pytest.mark.parametrize(
    ("pattern", "told"), [("MXM-", "are written with M"), ("M-|M-|M-", "3 stages of the layers' pattern")]
)
def test_damaged_patterns_are_refused(pattern: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        import_texts(script(f"--hybrid-layer-pattern '{pattern}'", "--pipeline-model-parallel-size 2"))


def test_what_has_no_letter_is_named() -> None:
    model = load_model("nemotron-h-8b")
    wider = [
        replace(layer, mixer=replace(layer.mixer, convolution=8)) if isinstance(layer.mixer, Mamba2) else layer
        for layer in model.layers
    ]
    with pytest.raises(RequestError, match="no words for Mamba-2 with 8 taps"):
        format_named("megatron-lm").express(launch(replace(model, layers=tuple(wider)), "tp1 pp1 dp8 mbs1"))


def test_hybrid_models_combine_no_passes_and_bridge_interleaves_none() -> None:
    from forerun_examples import request

    nano = load_model("nemotron3-nano-30b-a3b")

    def broken(framework: str, text: str) -> str:
        from forerun.spaces.strategies.table import axis_values

        context: Context = request(nano, framework=framework)
        return "; ".join(message for _, message in violations(axis_values(parse_strategy(text)), context))

    assert "no hybrid model" in broken("megatron-lm", "tp1 dp16 ep8 mbs1 zero1 with=moe-overlap")
    interleaved = "tp1 pp2 dp8 ep8 mbs1 vpp2 zero1 schedule=interleaved"
    assert not broken("megatron-lm", interleaved)
    assert "without virtual stages" in broken("nemo", interleaved)
