"""Scripts that start a program on transformers' ``Trainer``, and its arguments.

They call torchrun, ``deepspeed`` or ``accelerate launch``.

Source: ``transformers/training_args.py`` 5.23; names of the longest sequence come from its examples, FastChat, LLaVA
and TRL. OpenRLHF's arguments (``openrlhf/cli``), which are similar, are read too.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from forerun.search.formats.adapters import LORA
from forerun.search.formats.command_line import options, split_command
from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import arguments, document, is_yaml
from forerun.search.formats.tables.trainer import read_deepspeed, read_fsdp
from forerun.spaces.strategies import Recompute

DEGREES = ("cp", "sp", "tp", "dp_replicate", "dp_shard")
"""Degrees of accelerate's ``ParallelismConfig``."""
LAUNCHED = {
    "zero_stage": "zero_stage",
    "config_file": "accelerate",
    "mixed_precision": "mixed_precision",
    "deepspeed_config_file": "deepspeed_config_file",
    "num_processes": "num_processes",
    "fsdp_sharding_strategy": "fsdp_config.fsdp_sharding_strategy",
    "fsdp_reshard_after_forward": "fsdp_config.fsdp_reshard_after_forward",
    "use_fsdp": "fsdp_config.use",
    **{f"parallelism_config_{degree}_size": f"parallelism_config_{degree}_size" for degree in DEGREES},
}
"""Options of ``accelerate launch`` -> settings."""


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the arguments of the program, and the options of accelerate before it."""
    settings = _accelerate_settings(source)
    for command in source.script().commands:
        launcher = split_command(command)[0]
        if ("accelerate", "launch") in pairwise(launcher):
            before = options(launcher, kebab=False)[0]
            settings |= {LAUNCHED[name]: value for name, value in before.items() if name in LAUNCHED}
    return settings | dict(arguments(source))


def read_documents(source: LaunchFile) -> Mapping[str, Any]:
    """Return the settings of TRL's YAML, after those of a given accelerate file."""
    return _accelerate_settings(source) | dict(document(source))


def _accelerate_settings(source: LaunchFile) -> dict[str, Any]:
    """Return the relevant settings of accelerate's file, given or written by a script."""
    settings: dict[str, Any] = {}
    for name, text in source.others.items():
        if "distributed_type" in text:
            other = document(LaunchFile(name=name, text=text, given=source.given))
            inside = {key.removeprefix("deepspeed_config."): value for key, value in other.items()}
            deciding = [key for key in inside if key in LAUNCHED or key.startswith("fsdp_")]
            settings |= {LAUNCHED.get(key, key): inside[key] for key in deciding}
    return settings


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding: by DeepSpeed's configuration, else by FSDP, else by the name of accelerate's file."""
    settings = facts.settings
    for setting in ("deepspeed", "deepspeed_config_file"):
        if facts.get("zero") is None:
            read_deepspeed(facts, setting)
    path = str(settings.raw("accelerate") or "").rpartition("/")[2].lower()
    if facts.get("zero") is None and re.search(r"z(ero)?[_-]?(stage)?[_-]?[0-3]", path):
        read_deepspeed(facts, "accelerate")
    elif facts.get("zero") is None and "fsdp" in path and not any("fsdp_config" in name for name in settings.names()):
        facts.assume("zero", 3, f"by the name {path} (give that file, too, to be sure)")
    if facts.get("zero") is None:
        read_fsdp(facts)
    if facts.get("global_batch") is None:
        facts.assume("accumulation", 1, "as transformers' Trainer assumes")
    lengths = [settings.whole(name) for name in ("prompt_max_len", "generate_max_len")]
    if facts.get("seq_len") is None and any(lengths):
        facts.values["seq_len"] = sum(length or 0 for length in lengths)
    if settings.flag("adam_offload"):
        facts.notes.append("the optimizer is on the host, which --with optimizer-offload=on predicts")
    if settings.text("stage") is not None and not settings.flag("disable_gradient_checkpointing"):
        facts.assume("recompute", Recompute.FULL, "as LLaMA-Factory assumes")
    kind = settings.text("finetuning_type") or ("lora" if settings.raw("lora_rank") is not None else "full")
    if kind not in ("lora", "full"):
        facts.values["adapter"] = kind
    if kind == "lora" or settings.flag("use_lora", "lora_enable", "use_peft") or settings.raw("lora_r") is not None:
        facts.values["adapter"] = LORA
        facts.assume("adapter_rank", 16, "as TRL's ModelConfig assumes")


LAUNCHER = read_launcher(
    "hf-trainer", syntax=lambda source: read_documents(source) if is_yaml(source) else read(source), adjust=adjust
)
