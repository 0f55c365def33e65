"""Writer of Megatron-Bridge: sections of a configuration container as YAML and as recipe overrides."""

import json
import shlex
from typing import Any

from forerun.search.formats.adapters import bridge_section
from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.launchers import TORCHRUN, comment, scripts
from forerun.search.formats.limits import (
    MEGATRON_COMMON,
    MEGATRON_SCHEDULES,
    MX_IS_A_PRECISION,
    only,
    precisions,
    splits_by_rule,
    when,
)
from forerun.search.formats.limits_of_models import recipes_of_decoders
from forerun.search.formats.megatron_hybrid import WHOLE_PIPELINE, beside_hybrids, pattern_of, written_by
from forerun.search.formats.megatron_read import BATCH_KEYS
from forerun.search.formats.megatron_write import parallel_arguments, sharded_states, sharding_of
from forerun.search.formats.model_facts import model_facts
from forerun.search.formats.settings import flatten
from forerun.search.formats.software import exports, flags_of
from forerun.search.formats.writing import settings_of
from forerun.search.formats.yaml_text import dump_yaml

VERSION = "0.6"
MAIN = "megatron-bridge.yaml"

_MIXED, _OVERLAP = (f"megatron.bridge.training.{name}" for name in ("mixed_precision", "comm_overlap"))
_EIGHT_BIT: dict[str, Any] = {"fp8": "hybrid", "fp8_param_gather": True}
_ENDS: dict[str, Any] = {f"num_layers_at_{end}_in_bf16": 1 for end in ("start", "end")}
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp8": {"bf16": True, "first_last_layers_bf16": True} | _ENDS | _EIGHT_BIT,
    "mxfp8": {"bf16": True} | _EIGHT_BIT | {"fp8": "e4m3"},
    "nvfp4": {"bf16": True, "fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
"""Fields of ``MixedPrecisionConfig`` by precision, from its registered names."""

LIMITS = (
    MX_IS_A_PRECISION,
    *MEGATRON_COMMON,
    written_by("Megatron-Bridge"),
    WHOLE_PIPELINE,
    *map(beside_hybrids, recipes_of_decoders("Megatron-Bridge")),
    MEGATRON_SCHEDULES,
    splits_by_rule("Megatron-Bridge"),
    only("zero", (0, 1), "the distributed optimizer shards optimizer states (zero=1) and no more", zero=1),
    sharded_states("nemo"),
    when(lambda s: s.mbs > 1, "--documents with mbs={s.mbs}: a microbatch is one packed sequence", packed=True, mbs=1),
    precisions(tuple(PRECISIONS), "Megatron-Bridge has no recipe for it"),
)

RENAMED = {
    "num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "use_tp_pp_dp_mapping": "dist.use_tp_pp_dp_mapping",
    "use_distributed_optimizer": "ddp.use_distributed_optimizer",
    "num_distributed_optimizer_instances": "ddp.num_distributed_optimizer_instances",
}
"""Megatron-LM's arguments with another place or name in Megatron-Bridge than in ``model``."""

UNUSED = (
    "virtual_pipeline_model_parallel_size",
    "pipeline_model_parallel_layout",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
)


def write(launch: Launch) -> Files:
    """Return the YAML, and a launch script with the same settings as overrides of a recipe."""
    switches, variables = exports(flags_of(launch, "nemo"))
    sections = _sections(launch)
    if sharding_of(launch, switches):
        sections["ddp"]["use_distributed_optimizer"] = sections["optimizer"]["use_distributed_optimizer"] = True
    for name, value in switches.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    if peft := bridge_section(launch):
        sections["peft"] = peft
    _settle(sections, launch.workload.precision)
    yaml_text = dump_yaml(
        sections,
        f"{launch.name}: Megatron-Bridge {VERSION}, {launch.strategy}",
        f"{launch.strategy.devices} GPUs; model sizes come from the recipe",
    )
    overrides = [shlex.quote(f"{_added(key)}={_hydra(value)}") for key, value in flatten(sections).items()]
    if peft or launch.packed:
        checkpoint = '"${PRETRAINED:?name a checkpoint of the frozen model}"'
        overrides.append(f"checkpoint.pretrained_checkpoint={checkpoint}")
    before = [
        f"# RECIPE names the model: a recipe of Megatron-Bridge for {comment(launch.model.name)}.",
        'RECIPE="${RECIPE:?name a recipe of Megatron-Bridge}"',
        f"# {MAIN} says the same, for scripts that take --config-file.",
    ]
    program = '"${BRIDGE_PATH:-.}/scripts/training/run_recipe.py" --recipe "$RECIPE"'
    if launch.packed:
        before.append("# Documents are packed in fine-tuning: RECIPE is one of supervised fine-tuning or of adapters.")
        program += f" --dataset llm-finetune --packed_sequence --seq_length {launch.workload.seq_len}"
    command = [*TORCHRUN, program, *overrides]
    return {MAIN: yaml_text, **scripts(launch, f"Megatron-Bridge {VERSION}", command, before=[*before, *variables])}


def _sections(launch: Launch) -> dict[str, Any]:
    s, workload = launch.strategy, launch.workload
    sections: dict[str, Any] = {"model": {}, "train": {}, "ddp": {}, "dist": {}}
    for name, value in parallel_arguments(launch).items():
        section, _, key = RENAMED.get(name, f"model.{name}").partition(".")
        sections[section][key] = list(value) if isinstance(value, tuple) else value
    sections["model"] |= {"seq_length": workload.seq_len}
    if launch.model.hybrid:  # its bars separate the stages
        sections["model"]["hybrid_layer_pattern"] = pattern_of(launch.model, s)
    experts = model_facts(launch.model, workload.seq_len).get("experts")
    if experts is not None:
        sections["model"]["num_moe_experts"] = experts  # kept from the recipe: readers need it for etp
    if s.vpp > 1:  # a layout implies it, but the check of overlaps ignores layouts
        sections["model"]["virtual_pipeline_model_parallel_size"] = s.vpp
    # Unused features are switched off explicitly, since a recipe may have them on.
    for name in UNUSED:
        sections["model"].setdefault(name, None)
    for end in ("embedding", "loss"):
        sections["model"].setdefault(f"account_for_{end}_in_pipeline_split", False)
    sections["train"] |= settings_of(BATCH_KEYS, launch)
    # Recipes shard the optimizer in two places, and one turns on the other.
    sections["ddp"].setdefault("use_distributed_optimizer", False)
    sections["optimizer"] = {"use_distributed_optimizer": sections["ddp"]["use_distributed_optimizer"]}
    if not sections["ddp"]["use_distributed_optimizer"]:
        sections["ddp"]["overlap_param_gather"] = False
    sections["dataset"] = {"seq_length": workload.seq_len}
    if launch.packed:  # each context rank has two pieces of every document
        parts = 2 * s.cp if s.cp > 1 else 1
        sections["dataset"]["packed_sequence_specs"] = {
            "packed_sequence_size": workload.seq_len,
            "pad_seq_to_mult": parts,
        }
    # Complete sections, because a recipe may have a name or nothing in their place, which single fields cannot change.
    half = "torch.float16" if workload.precision == "fp16" else "torch.bfloat16"
    mixed = {f"{name}_dtype": {"_target_": half, "_call_": False} for name in ("params", "pipeline")}
    mixed |= PRECISIONS[workload.precision]
    sections["mixed_precision"] = {"_target_": f"{_MIXED}.MixedPrecisionConfig"} | mixed
    sections["comm_overlap"] = {"_target_": f"{_OVERLAP}.CommOverlapConfig", "tp_comm_overlap": False}
    return sections


def _settle(sections: dict[str, Any], precision: str) -> None:
    """Repeat settings in the overriding section."""
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        if name in sections["ddp"]:
            sections["comm_overlap"][name] = sections["ddp"][name]
    if precision == "mxfp8":  # gathers into the gradient buffer require 8-bit parameters, and are required by them
        gathers = sections["mixed_precision"]["fp8_param_gather"]
        sections["mixed_precision"]["reuse_grad_buf_for_mxfp8_param_ag"] = gathers


def _added(key: str) -> str:
    """Return a key as an override that is valid whether or not a recipe has it, in sections that may be missing."""
    return f"++{key}" if key.startswith(("mixed_precision.", "comm_overlap.", "peft.")) else key


def _hydra(value: Any) -> str:
    """Return a value in Hydra's override grammar: texts with special characters are quoted."""
    if value is None or isinstance(value, bool | float | list):
        return json.dumps(value, separators=(",", ":"))
    text = str(value)
    return text if text.replace("_", "").isalnum() else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
