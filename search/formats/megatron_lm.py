"""Megatron-LM 0.20: arguments of ``pretrain_gpt.py`` in a launch script.

Source: ``megatron/training/arguments.py`` and the dataclasses of megatron-core whose fields become arguments.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.search.formats.command_line import options, run_of, split_command
from forerun.search.formats.contract import Files, Launch, LaunchFile, Limit
from forerun.search.formats.facts import format_of
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import Launcher, LaunchFacts, Stated
from forerun.search.formats.launcher_data import marked_by
from forerun.search.formats.launchers import LAUNCH, TORCHRUN, Value, array, comment, scripts
from forerun.search.formats.limits import (
    MEGATRON_COMMON,
    MEGATRON_SCHEDULES,
    MX_IS_A_PRECISION,
    only,
    precisions,
    splits_by_rule,
)
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.megatron_hybrid import PROGRAM, beside_hybrids, written_by
from forerun.search.formats.megatron_read import BATCH_KEYS, KEYS, adjust
from forerun.search.formats.megatron_write import (
    PRECISION,
    model_arguments,
    model_remarks,
    parallel_arguments,
    sharded_states,
    sharding_of,
)
from forerun.search.formats.software import assumed, environment, exports, flags_of, plain_name
from forerun.search.formats.syntax import document
from forerun.search.formats.writing import settings_of
from forerun.spaces.errors import RequestError

NAME, VERSION = "megatron-lm", "0.20.0"

PACKED = "dataloader_inter_document_masking"
"""Attention inside documents, from their bounds in each sample (GPTDatasetConfig, from 0.19)."""
TRAINING: dict[str, Value] = {
    "lr": 1.0e-4,
    "min_lr": 1.0e-5,
    "lr_decay_style": "cosine",
    "weight_decay": 0.1,
    "clip_grad": 1.0,
    "log_interval": 1,
    "log_throughput": True,
    "eval_iters": 0,
}
"""A short measured run with the steps of its job, to be replaced by a training schedule."""


_CONFIGURES = re.compile(r"config|cfg|yaml")
_DECIDING = re.compile(r"parallel|batch_size|num_layers|zero_stage")
"""Names of arguments that mean a degree, a batch or a size."""
_ARGUMENTS = {name for key in KEYS for name in key.names}


def _gathered_beside_the_host(launch: Launch) -> bool:
    switches = assumed(launch, NAME)
    eight = switches.get("fp8-params") == "on" and switches.get("fp8-recipe") != "delayed"
    return eight and switches.get("optimizer-offload") != "off"


LIMITS = (
    MX_IS_A_PRECISION,
    *MEGATRON_COMMON,
    written_by("Megatron-LM"),
    beside_hybrids(decoders_only("pretrain_gpt.py")),
    MEGATRON_SCHEDULES,
    splits_by_rule("Megatron-LM"),
    only("zero", (0, 1), "the distributed optimizer shards optimizer states (zero=1) and no more", zero=1),
    sharded_states(NAME),
    precisions(tuple(PRECISION), "Megatron-LM has no argument for it"),
    Limit(
        broken=lambda launch: launch.packed and launch.model.hybrid,
        reason=lambda launch: f"--documents: {PROGRAM} attends to whole sequences",
        fix=None,
    ),
    Limit(
        broken=_gathered_beside_the_host,
        reason=lambda launch: (
            "weights in eight bit alone go with an optimizer on the host only under fp8-recipe=delayed (validate_args)"
        ),
        fix=None,
    ),
)


def flags(arguments: dict[str, Value]) -> dict[str, Value]:
    """Return arguments under the flags of the command line."""
    return {"--" + name.replace("_", "-"): value for name, value in arguments.items()}


def write(launch: Launch) -> Files:
    """Return a launch script with quoted arguments and a SLURM batch file."""
    s, workload = launch.strategy, launch.workload
    data: dict[str, Value] = {
        "mock_data": True,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": launch.model.vocab,
        "split": "99,1,0",
    }
    switches, variables = exports(flags_of(launch, NAME))
    lines = [f"# {comment(remark)}" for remark in model_remarks(launch)]
    lines += variables
    if s.tp > 1 or s.cp > 1:
        lines += ["# Up to Hopper, kernels and communication must start in the order they were issued in.", ""]
        lines.insert(-1, "export CUDA_DEVICE_MAX_CONNECTIONS=1")
    data |= {PACKED: True} if launch.packed else {}
    groups = {
        "MODEL_ARGS": model_arguments(launch),
        "PARALLEL_ARGS": parallel_arguments(launch) | sharding_of(launch, switches),
        "SOFTWARE_ARGS": switches,
        "TRAINING_ARGS": settings_of(BATCH_KEYS, launch)
        | PRECISION[workload.precision]
        | {"train_iters": launch.job.steps}
        | TRAINING,
    }
    for name, arguments in groups.items():
        lines += [*array(name, flags(arguments)), ""]
    lines += ["# Mock data measure speed; give --data-path and a tokenizer to learn something."]
    if launch.packed:
        lines += ["# Documents of mock data have 1 to 4,096 tokens, not those that were predicted."]
    lines += [*array("DATA_ARGS", flags(data)), ""]
    arrays = [f'"${{{name}[@]}}"' for name in (*groups, "DATA_ARGS")]
    program = f'"${{MEGATRON_PATH:-.}}/{PROGRAM if launch.model.hybrid else "pretrain_gpt.py"}"'
    command = [*TORCHRUN, program, " ".join(arrays)]
    return scripts(launch, f"Megatron-LM {VERSION}", command, before=lines[:-1])


def arguments(source: LaunchFile) -> Stated:
    """Return the arguments of a launch script, or of a list of them, by their Python names, without running anything.

    Raises
    ------
    RequestError
        There are no arguments.
    """
    script = source.script()
    flags: dict[str, str | bool] = {}
    remarks: list[str] = list(script.notes)
    for command in _commands(script.commands):
        words, twice = options(split_command(command)[1], kebab=False)
        flags |= words
        remarks += twice
    if not flags:
        raise RequestError(
            f"{source.name}: no command with arguments like --tensor-model-parallel-size; is it a launch script?"
        )
    spelled = {name: "--" + name.replace("_", "-") for name in flags}
    return Stated(values=flags | environment(source.text), spelled=spelled, notes=remarks)


def _of_section(source: LaunchFile, section: str) -> Stated:
    """Return the arguments in a section of a YAML file."""
    stated = {name[len(section) :]: value for name, value in document(source).items() if name.startswith(section)}
    flags = {name.lstrip("-").replace("-", "_"): name for name, value in stated.items() if value is not None}
    return Stated(values={name: stated[key] for name, key in flags.items()}, spelled=flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronVariant:
    """Megatron-LM, or software that extends its arguments.

    Its own harmless arguments are under ``name`` in ``data/harmless.yaml``.
    """

    name: str
    version: str
    title: str
    marks: Sequence[Mapping[str, Any]]
    """Marks of its files (``marked_by``)."""
    section: str = ""
    """Section of YAML files with its arguments; without one they are in a command."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Megatron-LM's names of its arguments."""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """Default arguments."""
    says: Mapping[str, str] = field(default_factory=dict)
    """Notes on arguments that are set."""
    extends: str = ""
    """Argument that gives tensor ranks complete experts instead of parts."""
    valued: bool = False
    """Whether its flags have values."""
    framework: str = NAME
    """Profile whose switches its arguments set."""

    @property
    def launcher(self) -> Launcher:
        """Return its table."""
        return Launcher(
            name=self.name,
            version=self.version,
            title=self.title,
            frameworks=(self.framework,),
            keys=KEYS,
            syntax=self._read,
            marks=marked_by(*self.marks),
            harmless=lambda key: self._ignores(plain_name(key)),
            adjust=self._settle,
            bare_flags=not self.valued,
        )

    def _ignores(self, argument: str) -> bool:
        return harmless_by(self.name, NAME)(argument)

    def _read(self, source: LaunchFile) -> Stated:
        stated = _of_section(source, self.section) if self.section else arguments(source)
        names = {old: self.renamed.get(old, old) for old, value in stated.values.items() if value != "none"}
        values = {new: stated.values[old] for old, new in names.items()}
        spelled = {new: stated.spelled.get(old, old) for old, new in names.items()}
        beneath = {key: value for key, value in self.assumed.items() if key not in values}
        assumptions = [f"{key}={value}, as {self.name} assumes" for key, value in beneath.items()]
        return dataclasses.replace(stated, values=values | beneath, spelled=spelled, defaults=assumptions)

    def _settle(self, facts: LaunchFacts) -> None:
        stated, values = facts.file.values, facts.values
        facts.notes += [text.format(value=stated[key]) for key, text in self.says.items() if key in stated]
        if stated.get(self.extends):
            note = f"{self.extends}: tensor ranks hold experts of their own, so that ep is {facts.get('ep', 1)}*"
            values |= {"ep": facts.get("ep", 1) * facts.get("tp", 1), "etp": 1}
            facts.notes.append(f"{note}{facts.get('tp', 1)}")
        if facts.settings.flag("deepspeed"):  # a fork from before flash attention was the default
            facts.launcher = dataclasses.replace(facts.launcher, frameworks=(NAME, "megatron-deepspeed"))
        known = [key for key in stated if not key.isupper()]
        strange = [key for key in known if key not in _ARGUMENTS and not self._ignores(key)]
        if files := _configurations(stated, known):
            if not any(_DECIDING.search(key) for key in known):
                raise RequestError(f"{facts.source.name} leaves its arguments to {files[0]}: import that")
            facts.notes.append(f"{', '.join(files)[:120]} may decide more; forerun does not read it with the script")
        lost = any("parallel" in key for key in strange)  # refused by name later
        if lost or 2 * len(strange) <= len(known):  # otherwise it is another program with a few common words
            facts.stated.add("tp")  # an unstated degree is 1
        adjust(facts)


def _configurations(stated: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Return the configuration files of a command."""
    words = [(name, word) for name in names if _CONFIGURES.search(name) for word in str(stated[name]).split()]
    return [word for name, word in words if name in ("config", "yaml_cfg") or word.endswith((".yaml", ".yml"))]


def _commands(commands: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """Return the command with the most arguments, and lines that contain only arguments."""
    bare = [command for command in commands if command[0].startswith("--")]
    largest = tuple(run_of([command for command in commands if command not in bare]))
    return [largest, *bare] if largest else bare


MARK = "--(tensor|pipeline)[-_]model[-_]parallel[-_]size|--num[-_]layers|pretrain_(gpt|hybrid|mamba)"
LAUNCHER = MegatronVariant(name=NAME, version=VERSION, title="Megatron-LM", marks=[{"has": MARK}]).launcher
FORMAT = format_of(LAUNCHER, main=LAUNCH, limits=LIMITS, write=write, packs="--" + PACKED.replace("_", "[-_]"))
