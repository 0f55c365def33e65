"""Megatron-Bridge and NeMo: sections of a configuration container as YAML, and overrides on the command line.

Source: ``ConfigContainer`` of NVIDIA-NeMo/Megatron-Bridge (sections ``model``, ``train``, ``ddp``, ``dist``, ...);
``model`` has the fields of megatron-core's ``TransformerConfig``. NeMo 1 files (``trainer.devices``) are read too.
"""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.command_line import split_again
from forerun.search.formats.contract import SCRIPTS, Files, Format, Imported, Launch, LaunchFile
from forerun.search.formats.devices import World
from forerun.search.formats.launchers import LAUNCH, SLURM, Value, comment, slurm, torchrun
from forerun.search.formats.limits import (
    MEGATRON_COMMON,
    MEGATRON_SCHEDULES,
    decoders_only,
    only,
    precisions,
    splits_by_rule,
)
from forerun.search.formats.megatron_known import is_known
from forerun.search.formats.megatron_read import MODEL_FACTS, read_arguments
from forerun.search.formats.megatron_write import model_arguments, parallel_arguments, sharding_of
from forerun.search.formats.script_world import world_of
from forerun.search.formats.settings import LaunchSettings, flatten
from forerun.search.formats.shell_script import read_script
from forerun.search.formats.software import environment, exports, flags_of, read_switches, split_known
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.documents import parse_document
from forerun.spaces.errors import RequestError

NAME, VERSION = "megatron-bridge", "0.6"
MAIN = "megatron-bridge.yaml"

