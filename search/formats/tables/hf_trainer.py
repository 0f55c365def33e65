"""Scripts that start a program on transformers' ``Trainer``: torchrun, ``deepspeed`` or ``accelerate launch``, and its
arguments.

Source: ``transformers/training_args.py`` 5.23; names of the longest sequence are those of its examples, of FastChat,
LLaVA and TRL.
"""

import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.adapters import LORA, RANK
from forerun.search.formats.command_line import options, split_command
from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import Launcher, LaunchFacts, LaunchKey
from forerun.search.formats.shell import read_script
from forerun.search.formats.syntax import arguments, is_script
from forerun.search.formats.tables.trainer import (
    ACCUMULATION,
    FSDP_CHECKPOINTING,
    GRADIENT_CHECKPOINTING,
    MICRO_BATCH,
    PRECISIONS,
    read_deepspeed,
    read_fsdp,
)

_MARK = re.compile(r"--per[_-]device[_-]train[_-]batch[_-]size")


LAUNCHED = {
    "zero_stage": "zero_stage",
    "config_file": "accelerate",
    "mixed_precision": "mixed_precision",
    "fsdp_sharding_strategy": "fsdp_config.fsdp_sharding_strategy",
    "fsdp_reshard_after_forward": "fsdp_config.fsdp_reshard_after_forward",
    "use_fsdp": "fsdp_config.use",
}
"""Options of ``accelerate launch`` that decide something: the settings that they are."""


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the arguments of the program, and the options of accelerate before it."""
    found: dict[str, Any] = {}
    for command in read_script(source.text, source.name, source.given).commands:
        if command[:2] == ("accelerate", "launch"):
            before = options(split_command(command)[0], kebab=False)[0]
            found |= {LAUNCHED[name]: value for name, value in before.items() if name in LAUNCHED}
    return found | dict(arguments(source))


def adjust(facts: LaunchFacts) -> None:
    """Settle what is sharded: by DeepSpeed's configuration, else by FSDP, else by the name of accelerate's file."""
    settings = facts.settings
    if facts.get("zero") is None:
        read_deepspeed(facts, "deepspeed")
    path = str(settings.raw("accelerate") or "").rpartition("/")[2].lower()
    if facts.get("zero") is None and re.search(r"z(ero)?[_-]?(stage)?[_-]?[0-3]", path):
        read_deepspeed(facts, "accelerate")
    elif facts.get("zero") is None and "fsdp" in path:
        facts.assume("zero", 3, f"by the name {path} (give that file, too, to be sure)")
    if facts.get("zero") is None:
        read_fsdp(facts)
    if settings.flag("use_lora", "lora_enable", "use_peft") or settings.raw("lora_r") is not None:
        facts.values["adapter"] = LORA
        facts.assume("adapter_rank", 16, "as TRL's ModelConfig assumes")


LAUNCHER = Launcher(
    name="hf-trainer",
    version="5",
    title="transformers' Trainer",
    keys=(
        MICRO_BATCH,
        ACCUMULATION,
        LaunchKey(
            names=("model_max_length", "max_seq_length", "max_length", "block_size", "cutoff_len", "max_seq_len"),
            decides="seq_len",
            meaning="longest sequence",
        ),
        LaunchKey(names=("zero_stage",), decides="zero", words={str(stage): stage for stage in range(4)}),
        GRADIENT_CHECKPOINTING,
        FSDP_CHECKPOINTING,
        *PRECISIONS,
        RANK,
        LaunchKey(
            names=("mixed_precision",),
            decides="precision",
            words={"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "no": None},
        ),
    ),
    syntax=read,
    marks=lambda source: is_script(source) and _MARK.search(source.text) is not None,
    harmless=lambda name: "parallel" not in name,
    adjust=adjust,
    assumed={"mbs": 8, "accumulation": 1, "precision": "fp32"},
)
