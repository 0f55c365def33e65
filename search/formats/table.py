"""All formats by name."""

import re

from forerun.search.formats import (
    accelerate_fsdp,
    accelerate_megatron,
    bridge_recipes,
    deepspeed,
    galvatron,
    maxtext,
    megatron_bridge,
    megatron_lm,
    megatron_log,
    megatron_variants,
    mindspeed,
    nanotron,
    own_yaml,
    torch_parallel,
    torchtitan_python,
    torchtitan_toml,
)
from forerun.search.formats.contract import SCRIPTS, Format, LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import Launcher
from forerun.search.formats.shell import read_script
from forerun.search.formats.tables import (
    axolotl,
    bridge_performance,
    calculon,
    colossalai,
    hf_trainer,
    levanter,
    llama_factory,
    mindspeed_fsdp2,
    ms_swift,
    neox,
    olmo,
    olmo_core,
    simumax,
    verl,
)
from forerun.search.formats.tables.maxtext import LAUNCHER as MAXTEXT_KEYS
from forerun.spaces.errors import RequestError, unknown

LAUNCHERS: tuple[Launcher, ...] = (
    neox.LAUNCHER,
    axolotl.LAUNCHER,
    llama_factory.LAUNCHER,
    olmo.LAUNCHER,
    olmo_core.LAUNCHER,
    verl.LAUNCHER,
    levanter.LAUNCHER,
    colossalai.LAUNCHER,
    ms_swift.LAUNCHER,
    mindspeed_fsdp2.LAUNCHER,
    hf_trainer.LAUNCHER,
    bridge_performance.LAUNCHER,
    simumax.LAUNCHER,
    calculon.LAUNCHER,
)
"""Formats that are only a table of their keys."""
TABLES: tuple[Launcher, ...] = (
    megatron_lm.LAUNCHER,
    torchtitan_python.LAUNCHER,
    torchtitan_toml.LAUNCHER,
    deepspeed.LAUNCHER,
    accelerate_fsdp.LAUNCHER,
    accelerate_megatron.LAUNCHER,
    nanotron.LAUNCHER,
    MAXTEXT_KEYS,
    *LAUNCHERS,
)
"""All tables: those of frameworks that forerun predicts first."""

WRITTEN = {item.name: item for item in (neox.FORMAT, axolotl.FORMAT, llama_factory.FORMAT, olmo_core.FORMAT)}
"""Those of the tables that are written, too."""

FORMATS: tuple[Format, ...] = (
    own_yaml.FORMAT,
    megatron_log.FORMAT,
    *(WRITTEN.get(launcher.name) or format_of(launcher) for launcher in LAUNCHERS),
    maxtext.FORMAT,
    bridge_recipes.FORMAT,
    *megatron_variants.FORMATS,
    mindspeed.FORMAT,
    megatron_bridge.FORMAT,
    accelerate_megatron.FORMAT,
    accelerate_fsdp.FORMAT,
    nanotron.FORMAT,
    torch_parallel.FORMAT,
    torchtitan_toml.FORMAT,
    torchtitan_python.FORMAT,
    torchtitan_python.RELEASE_FORMAT,
    galvatron.FORMAT,
    deepspeed.FORMAT,
    megatron_lm.FORMAT,
)
"""In the order in which a file is tried: the surest mark first."""


_STARTED = re.compile(r"(?:^|[;&\s(\"'])(?:source|\.|bash|sh|sbatch)\s+[\"']?(\S+?\.(?:sh|bash|slurm|sbatch))\b")
"""A script that another one starts or reads."""
_LAUNCHERS = ("srun", "mpirun", "torchrun", "python", "python3", "deepspeed", "accelerate", "exec", "time", "nohup")
_SAID = re.compile(r"^.*\b(?:echo|printf)\b.*$|^\s*#.*$", re.MULTILINE)
"""Lines that print, and comments."""
_CONFIGURATION = re.compile(r"[\w./-]{1,200}\.(?:yaml|yml|toml|json)")


def _unset_program(source: LaunchFile) -> str:
    """Return the variable that a script starts its program from, or its launcher, without setting it; "" for none."""
    for command in read_script(source.text, source.name, source.given).commands:
        for before, word in zip(("", *command), command, strict=False):
            match = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", word)
            if match and not before.startswith("-") and (not before or command[0] in _LAUNCHERS):
                return match[1]
    return ""


def _handed(text: str) -> list[str]:
    """Return the configurations that a script hands to its program."""
    words = text.split()
    program = next((at for at, word in enumerate(words) if word.endswith(".py")), len(words))
    return [word for word in words[program:] if _CONFIGURATION.fullmatch(word)]


def writable() -> tuple[Format, ...]:
    """Return the formats that a launch can be written in."""
    return tuple(item for item in FORMATS if item.write is not None)


def format_named(name: str) -> Format:
    """Return one format.

    Raises:
        RequestError: no format has this name; the text names the nearest ones.
    """
    for item in FORMATS:
        if item.name == name.lower():
            return item
    raise unknown("format", name, [item.name for item in FORMATS])


def recognised(source: LaunchFile) -> Format:
    """Return the format that a file looks like.

    Raises:
        RequestError: it looks like none.
    """
    for item in FORMATS:
        if item.recognise(source):
            return item
    if '"model_type"' in source.text and '"architectures"' in source.text:
        told = "describes a model and no training: `forerun search` takes it as MODEL"
        raise RequestError(f"{source.name} is a Hugging Face configuration, which {told}")
    if source.suffix in SCRIPTS and "--deepspeed_config" in source.text:
        told = "import the JSON that --deepspeed_config names, with this script beside it"
        raise RequestError(f"{source.name} starts a program that has arguments of its own: {told}")
    text = _SAID.sub("", source.text)
    if source.suffix in SCRIPTS and (unset := _unset_program(source)):
        raise RequestError(
            f"{source.name} starts ${unset}, which it does not set: give --set-var {unset}=..., or import the file "
            "that it names"
        )
    if source.suffix in SCRIPTS and (other := _STARTED.findall(text) or _handed(text)):
        inside = ", ".join(dict.fromkeys(word.rpartition("/")[2] for word in other))[:120]
        told = "import that (with --set-var NAME=VALUE for what this one sets, -- ARGUMENTS for its arguments)"
        raise RequestError(f"{source.name} has no arguments of a training program; it starts or reads {inside}: {told}")
    names = ", ".join(item.name for item in FORMATS)
    raise RequestError(f"{source.name} looks like no format that forerun reads; name one with --format: {names}")
