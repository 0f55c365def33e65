"""An exported launch is the one that was predicted: read back it takes the promised time, or it is refused by name."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from export_cases import CASES, CLUSTERS, ExportCase

from forerun.search.answer.baseline import context_of, read_present
from forerun.search.formats import Format, Imported, export, import_texts, writable
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.launch_of import launch_of
from forerun.search.formats.table import format_named
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.models.tuning import tuned, tuning_of
from forerun.spaces.strategies import Context, Strategy, parse_strategy, table_of
from forerun.spaces.units import format_seconds
from forerun.spaces.workload import Workload

OWN = ExportCase("tp2 pp2 dp4 mbs1 zero1 sp", "", "", "megatron-lm")
TEXT = Workload(global_batch=64, seq_len=8192)


def _asked(framework: str, model: str, workload: Workload = TEXT) -> Context:
    return Context(
        model=load_model(model),
        cluster=load_cluster(CLUSTERS.get(framework, "dgx-h100")),
        workload=workload,
        framework=load_framework(framework),
    )


def _lora(framework: str) -> Context:
    context = _asked(framework, "llama2-7b")
    return dataclasses.replace(context, model=tuned(context.model, "16:attention+mlp", ()))


def _frozen(framework: str) -> Context:
    context = _asked(framework, "qwen2.5-vl-7b")
    return dataclasses.replace(context, model=tuned(context.model, None, (context.model.layers[0].name,)))


QUESTIONS: dict[str, Callable[[str], Context]] = {
    "plain": lambda framework: _asked(framework, "llama2-7b"),
    "packed": lambda framework: _asked(
        framework, "llama2-7b", dataclasses.replace(TEXT, document_tokens=1234.5, seq_len=8192)
    ),
    "lora": _lora,
    "frozen": _frozen,
    "vision": lambda framework: _asked(framework, "qwen2.5-vl-7b"),
    "sound": lambda framework: _asked(framework, "whisper-large-v3", Workload(global_batch=64, seq_len=448)),
    "mixture": lambda framework: _asked(framework, "mixtral-8x7b"),
    "imbalanced": lambda framework: _asked(framework, "mixtral-8x7b", dataclasses.replace(TEXT, moe_imbalance=1.25)),
}
CARRIED = {
    "plain": {*CASES, "forerun"},
    "packed": {*CASES, "forerun"} - {"accelerate-megatron", "gpt-neox"},
    "lora": {"megatron-bridge", "deepspeed", "accelerate-fsdp", "axolotl", "llama-factory", "forerun"},
    "frozen": {"forerun"},
    "sound": {"deepspeed", "accelerate-fsdp", "torch", "forerun"},
}
"""Formats that write what is asked; the others refuse it by name."""
NAMED = {"packed": "--documents", "lora": "adapters of rank 16", "frozen": "frozen", "sound": "Whisper|whisper"}


def step_s(context: Context, strategy: Strategy) -> float:
    return float(score(context, table_of([strategy])).step_time_s[0])


def read_back(context: Context, found: Imported) -> Context:
    """Return the context that a file states, with the model by name."""
    workload = found.workload
    stated = dataclasses.replace(
        context.workload,
        global_batch=workload["global_batch"],
        seq_len=workload["seq_len"],
        precision=workload["precision"],
        document_tokens=workload.get("documents"),
        moe_imbalance=workload.get("moe_imbalance", 1.0),
    )
    freeze = workload.get("freeze")
    model = tuned(load_model(context.model.name), workload.get("lora"), freeze.split(",") if freeze else ())
    profile = load_framework(context.framework.name)
    known = {name: setting for name, setting in found.switches.items() if name in dict(profile.switches)}
    return dataclasses.replace(context, workload=stated, model=model, framework=switched(profile, known))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("item", writable(), ids=lambda item: item.name)
def test_a_file_read_back_takes_the_promised_time(item: Format, question: str) -> None:
    case = CASES.get(item.name, OWN)
    context = QUESTIONS[question](case.framework)
    launch = launch_in(context, parse_strategy(case.strategy), name=question)
    try:
        files = express(item, launch, context)
    except RequestError as error:
        assert item.name not in CARRIED.get(question, ())
        assert item.title in str(error)
        if question in NAMED:
            assert any(word in str(error) for word in NAMED[question].split("|"))
        return
    assert item.name in CARRIED.get(question, {item.name})

    found = import_texts(files)
    again = read_back(context, found)

    assert found.strategy == launch.strategy and not found.unknown
    assert tuning_of(again.model) == tuning_of(context.model)
    assert (again.workload.document_tokens, again.workload.moe_imbalance) == (
        context.workload.document_tokens,
        context.workload.moe_imbalance,
    )
    assert step_s(again, found.strategy) == pytest.approx(step_s(context, launch.strategy), rel=0.01)


@pytest.mark.parametrize("item", [item for item in writable() if item.packs], ids=lambda item: item.name)
def test_documents_are_those_that_files_keep_apart(item: Format) -> None:
    """A launch that attends to whole sequences is read as such, whatever its comment says."""
    case = CASES.get(item.name, OWN)
    context = QUESTIONS["packed"](case.framework)
    files = express(item, launch_in(context, parse_strategy(case.strategy), name="x"), context)
    whole = {name: re.sub(item.packs, "", text, flags=re.M) for name, text in files.items()}

    assert import_texts(files).workload["documents"] == 1234.5
    if item.name != "forerun":
        assert "documents" not in import_texts(whole).workload


def test_documents_that_nobody_measured_are_asked_for() -> None:
    text = "base_model: x\nsample_packing:  true\nsequence_len: 4096\nmicro_batch_size: 2\nbf16: true\n"

    assert any("give --documents" in note for note in import_texts({"a.yaml": text}).notes)
    assert not any("documents" in note for note in import_texts({"a.yaml": text.replace("true", "false", 1)}).notes)


def test_packing_saves_what_a_launch_without_it_would_lose() -> None:
    packed, whole = QUESTIONS["packed"]("megatron-lm"), QUESTIONS["plain"]("megatron-lm")
    strategy = parse_strategy("tp2 pp2 dp4 mbs1 zero1 sp")

    assert step_s(packed, strategy) < 0.95 * step_s(whole, strategy)


def test_a_profile_that_is_like_another_is_its_own_baseline(tmp_path: Path) -> None:
    """Overlap inside a rack has no flag; a file that gives none is not one that turns it off."""
    request = Request(
        model="qwen3-30b-a3b",
        cluster="gb200-nvl72",
        gpus="144",
        global_batch=1152,
        seq_len=4096,
        framework="nemo-blackwell",
        precision="mxfp8",
    )
    setting = resolve(request)
    strategy = parse_strategy("tp1 pp1 dp144 ep16 mbs2 zero1")
    for name, text in launch_of(setting.context, strategy, name="x")[1].items():
        (tmp_path / name).write_text(text)

    context, _ = context_of(setting, read_present([str(tmp_path)]))

    assert step_s(context, strategy) == pytest.approx(step_s(setting.context, strategy), rel=0.001)


@pytest.mark.parametrize(
    ("name", "framework"),
    [("llama-factory", "deepspeed"), ("gpt-neox", "megatron-deepspeed"), ("olmo-core", "fsdp"), ("axolotl", "fsdp")],
)
def test_a_launcher_of_no_profile_says_what_it_runs(name: str, framework: str) -> None:
    """A promise of Megatron-LM's is none of a trainer that runs DeepSpeed or FSDP."""
    own, other = (QUESTIONS["plain"](one) for one in (framework, "generic"))
    launch = launch_in(own, parse_strategy(CASES[name].strategy), name="x")

    assert not export(launch, own, name).notes
    assert f"{name} runs {framework}, and generic was searched" in export(launch, other, name).notes[name]


