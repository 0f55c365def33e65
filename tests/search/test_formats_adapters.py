"""Adapters go out into launch files as they were searched, and come back."""

from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.search.formats import Launch, import_texts, writable
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.models.tuning import tuned, tuning_of
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

WRITERS = {item.name: item for item in writable()}
CARRY = [name for name, item in WRITERS.items() if item.adapters and name != "forerun"]


def launch(model: str, lora: str | None, frozen: tuple[str, ...] = (), strategy: str = "dp8 mbs1") -> Launch:
    return Launch(
        strategy=parse_strategy(strategy),
        model=tuned(load_model(model), lora, frozen),
        workload=Workload(global_batch=64, seq_len=4096, precision="bf16"),
        devices_per_node=8,
    )


@pytest.mark.parametrize("name", CARRY)
@pytest.mark.parametrize("lora", ["16:attention", "8:attention+mlp", "4:mlp"])
def test_adapters_come_back(name: str, lora: str) -> None:
    strategy = "dp8 mbs1 zero3" if name in ("accelerate-fsdp", "deepspeed") else "dp8 mbs1"
    files = WRITERS[name].express(launch("llama3-8b", lora, strategy=strategy))
    assert import_texts(files).workload["lora"] == lora


@pytest.mark.parametrize("lora", ["16:attention", "16:attention+mlp+experts", "16:attention+mlp"])
def test_experts_have_adapters_or_not(lora: str) -> None:
    there = launch("deepseek-v3", lora, strategy="dp64 ep8 mbs1 zero1")
    files = WRITERS["megatron-bridge"].express(there)
    assert import_texts(files).workload["lora"] == lora
    assert "linear_q_down_proj" in files["megatron-bridge.yaml"]


def test_own_form_has_frozen_parts_as_well() -> None:
    there = launch("qwen2.5-vl-7b", None, ("image",))
    found = import_texts(WRITERS["forerun"].express(there)).workload
    assert (found.get("lora"), found["freeze"]) == (None, "image")


@pytest.mark.parametrize("name", sorted({*WRITERS} - {*CARRY, "forerun"}))
def test_what_has_no_words_for_them_refuses(name: str) -> None:
    with pytest.raises(RequestError, match="trains all of a model, and not adapters of rank 16 beside attention"):
        WRITERS[name].express(launch("llama3-8b", "16:attention"))


def test_what_cannot_be_told_apart_is_refused() -> None:
    for model, lora, why in (
        ("deepseek-v3", "8:experts", "adapters of experts alone"),
        ("nemotron-h-8b", "8:attention", "not all of its layers attend"),
    ):
        with pytest.raises(RequestError, match=why):
            WRITERS["axolotl"].express(launch(model, lora))


@pytest.mark.parametrize(
    ("model", "lora", "frozen"),
    [
        ("llama3-8b", None, ()),
        ("llama3-8b", "16:attention", ()),
        ("qwen2.5-vl-7b", None, ("image",)),
        ("qwen2.5-vl-7b", "16:attention+mlp", ("image",)),
        ("deepseek-v3", "8:experts", ()),
        ("llama3-8b", None, ("embedding",)),
    ],
)
def test_a_tuned_model_says_how(model: str, lora: str | None, frozen: tuple[str, ...]) -> None:
    there = tuned(load_model(model), lora, frozen)
    told = tuning_of(there)
    assert (told.lora, told.frozen) == (lora, frozen)
    assert tuned(load_model(model), told.lora, told.frozen) == there


AXOLOTL = """\
base_model: meta-llama/Llama-3-8B
micro_batch_size: 1
gradient_accumulation_steps: 8
sequence_len: 4096
adapter: {adapter}
lora_r: 16
lora_target_modules: [q_proj, v_proj]
bf16: true
"""


def test_a_file_is_read_with_its_notes() -> None:
    found = import_texts({"axolotl.yaml": AXOLOTL.format(adapter="qlora")})
    assert found.workload["lora"] == "16:attention"
    notes = " ".join(found.notes)
    assert "four or eight bit" in notes and "LoRA on q_proj, v_proj is costed as LoRA on all of attention" in notes


def test_another_training_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text(AXOLOTL.format(adapter="lora"))
    search = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --framework fsdp --top 1"
    assert main([*search.split(), "--baseline", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the files train adapters, --lora 16:attention; your run is predicted with all of the model trained" in said
    assert main([*search.split(), "--baseline", str(path), "--lora", "16:attention"]) == 0
    assert "the files train adapters" not in " ".join(capsys.readouterr().out.split())
