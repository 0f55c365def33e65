"""All formats by name."""

import re

from forerun.search.formats.contract import SCRIPTS, Format, LaunchFile
from forerun.search.formats.registry import ENTRIES, WRITTEN
from forerun.search.formats.shell import read_script
from forerun.spaces.errors import RequestError, unknown

FORMATS: tuple[Format, ...] = tuple(entry.load() for entry in ENTRIES)
"""In the order in which a file is tried: the surest mark first."""

_STARTED = re.compile(r"(?:^|[;&\s(\"'])(?:source|\.|bash|sh|sbatch)\s+[\"']?(\S+?\.(?:sh|bash|slurm|sbatch))\b")
"""A script that another one starts or reads."""
_LAUNCHERS = ("srun", "mpirun", "torchrun", "python", "python3", "deepspeed", "accelerate", "exec", "time", "nohup")
_NAMED = {"--deepspeed_config": "JSON", "--job.config_file": "TOML"}
"""Options of programs that name their configuration: its kind."""
_SAID = re.compile(r"^.*\b(?:echo|printf)\b.*$|^[ \t]*#.*$", re.MULTILINE)
"""Lines that print, and comments."""
_CONFIGURATION = re.compile(r"[\w./-]{1,200}\.(?:yaml|yml|toml|json)")


def _unset_program(source: LaunchFile) -> str:
    """Return the variable that a script starts its program from, or its launcher, without setting it; "" for none."""
    for command in read_script(source.text, source.name, source.given).commands:
        for before, word in zip(("", *command), command, strict=False):
            match = re.fullmatch(r"\$\{?([A-Za-z_]\w*|\d+)\}?", word)
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
    return tuple(item for item in FORMATS if item.name in WRITTEN)


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
        hint = "describes a model and no training: `forerun search` takes it as MODEL"
        raise RequestError(f"{source.name} is a Hugging Face configuration, which {hint}")
    for option, kind in _NAMED.items():
        if source.suffix in SCRIPTS and option in source.text:
            hint = f"import the {kind} that {option} names, with this script beside it"
            raise RequestError(f"{source.name} starts a program whose configuration is another file: {hint}")
    text = _SAID.sub("", source.text)
    if source.suffix in SCRIPTS and (unset := _unset_program(source)):
        way = "the arguments of the script after --" if unset.isdecimal() else f"--set-var {unset}=..."
        raise RequestError(
            f"{source.name} starts ${unset}, which it does not set: give {way}, or import the file that it names"
        )
    if source.suffix in SCRIPTS and (other := _STARTED.findall(text) or _handed(text)):
        inside = ", ".join(dict.fromkeys(word.rpartition("/")[2] for word in other))[:120]
        hint = "import that (with --set-var NAME=VALUE for what this one sets, -- ARGUMENTS for its arguments)"
        raise RequestError(f"{source.name} has no arguments of a training program; it starts or reads {inside}: {hint}")
    names = ", ".join(item.name for item in FORMATS)
    raise RequestError(f"{source.name} looks like no format that forerun reads; name one with --format: {names}")