def test_an_export_says_that_it_runs_another_framework() -> None:
    context = QUESTIONS["plain"]("fsdp")
    launch = launch_in(context, parse_strategy("tp1 pp1 dp16 mbs1 zero2"), name="x")

    done = export(launch, context, "torchtitan")
    there = read_back(
        dataclasses.replace(context, framework=load_framework("torchtitan")), import_texts(done.files["torchtitan"])
    )

    assert f"{format_seconds(step_s(there, launch.strategy))} a step is predicted there" in done.notes["torchtitan"]
    assert "search with --framework torchtitan" in done.notes["torchtitan"]
    assert not export(launch, context, "accelerate-fsdp").notes


@pytest.mark.parametrize(
    "item,switch",
    [
        *((item, "tp-comm-overlap=on") for item in ("megatron-lm", "torchtitan", "torchtitan-toml", "mindspeed")),
        *((item, "moe-overlap=on") for item in ("megatron-lm", "megatron-bridge", "mindspeed")),
        *((item, "dispatcher=deepep") for item in ("torchtitan", "torchtitan-toml")),
    ],
)
def test_a_switch_of_a_row_is_read_back_as_one_of_the_software(item: str, switch: str) -> None:
    """The strategy that is read has no switch; the software has it, and the step takes as long."""
    case = CASES.get(item, OWN)
    context = QUESTIONS["mixture"](case.framework)
    strategy = parse_strategy(f"{case.strategy} ep2 with={switch.removesuffix('=on')}")

    found = import_texts(express(format_named(item), launch_in(context, strategy, name="x"), context))

    name, _, value = switch.partition("=")
    assert found.switches[name] == value and not found.strategy.switches
    assert step_s(read_back(context, found), found.strategy) == pytest.approx(step_s(context, strategy))
