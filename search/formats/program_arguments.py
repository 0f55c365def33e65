"""Arguments of training programs of the Hugging Face kind.

Batch sizes are arguments of the program there, and not settings of the distributed configuration.
"""

from collections.abc import Mapping
from typing import Any

from forerun.search.formats.adapters import LORA, RANK, TARGET_KEYS, adapter_arguments
from forerun.search.formats.command_line import options, split_command
from forerun.search.formats.contract import Launch, LaunchFile
from forerun.search.formats.keys import decide, switched_on
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.shell import NOTHING, Given, read_script
from forerun.search.formats.syntax import document
from forerun.spaces.opgraph import GraphModel
from forerun.spaces.strategies import Recompute

PROGRAM = '"${TRAIN_SCRIPT:-train.py}"'
OWN_PROGRAM = "# TRAIN_SCRIPT is your program (train.py, if not set). It has to take the arguments that follow it"
CHECKPOINTING = "--gradient_checkpointing"
PACKED = "--packing true"
"""Attention inside documents: TRL packs without padding, so that flash attention sees their bounds."""
PROGRAM_KEYS = tuple(
    decide(decides, *tuple(f"program.{name}" for name in names), words=words, written=False)
    for decides, words, names in (
        ("mbs", None, ("per_device_train_batch_size", "micro_batch_size")),
        ("accumulation", None, ("gradient_accumulation_steps",)),
        ("seq_len", None, ("max_seq_length", "seq_length", "max_length", "model_max_length", "cutoff_len")),
        ("recompute", switched_on(Recompute.FULL), ("gradient_checkpointing", "use_gradient_checkpointing")),
        ("model.layers", None, ("num_layers",)),
        ("adapter", switched_on(LORA), ("use_peft", "use_lora", "lora_enable")),
        ("adapter", {"lora": LORA, "full": None, "freeze": None}, ("finetuning_type",)),
        ("precision", switched_on("bf16"), ("bf16",)),
        ("precision", switched_on("fp16"), ("fp16",)),
        ("adapter_rank", None, RANK.names),
    )
)
"""Arguments of a training program that decide what its distributed configuration leaves open."""


def document_and_program(source: LaunchFile) -> Mapping[str, Any]:
    """Return a YAML or JSON file, and the arguments of the program that the scripts beside it start, as ``program``.

    Raises:
        RequestError: the file or a script cannot be read.
    """
    program = program_settings(source.beside, source.given)
    named = [name for key in PROGRAM_KEYS for name in key.names] + [f"program.{name}" for name in TARGET_KEYS]
    found = {
        name: program.raw(name.removeprefix("program.")) for name in named if name.removeprefix("program.") in program
    }
    if "stage" in program and not program.flag("disable_gradient_checkpointing"):  # as LLaMA-Factory assumes
        found.setdefault("program.gradient_checkpointing", True)
    return {**document(source), **found}


def trainer_arguments(launch: Launch) -> list[str]:
    """Return the batch sizes as arguments of transformers' ``TrainingArguments`` (training_args.py)."""
    s = launch.strategy
    sequences = [] if isinstance(launch.model, GraphModel) else [f"--max_seq_length {launch.workload.seq_len}"]
    return [
        f"--per_device_train_batch_size {s.mbs}",
        f"--gradient_accumulation_steps {launch.microbatches}",
        *sequences,
        *program_facts(launch),
    ]


def program_facts(launch: Launch) -> list[str]:
    """Return adapters and packing as arguments of a training program (TRL's ModelConfig and SFTConfig)."""
    return [*adapter_arguments(launch), *([PACKED] if launch.packed else [])]


def program_settings(scripts: Mapping[str, str], given: Given = NOTHING) -> LaunchSettings:
    """Return the arguments that scripts hand to the programs they start, by names with underscores.

    Raises:
        RequestError: a script cannot be read.
    """
    found: dict[str, str | bool] = {}
    for name, text in scripts.items():
        for command in read_script(text, name, given).commands:
            found |= options(split_command(command)[1], kebab=False)[0]
    return LaunchSettings(found, " and ".join(scripts) or "the launch script")
