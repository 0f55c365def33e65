"""LLaMA-Factory 0.9: one YAML file for ``llamafactory-cli train``, or its arguments in a script.

Its Megatron-core variant and its ``v1`` form are read, too.

Source: ``llamafactory/hparams`` 0.9.5 (gradient checkpointing is on unless it is disabled), and its
examples ``megatron`` and ``v1``.
"""

import json
from typing import Any

from forerun.search.formats.adapters import LORA, hub_modules
from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import harmless, scripts
from forerun.search.formats.limits import COMMON, NO_SELECTIVE
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.syntax import arguments, document, is_script
from forerun.search.formats.tables.limits_of import TRAINER
from forerun.search.formats.tables.trainer import fine_tunes, read_deepspeed, read_fsdp
from forerun.search.formats.writing import settings_of
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.strategies import Recompute

MAIN, DS_MAIN = "llama_factory.yaml", "ds_config.json"


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding, and the settings read by Megatron-core."""
    settings = facts.settings
    kind = settings.text("dist_config.name")
    if kind is not None or "train_dataset" in settings.names():  # the form called v1
        recomputed = settings.flag("enable_activation_checkpointing") is not False
        facts.values["recompute"] = Recompute.FULL if recomputed else Recompute.NONE
        if "bf16" not in settings.names():
            facts.assume("precision", "bf16", "as LLaMA-Factory's v1 assumes")
    if kind == "fsdp2":
        facts.values.setdefault("zero", 3)
    if settings.flag("use_distributed_optimizer"):
        facts.values.setdefault("zero", 1)
    if facts.get("adapter") == LORA:
        facts.assume("adapter_rank", 8, "as LLaMA-Factory assumes")
    read_deepspeed(facts, "dist_config.config_file")
    read_deepspeed(facts, "deepspeed")
    read_fsdp(facts)
    megatron = facts.stated & {"tp", "pp", "ep"}
    off = settings.flag("disable_gradient_checkpointing")
    if not megatron and kind is None:
        facts.values.setdefault("recompute", Recompute.NONE if off else Recompute.FULL)
    if facts.get("mbs") is None and kind is None and not megatron:
        facts.assume("mbs", 8, "as transformers assumes")


LAUNCHER = read_launcher(
    "llama-factory",
    syntax=lambda source: arguments(source) if is_script(source) else document(source),
    adjust=adjust,
)
LIMITS = (
    *COMMON,
    *by_keys(LAUNCHER, **TRAINER),
    NO_SELECTIVE,
    decoders_only("LLaMA-Factory", hybrids=True),
)


def write(launch: Launch) -> Files:
    """Return the YAML, DeepSpeed's JSON for sharded states, and the script."""
    s, tuned = launch.strategy, fine_tunes(launch)
    data: dict[str, Any] = {
        "model_name_or_path": harmless(launch.model.name),
        "stage": "sft" if tuned else "pt",
        "do_train": True,
        "dataset": "alpaca_en_demo" if tuned else "c4_demo",
        "dataset_dir": "REMOTE:llamafactory/demo_data",
        "template": "default",
        "packing": True,
        **({"neat_packing": True} if launch.packed else {}),
        "disable_gradient_checkpointing": s.recompute != Recompute.FULL,
        "output_dir": "saves",
        "max_steps": 100,
        **({"finetuning_type": "full"} | settings_of(LAUNCHER.keys, launch)),
        **({"lora_target": ",".join(hub_modules(launch))} if launch.tuning.rank else {}),
    }
    files: dict[str, str] = {}
    if s.zero:
        data["deepspeed"] = DS_MAIN
        automatic = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
        sharding = {"stage": s.zero, "overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
        both: dict[str, Any] = {**automatic, "fp16": {"enabled": "auto"}, "gradient_accumulation_steps": "auto"}
        files[DS_MAIN] = json.dumps({**both, "zero_optimization": sharding}, indent=2) + "\n"
    title = f"LLaMA-Factory {LAUNCHER.version}"
    starter = [
        'FORCE_TORCHRUN=1 NNODES="$NNODES" NPROC_PER_NODE="$GPUS_PER_NODE" NODE_RANK="$NODE_RANK"',
        'MASTER_ADDR="$MASTER_ADDR" MASTER_PORT="$MASTER_PORT"',
        f"llamafactory-cli train {MAIN}",
    ]
    remarks = (
        "model_name_or_path: a folder or a name on the hub",
        "dataset_dir: on the hub; where nodes do not reach it, the folder data of LLaMA-Factory",
    )
    text = dump_yaml(data, f"{launch.name}: {title}, {s}", *remarks)
    return {MAIN: text, **files, **scripts(launch, title, starter)}


FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write)
