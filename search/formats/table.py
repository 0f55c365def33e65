"""All formats by name."""

import re
from collections.abc import Sequence
from itertools import pairwise

from forerun.search.formats.contract import Format, LaunchFile
from forerun.search.formats.registry import ENTRIES, WRITTEN
from forerun.search.formats.syntax import is_script
from forerun.spaces.errors import RequestError, unknown

FORMATS: tuple[Format, ...] = tuple(entry.load() for entry in ENTRIES)
"""Formats in the order of recognition, most specific first."""

_STARTED = re.compile(r"(?:^|[;&\s(\"'])(?:source|\.|bash|sh|sbatch)\s+[\"']?(\S+?\.(?:sh|bash|slurm|sbatch))\b")
"""A script started or read by another one."""
_LAUNCHERS = ("srun", "mpirun", "torchrun", "python", "python3", "deepspeed", "accelerate", "exec", "time", "nohup")
_NAMED = {
    "--deepspeed_config": "the JSON that --deepspeed_config names",
    "--job.config_file": "the TOML that --job.config_file names",
    "torchtitan.train": "the config_registry.py of its --module, with its --config as --entry and",
}
"""Marks of scripts whose configuration is in another file -> that file."""
_SAID = re.compile(r"^.*\b(?:echo|printf)\b.*$|^[ \t]*#.*$", re.MULTILINE)
"""Printing lines, and comments."""
_CONFIGURATION = re.compile(r"[\w./-]{1,200}\.(?:yaml|yml|toml|json)")


def _unset_program(commands: Sequence[Sequence[str]]) -> str:
    """Return the unset variable with a script's program or launcher; "" for none."""
    for command in commands:
        for before, word in zip(("", *command), command, strict=False):
            match = re.fullmatch(r"\$\{?([A-Za-z_]\w*|\d+)\}?", word)
            if match and not before.startswith("-") and (not before or command[0] in _LAUNCHERS):
                return match[1]
    return ""


def _program(command: Sequence[str]) -> int:
    """Return the position of the program in a command: a file, a module, else the first word."""
    named = (at for at, (before, word) in enumerate(pairwise(("", *command))) if word.endswith(".py") or before == "-m")
    return next(named, 0)


def _handed(commands: Sequence[Sequence[str]]) -> list[str]:
    """Return the configuration files that a script passes to its programs."""
    return [word for command in commands for word in command[_program(command) :] if _CONFIGURATION.fullmatch(word)]


def writable() -> tuple[Format, ...]:
    """Return the formats that can write a launch."""
    return tuple(item for item in FORMATS if item.name in WRITTEN)


def format_named(name: str) -> Format:
    """Return one format.

    Raises
    ------
    RequestError
        No format has this name; the text names the nearest ones.
    """
    for item in FORMATS:
        if item.name == name.lower():
            return item
    raise unknown("format", name, [item.name for item in FORMATS])


def recognised(source: LaunchFile) -> Format:
    """Recognise the format of a file.

    Raises
    ------
    RequestError
        The format is not recognised.
    """
    for item in FORMATS:
        if item.recognise(source):
            return item
    if '"model_type"' in source.text and '"architectures"' in source.text:
        reason = (
            "is a Hugging Face configuration, which describes a model and no training: `forerun search` takes it as"
        )
        raise RequestError(f"{source.name} {reason} MODEL")
    reason = _reason_of_script(source) if is_script(source) else ""
    names = ", ".join(item.name for item in FORMATS)
    other = f"looks like no format that forerun reads; name one with --format: {names}"
    raise RequestError(f"{source.name} {reason or other}")


def _reason_of_script(source: LaunchFile) -> str:
    """Return why a script is of no format, and the file or the value that would help."""
    for mark, other_file in _NAMED.items():
        if mark in source.text:
            return (
                f"starts a program whose configuration is another file: import {other_file} with this script beside it"
            )
    commands = source.script().commands
    if unset := _unset_program(commands):
        way = "the arguments of the script after --" if unset.isdecimal() else f"--set-var {unset}=..."
        return f"starts ${unset}, which it does not set: give {way}, or import the file that it names"
    if others := _STARTED.findall(_SAID.sub("", source.text)) or _handed(commands):
        inside = ", ".join(dict.fromkeys(word.rpartition("/")[2] for word in others))[:120]
        hint = "import that (with --set-var NAME=VALUE for what this one sets, -- ARGUMENTS for its arguments)"
        return f"has no arguments of a training program; it starts or reads {inside}: {hint}"
    largest = max(commands, key=lambda words: (_program(words) > 0, len(words)), default=())
    if not largest:
        return ""
    names = ", ".join(item.name for item in FORMATS)
    program = largest[_program(largest)][:80]
    inside = "if its settings are in it, import it with this script beside it, else " if program.endswith(".py") else ""
    return f"starts {program}, whose arguments forerun does not know: {inside}name a format with --format: {names}"