_MIXED, _OVERLAP = (f"megatron.bridge.training.{name}" for name in ("mixed_precision", "comm_overlap"))
_EIGHT_BIT: dict[str, Any] = {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": True}
_ENDS: dict[str, Any] = {f"num_layers_at_{end}_in_bf16": 1 for end in ("start", "end")}
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp8": {"bf16": True, "first_last_layers_bf16": True} | _ENDS | _EIGHT_BIT,
    "mxfp8": {"bf16": True} | _EIGHT_BIT | {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
"""Fields of ``MixedPrecisionConfig`` by precision, as its registered names have them."""

LIMITS = (
    *MEGATRON_COMMON,
    decoders_only("Megatron-Bridge"),
    MEGATRON_SCHEDULES,
    splits_by_rule("Megatron-Bridge"),
    only("zero", (0, 1), "the distributed optimizer shards optimizer states (zero=1) and no more", zero=1),
    precisions(tuple(PRECISIONS), "Megatron-Bridge has no recipe for it"),
)

RENAMED = {
    "num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "use_tp_pp_dp_mapping": "dist.use_tp_pp_dp_mapping",
    "use_distributed_optimizer": "ddp.use_distributed_optimizer",
    "num_distributed_optimizer_instances": "ddp.num_distributed_optimizer_instances",
}
"""Megatron-LM's arguments that Megatron-Bridge has elsewhere than under their own name in ``model``."""

ALIASES = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "num_moe_experts": "num_experts",
    "sequence_length": "seq_length",
    "gated_linear_unit": "swiglu",
}
"""Fields of a section: the argument of Megatron-LM that means the same."""

_OVERRIDE = re.compile(r"[+~]{0,2}([a-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
"""An override of Hydra's command-line grammar."""

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

SHARDING_OPTIMIZERS = ("mcore_distributed_optim", "distributed_fused_adam")
"""Optimizers of NeMo 1 that share their states out over replicas (ZeRO 1)."""

SECTIONS = ("model", "train", "ddp", "dist", "mixed_precision", "dataset", "optimizer", "trainer", "exp_manager")
OTHER_SECTIONS = (
    "_target_ checkpoint comm_overlap ft inprocess_restart logger optimizer_config_override_provider peft profiling "
    "rerun rerun_state_machine rng scheduler straggler tensor_inspect tokenizer validation env_vars nvrx_straggler "
    "cluster name restore_from_path hydra run"
).split()


def write(launch: Launch) -> Files:
    """Return the YAML, and a launch script with the same settings as overrides of a recipe."""
    switches, variables = exports(flags_of(launch, "nemo"))
    sections = _sections(launch)
    if sharding_of(launch, switches):
        sections["ddp"]["use_distributed_optimizer"] = sections["optimizer"]["use_distributed_optimizer"] = True
    for name, value in switches.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = value
    _settle(sections, launch.workload.precision)
    yaml_text = dump_yaml(
        sections,
        f"{launch.name}: Megatron-Bridge {VERSION}, {launch.strategy}",
        f"{launch.strategy.devices} GPUs; model sizes are the recipe's",
    )
    overrides = " \\\n".join(
        f"    {shlex.quote(f'{_added(key)}={_hydra(value)}')}" for key, value in flatten(sections).items()
    )
    before = [
        f"# RECIPE names the model: a recipe of Megatron-Bridge for {comment(launch.model.name)}.",
        'RECIPE="${RECIPE:?name a recipe of Megatron-Bridge}"',
        f"# {MAIN} says the same, for scripts that take --config-file.",
    ]
    program = '"${BRIDGE_PATH:-.}/scripts/training/run_recipe.py"'
    script = torchrun(
        launch,
        f"Megatron-Bridge {VERSION}",
        program,
        '--recipe "$RECIPE" \\\n' + overrides,
        before=[*before, *variables, ""],
    )
    return {MAIN: yaml_text, LAUNCH: script, SLURM: slurm(launch)}


def _sections(launch: Launch) -> dict[str, Any]:
    s, workload = launch.strategy, launch.workload
    sections: dict[str, Any] = {"model": {}, "train": {}, "ddp": {}, "dist": {}}
    for name, value in parallel_arguments(launch).items():
        section, _, key = RENAMED.get(name, f"model.{name}").partition(".")
        sections[section][key] = _listed(value)
    sections["model"] |= {"seq_length": workload.seq_len}
    experts = model_arguments(launch).get("num_experts")
    if experts is not None:
        sections["model"]["num_moe_experts"] = experts  # the recipe's own: it tells a reader what etp is for
    if s.vpp > 1:  # a layout says it too, but is not looked at where overlaps are checked
        sections["model"]["virtual_pipeline_model_parallel_size"] = s.vpp
    # What the strategy does not use is switched off by name: a recipe may have it on.
    for name in UNUSED:
        sections["model"].setdefault(name, None)
    for end in ("embedding", "loss"):
        sections["model"].setdefault(f"account_for_{end}_in_pipeline_split", False)
    sections["train"] |= {"micro_batch_size": s.mbs, "global_batch_size": workload.global_batch}
    # Recipes shard the optimizer in two places, and what is on in one of them is switched on in the other.
    sections["ddp"].setdefault("use_distributed_optimizer", False)
    sections["optimizer"] = {"use_distributed_optimizer": sections["ddp"]["use_distributed_optimizer"]}
    if not sections["ddp"]["use_distributed_optimizer"]:
        sections["ddp"]["overlap_param_gather"] = False
    sections["dataset"] = {"seq_length": workload.seq_len}
    # Whole sections, because a recipe may have a name or nothing in their place, which no single field can change.
    half = "torch.float16" if workload.precision == "fp16" else "torch.bfloat16"
    mixed = {f"{name}_dtype": {"_target_": half, "_call_": False} for name in ("params", "pipeline")}
    mixed |= PRECISIONS[workload.precision]
    sections["mixed_precision"] = {"_target_": f"{_MIXED}.MixedPrecisionConfig"} | mixed
    sections["comm_overlap"] = {"_target_": f"{_OVERLAP}.CommOverlapConfig", "tp_comm_overlap": False}
    return sections


def _settle(sections: dict[str, Any], precision: str) -> None:
    """Say again, in the section that has the last word, what another one says of the same thing."""
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        if name in sections["ddp"]:
            sections["comm_overlap"][name] = sections["ddp"][name]
    if precision == "mxfp8":  # gathers into the gradient buffer go with parameters in eight bit, and only with them
        gathers = sections["mixed_precision"]["fp8_param_gather"]
        sections["mixed_precision"]["reuse_grad_buf_for_mxfp8_param_ag"] = gathers


def _added(key: str) -> str:
    """Return a key as an override that holds whether a recipe has it or not, in sections that it may lack."""
    return f"++{key}" if key.startswith(("mixed_precision.", "comm_overlap.")) else key


def _listed(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _hydra(value: Any) -> str:
    """Return a value in Hydra's override grammar: texts with anything special are quoted."""
    if value is None or isinstance(value, bool | list):
        return json.dumps(value, separators=(",", ":"))
    text = str(value)
    return text if text.replace("_", "").isalnum() else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parse(source: LaunchFile) -> Imported:
    """Read a configuration container, an override file, or a NeMo 1 file."""
    return parse_sections(source, _overrides(source))


def parse_sections(source: LaunchFile, sections: Mapping[str, Any]) -> Imported:
    """Return what the sections of a container say, from whichever file they came."""
    flat = flatten({_section(key): value for key, value in sections.items()})
    named: dict[str, Any] = {}
    original: dict[str, str] = {}
    for key in sorted(flat, key=_precedence):
        name = _argument(key)
        name = key if name is None or name in named else name  # the first section that has an argument counts
        named[name], original[name] = flat[key], key
    recipe = next((key for key in ("mixed_precision", "trainer.precision") if isinstance(named.get(key), str)), None)
    assumed: tuple[str, ...] = ()
    if recipe is not None:
        named |= _precision(named.pop(recipe))
    elif not {"bf16", "fp16", "fp8_format"} & set(named):
        named["bf16"] = True
        assumed = ("precision bf16, as the recipes have it",)
    if str(flat.get("model.optim.name")) in SHARDING_OPTIMIZERS:
        named.setdefault("use_distributed_optimizer", True)
    elif flat.get("optimizer.use_distributed_optimizer", _recipe_shards(source, flat)):
        named["use_distributed_optimizer"] = True  # where `ddp` or `optimizer` has it, validation switches both on
    settings = LaunchSettings(named, source.name)
    scripts = {**source.beside, source.name: source.text} if source.suffix in SCRIPTS else source.beside
    world = _nemo_world(settings, world_of(scripts, source.gpus, source.given))
    reading = read_arguments(settings, world, source.name)
    for key, value in environment(source.text, *source.beside.values()).items():
        settings.also(key, value)
    spelled = {original[name]: name for name in named if name in original}
    mixture = "experts" in reading.model or reading.strategy.ep > 1
    switches = read_switches(
        lambda key: settings.raw(spelled.get(key, key)),
        "nemo",
        reading.strategy,
        mixture=mixture,
        precision=reading.workload.get("precision"),
    )
    settings.raw("optimizer.use_distributed_optimizer")
    settings.raw("model.optim.name")
    repeated = {key for key in flat if key in named and _argument(key) in named}
    other, unknown = settings.rest(lambda name: name in repeated or _known(original.get(name, name)))
    unmodelled, other = split_known({original.get(name, name): value for name, value in other.items()}, "nemo")
    return Imported(
        format=NAME,
        version="NeMo 1" if "trainer.devices" in flat else VERSION,
        strategy=reading.strategy,
        workload=reading.workload,
        model=reading.model,
        other=other,
        unknown={original.get(name, name): value for name, value in unknown.items()},
        switches=switches,
        unmodelled=unmodelled,
        defaults=(*reading.defaults, *assumed),
        notes=reading.notes,
    )


def _recipe_shards(source: LaunchFile, flat: Mapping[str, Any]) -> bool:
    """Whether the recipe behind the sections shards its optimizer: overrides are those of a recipe, whose optimizer
    does (``recipes/utils/optimizer_utils.py``); NeMo 1 has sections of its own, and so have recipes themselves."""
    return source.suffix != ".py" and "trainer.devices" not in flat and not any(".optim." in key for key in flat)


def _overrides(source: LaunchFile) -> Mapping[str, Any]:
    """Return the sections of a file; of a launch script, the overrides on its command line.

    Raises:
        RequestError: the file cannot be read, or an override is given twice with different values.
    """
    if source.suffix not in SCRIPTS:
        return source.top_level()
    found: dict[str, Any] = {}
    for command in read_script(source.text, source.name, source.given).commands:
        for word in split_again(command):
            if match := _OVERRIDE.fullmatch(word):
                value = parse_document(f"x: {match[2]}", source=f"{source.name}.yaml").data["x"] if match[2] else None
                if found.setdefault(match[1], value) != value:
                    raise RequestError(f"{source.name}: {match[1]} is given twice and differs")
    return found


def _section(key: str) -> str:
    """Old override files call the sections ``model_config``, ``train_config``."""
    return key.removesuffix("_config") if key.removesuffix("_config") in (*SECTIONS, *OTHER_SECTIONS) else key


def _precedence(key: str) -> tuple[int, str]:
    order = ("mixed_precision", "model", "train", "ddp", "dist", "optimizer", "dataset")
    section = key.split(".")[0]
    return (order.index(section) if section in order else len(order), key)


def _argument(key: str) -> str | None:
    """Return the argument of Megatron-LM that a dotted key means; None where there is none."""
    section, _, name = key.partition(".")
    if section not in SECTIONS or "." in name or not name or name == "_target_":
        return None
    name = ALIASES.get(name, name)
    if section == "model" or (section in ("train", "ddp", "dist") and name not in MODEL_FACTS):
        return name
    if section == "mixed_precision" and name in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe"):
        return f"{name}_format" if name in ("fp8", "fp4") else name
    return "seq_length" if section == "dataset" and name == "seq_length" else None


def _precision(recipe: str) -> dict[str, Any]:
    """Return Megatron-LM's arguments for the name of a mixed-precision recipe, or NeMo's ``trainer.precision``."""
    text = recipe.lower()
    found: dict[str, Any] = {"bf16": "bf16" in text, "fp16": "bf16" not in text and "16" in text}
    if "nvfp4" in text:
        found["fp4_format"] = "e2m1"
    elif "mxfp8" in text:
        found |= {"fp8_format": "e4m3", "fp8_recipe": "mxfp8"}
    elif "fp8" in text:
        found["fp8_format"] = "hybrid"
    return found


def _nemo_world(settings: LaunchSettings, world: World) -> World:
    nodes = settings.whole("trainer.num_nodes")
    devices = settings.whole("trainer.devices")
    if world.stated or devices is None:
        return world
    return World(devices=devices * (nodes or 1))


def _known(key: str) -> bool:
    section, _, name = key.partition(".")
    if (
        name == "_target_"
        or section in OTHER_SECTIONS
        or section in ("dataset", "optimizer", "mixed_precision", "trainer", "exp_manager")
    ):
        return True
    return section in SECTIONS and is_known(name)


def recognise(source: LaunchFile) -> bool:
    """Whether a file is YAML with Megatron's names for degrees under ``model``."""
    if source.suffix in SCRIPTS:
        return re.search(r"(^|[\s'\"])model\.(tensor|pipeline)_model_parallel_size=", source.text) is not None
    sections = re.search(r"^(model|trainer|ddp|train)(_config)?:", source.text, re.MULTILINE)
    arguments = re.search(r"^\s*--[\w-]+:|^MODEL_ARGS:", source.text, re.MULTILINE)  # Megatron-LM's functional tests
    named = "tensor_model_parallel_size" in source.text
    return source.suffix in (".yaml", ".yml") and named and not (arguments and not sections)


FORMAT = Format(
    name=NAME,
    version=VERSION,
    title="Megatron-Bridge",
    main=MAIN,
    limits=LIMITS,
    write=write,
    parse=parse,
    recognise=recognise,
    framework="nemo",
)
