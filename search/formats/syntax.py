"""Readers of syntaxes: settings of a file by dotted name."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.formats.command_line import options, run_of, runs_among, split_command
from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.settings import flatten
from forerun.search.formats.shell import SCRIPTS
from forerun.spaces.documents import parse_document
from forerun.spaces.errors import RequestError

_OVERRIDE = re.compile(r"(?:--|[+~]{1,2})?([A-Za-z_]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
"""An override on a command line, of Hydra, OmegaConf and MaxText."""


def document(source: LaunchFile) -> Mapping[str, Any]:
    """Return a YAML or JSON file."""
    return flatten(source.top_level())


def documents(source: LaunchFile) -> Mapping[str, Any]:
    """Return the YAML or JSON files given together for a run; dashes in names count as underscores.

    Raises
    ------
    RequestError
        A file cannot be read, or two state the same setting differently.
    """
    documents: dict[str, Any] = {}
    for name, text in {source.name: source.text, **source.others}.items():
        part = flatten(LaunchFile(name=name, text=text, given=source.given).top_level())
        for key, value in part.items():
            key = key.replace("-", "_")
            if documents.setdefault(key, value) != value:
                raise RequestError(f"{key} is {documents[key]} in one file and {value} in {name}")
    return documents


def is_yaml(source: LaunchFile) -> bool:
    """Whether a file name ends in a YAML suffix."""
    return source.suffix in (".yaml", ".yml")


def is_script(source: LaunchFile) -> bool:
    """Whether a file name ends in a shell suffix."""
    return source.suffix in SCRIPTS


def arguments(source: LaunchFile, name: str | None = None) -> Mapping[str, Any]:
    """Return the ``--name value`` arguments of the command with the most arguments in the launch script ``name``.

    Without ``name`` the file itself is read. Names have underscores, and the one dash of short flags (``-b 8``,
    ``-tp 4``) stays.
    """
    best: dict[str, Any] = {}
    for command in source.script(name).commands:
        after = split_command(command)[1] or command
        arguments: dict[str, Any] = dict(options(after, kebab=False)[0]) | _short(after)
        best = arguments if len(arguments) > len(best) else best
    return best


def script_notes(source: LaunchFile) -> list[str]:
    """Return the notes from reading a script; none for other files."""
    if not is_script(source):
        return []
    script = source.script()
    run, runs = run_of(script.commands), runs_among(script.commands)
    several = f"the script starts {len(runs)} runs; the one with the most arguments is read"
    return [*script.notes, *options(split_command(run)[1], kebab=False)[1], *([several] if len(runs) > 1 else [])]


def _short(words: Sequence[str]) -> dict[str, Any]:
    """Return flags of one or two letters with their values."""
    flags: dict[str, Any] = {}
    for at, word in enumerate(words):
        if re.fullmatch(r"-[A-Za-z]{1,2}", word):
            following = words[at + 1] if at + 1 < len(words) else "-"
            flags[word] = True if re.match(r"-[A-Za-z-]", following) else following
    return flags


def overrides(source: LaunchFile, name: str | None = None) -> Mapping[str, Any]:
    """Return the ``name.of.setting=value`` words of the launch script ``name``, else of the file itself.

    Values are YAML, as in Hydra.

    Raises
    ------
    RequestError
        The script cannot be read.
    """
    overrides: dict[str, Any] = {}
    for command in source.script(name).commands:
        for word in command:
            if match := _OVERRIDE.fullmatch(word):
                overrides[match[1]] = plain(match[2])
    return overrides


def dotted_arguments(source: LaunchFile) -> Mapping[str, Any]:
    """Return the ``--section.name value`` arguments of commands in the given scripts, which override the file."""
    stated: dict[str, Any] = {}
    for command in (command for name in source.beside for command in source.script(name).commands):
        stated |= {name: value for name, value in options(command, kebab=False)[0].items() if "." in name}
    return stated


def plain(text: str) -> Any:
    """Return the YAML value of a word, or the word itself."""
    if re.search(r"[$`{}]", text) or len(text) > 2000:
        return text
    try:
        return parse_document(f"x: {text}", source="word.yaml").data["x"]
    except (RequestError, TypeError, KeyError):
        return text
