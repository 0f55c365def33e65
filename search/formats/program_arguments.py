"""Arguments of training programs of the Hugging Face kind.

In these programs batch sizes are arguments, not settings of the distributed configuration.
"""

from collections.abc import Mapping
from typing import Any

from forerun.search.formats.adapters import TARGET_KEYS, adapter_arguments
from forerun.search.formats.command_line import options, split_command
from forerun.search.formats.contract import Launch, LaunchFile
from forerun.search.formats.launcher_data import shared_keys
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.syntax import document
from forerun.spaces.opgraph import GraphModel

PROGRAM = '"${TRAIN_SCRIPT:-train.py}"'
OWN_PROGRAM = "# TRAIN_SCRIPT is your program (train.py, if not set). It has to take the arguments that follow it"
CHECKPOINTING = "--gradient_checkpointing"
PACKED = "--packing true"
"""Attention inside documents: TRL packs without padding, so that flash attention gets their bounds."""
PROGRAM_KEYS = shared_keys("program")
"""Arguments of a training program for decisions missing in its distributed configuration."""


def document_and_program(source: LaunchFile) -> Mapping[str, Any]:
    """Return a YAML or JSON file, with the arguments of the program in the given scripts as ``program``.

    Raises
    ------
    RequestError
        The file or a script cannot be read.
    """
    program = program_settings(source)
    named = [name for key in PROGRAM_KEYS for name in key.names] + [f"program.{name}" for name in TARGET_KEYS]
    documents = {
        name: program.raw(name.removeprefix("program.")) for name in named if name.removeprefix("program.") in program
    }
    if "stage" in program and not program.flag("disable_gradient_checkpointing"):  # LLaMA-Factory's default
        documents.setdefault("program.gradient_checkpointing", True)
    return {**document(source), **documents}


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


def program_settings(source: LaunchFile) -> LaunchSettings:
    """Return the arguments of programs in the scripts beside a file, by names with underscores.

    Raises
    ------
    RequestError
        A script cannot be read.
    """
    settings: dict[str, str | bool] = {}
    for name in source.beside:
        for command in source.script(name).commands:
            settings |= options(split_command(command)[1], kebab=False)[0]
    return LaunchSettings(settings, " and ".join(source.beside) or "the launch script")
