"""Megatron-Bridge and NeMo: sections of a configuration container as YAML, and overrides on the command line.

Source: ``ConfigContainer`` of NVIDIA-NeMo/Megatron-Bridge (sections ``model``, ``train``, ``ddp``, ``dist``, ...);
``model`` has the fields of megatron-core's ``TransformerConfig``. NeMo 1 files (``trainer.devices``) are read too.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.adapters import LORA
from forerun.search.formats.bridge_write import LIMITS, MAIN, VERSION, write
from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import LaunchFacts, Stated
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.megatron_read import KEYS, adjust
from forerun.search.formats.settings import flatten
from forerun.search.formats.software import environment
from forerun.search.formats.syntax import is_script, overrides

NAME = "megatron-bridge"

SCHEME = "model.peft.peft_scheme"
"""Adapters of NeMo 1, whose files have their rank in any case."""
TUNED_LENGTH = "model.data.train_ds.max_seq_length"
"""Sequence length of a fine-tuning with NeMo 1."""
ALIASES = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "num_moe_experts": "num_experts",
    "sequence_length": "seq_length",
    "gated_linear_unit": "swiglu",
}
"""Fields of a section: the argument of Megatron-LM that means the same."""

OF_MODELS = {name for key in KEYS if key.decides.startswith("model.") for name in key.names}
"""Arguments of the model, which no other section has."""

SHARDING_OPTIMIZERS = ("mcore_distributed_optim", "distributed_fused_adam")
"""Optimizers of NeMo 1 with states sharded over replicas (ZeRO 1)."""

RECIPES = {"delayed": "delayed", "nanov2": "blockwise", "subchannel": "blockwise", "current": "tensorwise"}
"""Words in the names of mixed-precision recipes: their 8-bit recipe (mixed_precision.py)."""

SECTIONS = ("model", "train", "ddp", "dist", "mixed_precision", "dataset", "optimizer", "trainer", "exp_manager")
OTHER_SECTIONS = (
    "_target_ checkpoint comm_overlap ft inprocess_restart logger optimizer_config_override_provider peft profiling "
    "rerun rerun_state_machine rng scheduler straggler tensor_inspect tokenizer validation env_vars nvrx_straggler "
    "cluster name restore_from_path hydra run"
).split()


def sections_of(source: LaunchFile) -> Stated:
    """Return a configuration container, an override file, or a NeMo 1 file."""
    return stated(source, _overrides(source))


def stated(source: LaunchFile, sections: Mapping[str, Any]) -> Stated:
    """Return the sections of a container by the equivalent arguments of Megatron-LM, from any file."""
    flat = flatten({_section(key): value for key, value in sections.items()})
    named: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key in sorted(flat, key=_precedence):
        name = _argument(key)
        name = key if name is None or name in named else name  # the first section that has an argument counts
        named[name], spelled[name] = flat[key], key
    repeated = frozenset(key for key in flat if key in named and _argument(key) in named)
    recipe = next((key for key in ("mixed_precision", "trainer.precision") if named.get(key) is not None), None)
    notes: tuple[str, ...] = ()
    if recipe is not None:
        named |= _precision(str(named.pop(recipe)))
    elif not {"bf16", "fp16", "fp8_format"} & set(named):
        named["bf16"] = True
        notes = ("precision bf16, as the recipes have it",)
    if not {"seq_length", "encoder_seq_length"} & set(named) and TUNED_LENGTH in named:
        named["seq_length"] = named.pop(TUNED_LENGTH)
    if str(named.pop("model.optim.name", None)) in SHARDING_OPTIMIZERS:
        named.setdefault("use_distributed_optimizer", True)
    elif named.pop("optimizer.use_distributed_optimizer", _recipe_shards(source, flat)):
        named["use_distributed_optimizer"] = True  # if `ddp` or `optimizer` has it, validation switches both on
    named |= {k: v for k, v in environment(source.text, *source.beside.values()).items() if k not in named}
    return Stated(values=named, spelled=spelled, repeated=repeated, defaults=notes)


def _recipe_shards(source: LaunchFile, flat: Mapping[str, Any]) -> bool:
    """Whether the sections override a recipe that shards its optimizer (``recipes/utils/optimizer_utils.py``).

    NeMo 1 files and recipes themselves have complete sections.
    """
    return source.suffix != ".py" and "trainer.devices" not in flat and not any(".optim." in key for key in flat)


def _overrides(source: LaunchFile) -> Mapping[str, Any]:
    """Return the sections of a file; of a launch script, the overrides on its command line."""
    if not is_script(source):
        return source.top_level()
    return {name: value for name, value in overrides(source).items() if "." in name}


def _section(key: str) -> str:
    """Return a section by its name or by the name in old override files (``model_config``, ``train_config``)."""
    return key.removesuffix("_config") if key.removesuffix("_config") in (*SECTIONS, *OTHER_SECTIONS) else key


def _precedence(key: str) -> tuple[int, str]:
    order = ("mixed_precision", "model", "train", "ddp", "dist", "optimizer", "dataset")
    section = key.split(".")[0]
    return (order.index(section) if section in order else len(order), key)


def _argument(key: str) -> str | None:
    """Return the equivalent Megatron-LM argument of a dotted key; None without one."""
    section, _, name = key.partition(".")
    if section not in SECTIONS or "." in name or not name or name == "_target_":
        return None
    name = ALIASES.get(name, name)
    if section == "model" or (section in ("train", "ddp", "dist") and name not in OF_MODELS):
        return name
    if section == "mixed_precision" and name in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe"):
        return f"{name}_format" if name in ("fp8", "fp4") else name
    return "seq_length" if section == "dataset" and name == "seq_length" else None


def _precision(recipe: str) -> dict[str, Any]:
    """Return Megatron-LM's arguments for the name of a mixed-precision recipe, or NeMo's ``trainer.precision``."""
    text = recipe.lower()
    flags: dict[str, Any] = {"bf16": "bf16" in text, "fp16": "bf16" not in text and "16" in text}
    if "nvfp4" in text:
        flags["fp4_format"] = "e2m1"
    elif "mxfp8" in text:
        flags |= {"fp8_format": "e4m3", "fp8_recipe": "mxfp8"}
    elif "fp8" in text:
        flags["fp8_format"] = "hybrid"
        named = next((word for word in RECIPES if word in text), "")
        flags |= {name: RECIPES[named] for name in ("fp8_recipe", "mixed_precision.fp8_recipe") if named}
    return flags


def _known(key: str) -> bool:
    section, _, name = key.partition(".")
    if (
        name == "_target_"
        or section in OTHER_SECTIONS
        or section in ("dataset", "optimizer", "mixed_precision", "trainer", "exp_manager")
    ):
        return True
    return section in SECTIONS and (name.startswith("data.") or harmless_by("megatron-lm")(name))


def recognise(source: LaunchFile) -> bool:
    """Whether a file is YAML with Megatron's names for degrees under ``model``."""
    if is_script(source):
        return re.search(r"(^|[\s'\"])model\.(tensor|pipeline)_model_parallel_size=", source.text) is not None
    sections = re.search(r"^(model|trainer|ddp|train)(_config)?:", source.text, re.MULTILINE)
    arguments = re.search(r"^[ \t]*--[\w-]+:|^MODEL_ARGS:", source.text, re.MULTILINE)  # Megatron-LM's functional tests
    named = "tensor_model_parallel_size" in source.text
    return source.suffix in (".yaml", ".yml") and named and not (arguments and not sections)


def settle(facts: LaunchFacts) -> None:
    """Determine joint decisions of arguments, and the framework of the file."""
    if facts.get("devices_per_node") is not None:
        facts.launcher = dataclasses.replace(facts.launcher, version="NeMo 1")
    if SCHEME not in facts.settings.every():
        facts.values |= {} if facts.get("adapter_rank") is None else {"adapter": LORA}
    elif facts.get("adapter") is None:
        facts.values.pop("adapter_rank", None)
    adjust(facts)
    if facts.settings.flag("megatron_amp_O2") is False and facts.get("precision") in ("bf16", "fp16"):
        facts.notes.append(
            "megatron_amp_O2 is off: weights stay in fp32 and are cast in every pass; weights in "
            f"{facts.get('precision')} with copies in fp32 are predicted"
        )


LAUNCHER = read_launcher(
    NAME,
    first=KEYS,
    version=VERSION,
    syntax=sections_of,
    marks=recognise,
    harmless=_known,
    adjust=settle,
)
FORMAT = format_of(
    LAUNCHER,
    main=MAIN,
    limits=LIMITS,
    write=write,
    also=("megatron-lm",),
    adapters=True,
    packs=r"\bpacked_sequence_size[:=] ?\d+",
)
