"""Megatron-LM 0.20: arguments of ``pretrain_gpt.py`` in a launch script.

Source: ``megatron/training/arguments.py`` and the dataclasses of megatron-core whose fields become arguments.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.search.formats.command_line import options, split_again, split_command
from forerun.search.formats.contract import Files, Format, Imported, Launch, LaunchFile
from forerun.search.formats.devices import World
from forerun.search.formats.launchers import LAUNCH, SLURM, Value, array, comment, slurm, torchrun
from forerun.search.formats.limits import (
    MEGATRON_COMMON,
    MEGATRON_SCHEDULES,
    decoders_only,
    only,
    precisions,
    splits_by_rule,
)
from forerun.search.formats.megatron_known import is_known
from forerun.search.formats.megatron_read import read_arguments
from forerun.search.formats.megatron_write import (
    PRECISION,
    model_arguments,
    model_remarks,
    parallel_arguments,
    sharding_of,
)
from forerun.search.formats.script_world import script_devices, world_of
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.shell_script import read_script
from forerun.search.formats.software import environment, exports, flags_of, read_switches, split_known
from forerun.spaces.errors import RequestError

NAME, VERSION = "megatron-lm", "0.20.0"

TRAINING: dict[str, Value] = {
    "train_iters": 100,
    "lr": 1.0e-4,
    "min_lr": 1.0e-5,
    "lr_decay_style": "cosine",
    "weight_decay": 0.1,
    "clip_grad": 1.0,
    "log_interval": 1,
    "log_throughput": True,
    "eval_iters": 0,
}
"""A short run that measures: replace it by a schedule of learning."""

LIMITS = (
    *MEGATRON_COMMON,
    decoders_only("pretrain_gpt.py"),
    MEGATRON_SCHEDULES,
    splits_by_rule("Megatron-LM"),
    only("zero", (0, 1), "the distributed optimizer shards optimizer states (zero=1) and no more", zero=1),
    precisions(tuple(PRECISION), "Megatron-LM has no argument for it"),
)


def flags(arguments: dict[str, Value]) -> dict[str, Value]:
    """Return arguments under the flags of the command line."""
    return {"--" + name.replace("_", "-"): value for name, value in arguments.items()}


def write(launch: Launch) -> Files:
    """Return a launch script with quoted arguments and a SLURM batch file."""
    s, workload = launch.strategy, launch.workload
    batch: dict[str, Value] = {"micro_batch_size": s.mbs, "global_batch_size": workload.global_batch}
    data: dict[str, Value] = {
        "mock_data": True,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": launch.model.vocab,
        "split": "99,1,0",
    }
    switches, variables = exports(flags_of(launch, NAME))
    lines = [f"# {comment(remark)}" for remark in model_remarks(launch.model)]
    lines += variables
    if s.tp > 1 or s.cp > 1:
        lines += ["# Up to Hopper, kernels and communication must start in the order they were issued in.", ""]
        lines.insert(-1, "export CUDA_DEVICE_MAX_CONNECTIONS=1")
    groups = {
        "MODEL_ARGS": model_arguments(launch),
        "PARALLEL_ARGS": parallel_arguments(launch) | sharding_of(launch, switches),
        "SOFTWARE_ARGS": switches,
        "TRAINING_ARGS": batch | PRECISION[workload.precision] | TRAINING,
    }
    for name, arguments in groups.items():
        lines += [*array(name, flags(arguments)), ""]
    lines += ["# Mock data measure speed; give --data-path and a tokenizer to learn something."]
    lines += [*array("DATA_ARGS", flags(data)), ""]
    arrays = " ".join(f'"${{{name}[@]}}"' for name in (*groups, "DATA_ARGS"))
    program = '"${MEGATRON_PATH:-.}/pretrain_gpt.py"'
    script = torchrun(launch, f"Megatron-LM {VERSION}", program, arrays, before=lines)
    return {LAUNCH: script, SLURM: slurm(launch)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronVariant:
    """Software whose scripts have Megatron-LM's arguments and some of its own.

    ``renamed``: its argument: that of Megatron-LM; ``assumed``: what it takes where Megatron-LM takes something else;
    ``known``: names of its own; ``says``: an argument, and a note for whoever sets it; ``extends``: the argument with
    which tensor ranks hold experts of their own, instead of a part of each.
    """

    name: str
    version: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    assumed: Mapping[str, str | bool] = field(default_factory=dict)
    known: re.Pattern[str] = re.compile("(?!)")
    says: Mapping[str, str] = field(default_factory=dict)
    extends: str = ""


def parse(source: LaunchFile) -> Imported:
    """Read a launch script or a list of arguments; the script is never run."""
    return parse_variant(source, MegatronVariant(name=NAME, version=VERSION))


def parse_variant(source: LaunchFile, variant: MegatronVariant) -> Imported:
    """Read a launch script of Megatron-LM, or of software that has its arguments."""
    script = read_script(source.text, source.name, source.given)
    found: dict[str, str | bool] = {}
    remarks: list[str] = list(script.notes)
    for command in _commands(script.commands):
        words, twice = options(split_command(split_again(command))[1], kebab=False)
        found |= words
        remarks += twice
    if not found:
        raise RequestError(
            f"{source.name}: no command with arguments like --tensor-model-parallel-size; is it a launch script?"
        )
    world = world_of(source.beside, source.gpus, source.given)
    if not world.stated:
        devices = script_devices(script)
        world = world_of({}, None) if devices is None else type(world)(devices=devices)
    return read_variant(source, variant, found, world, remarks)


def read_variant(
    source: LaunchFile, variant: MegatronVariant, found: Mapping[str, Any], world: World, remarks: Sequence[str] = ()
) -> Imported:
    """Return what arguments by their names (with underscores) say, from whichever syntax they came."""
    defaults = [
        f"{name}={value}, as {variant.name} assumes" for name, value in variant.assumed.items() if name not in found
    ]
    found = {variant.renamed.get(name, name): value for name, value in found.items()}
    found = {name: value for name, value in ({**variant.assumed, **found}).items() if value != "none"}
    said = [text.format(value=found[name]) for name, text in variant.says.items() if name in found]
    if found.get(variant.extends):
        found |= _extended(found, variant.extends, said)
    bare = "use_distributed_optimizer" not in variant.assumed  # ms-swift gives its flags a value
    settings = LaunchSettings(found | environment(source.text), source.name, bare_flags=bare)
    reading = read_arguments(settings, world, source.name)
    mixture = "experts" in reading.model or reading.strategy.ep > 1
    precision = reading.workload.get("precision")
    switches = read_switches(settings.raw, NAME, reading.strategy, mixture=mixture, precision=precision)
    if settings.flag("deepspeed"):  # Megatron-DeepSpeed forked before flash attention was what runs without a flag
        switches |= read_switches(settings.raw, "megatron-deepspeed", reading.strategy, mixture=mixture)
    other, unknown = settings.rest(lambda name: is_known(name) or variant.known.match(name) is not None)
    unmodelled, other = split_known(other, NAME)
    return Imported(
        format=variant.name,
        version=variant.version,
        strategy=reading.strategy,
        workload=reading.workload,
        model=reading.model,
        other=_flagged(other),
        unknown=_flagged(unknown),
        switches=switches,
        unmodelled=_flagged(unmodelled),
        defaults=(*defaults, *reading.defaults),
        notes=(*remarks, *said, *reading.notes),
    )


def _extended(found: Mapping[str, Any], by: str, said: list[str]) -> dict[str, str]:
    """Return the degrees of experts where tensor ranks hold experts of their own."""
    degrees = [str(found.get(name, "1")) for name in ("expert_model_parallel_size", "tensor_model_parallel_size")]
    if not all(degree.isdecimal() and len(degree) < 8 for degree in degrees):
        return {}
    experts = int(degrees[0]) * int(degrees[1])
    said.append(f"{by}: tensor ranks hold experts of their own, so that ep is {degrees[0]}*{degrees[1]}")
    return {"expert_model_parallel_size": str(experts), "expert_tensor_parallel_size": "1"}


def _flagged(settings: dict[str, Any]) -> dict[str, Any]:
    return {"--" + name.replace("_", "-"): value for name, value in settings.items()}


def _commands(commands: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """Return the command with the most arguments, and lines that are nothing but arguments."""
    bare = [command for command in commands if command[0].startswith("--")]
    sized = {
        command: len(options(split_command(split_again(command))[1])[0])
        for command in commands
        if not command[0].startswith("--")
    }
    largest = max(sized, key=lambda command: sized[command], default=None)
    return [largest, *bare] if largest is not None and sized[largest] else bare


def recognise(source: LaunchFile) -> bool:
    """Whether a file has Megatron-LM's arguments."""
    return bool(
        re.search(r"--(tensor|pipeline)[-_]model[-_]parallel[-_]size|--num[-_]layers|pretrain_gpt", source.text)
    )


FORMAT = Format(
    name=NAME,
    version=VERSION,
    title="Megatron-LM",
    main=LAUNCH,
    limits=LIMITS,
    write=write,
    parse=parse,
    recognise=recognise,
    framework="megatron-lm",
)
