"""Commands of a script: shell built-ins, functions, scripts and programs."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from forerun.search.formats.shell.assignments import DECLARING, assign, declare_words
from forerun.search.formats.shell.output import PRINTERS
from forerun.search.formats.shell.reader import Leave, ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of
from forerun.search.formats.shell.words import UNKNOWN
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from tree_sitter import Node

SHELLS = ("bash", "sh", "sbatch", "zsh")
_DEEPEST_CALL = 16
_SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_NO_WORDS = ("variable_assignment", "herestring_redirect", "file_redirect", "comment")


def follow_command(reader: ScriptReader, node: "Node", more: Sequence["Node"] = ()) -> StatementOutcome:
    """Follow a command: leading assignments, then the command by its first word; ``more`` are further words."""
    for child in node.named_children:
        if child.type == "variable_assignment":
            assign(reader, child)
    parts = [child for child in node.named_children if child.type not in _NO_WORDS]
    if parts and text_of(parts[0]) in DECLARING:  # a command on the line after assignments, joined by the grammar
        return declare_words(reader, parts)
    reader.count_words(len(parts))
    words = reader.words.fields([*parts, *more])
    reader.count_words(max(len(words) - len(parts), 0))
    name, arguments = (words[0], words[1:]) if words else (":", [])
    if name in reader.functions:
        return _call(reader, name, arguments)
    if name == "exit" and arguments[:1] not in ([], ["0"]) and not reader.variables.arguments:
        reader.note("the script ends here as it is started; what follows is read all the same", node)
        return StatementOutcome.SUCCESS
    string = next((child for child in node.named_children if child.type == "herestring_redirect"), None)
    if name == "read" and string is not None:
        return _read_string(reader, node, words, reader.words.text(string.named_children[0]))
    if name in _OF_THE_SHELL:
        return _OF_THE_SHELL[name](reader, words)
    if name not in PRINTERS:
        _start(reader, tuple(words))
    elif reader.printed is not None:
        reader.printed.append(PRINTERS[name](reader, arguments))
    return StatementOutcome.STARTED


def _test(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    return StatementOutcome.of(reader.conditions.of_words(words[1 : -1 if words[0] == "[" else None]))


def _let(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    for word in words[1:]:
        reader.inside(f"(( {word} ))", reader.source)
    return StatementOutcome.SUCCESS


def _set(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    if "--" in words:
        reader.variables.arguments = words[words.index("--") + 1 :]
    return StatementOutcome.SUCCESS


def _shift(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    reader.variables.shift(int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1)
    return StatementOutcome.SUCCESS


def _read(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    for name in words[1:]:
        reader.variables.forget(name)
    return StatementOutcome.UNKNOWN


def _read_string(reader: ScriptReader, node: "Node", words: list[str], text: str) -> StatementOutcome:
    """Follow ``read A B <<< "text"``, with the separators of an ``IFS`` before it."""
    names = [word for word in words[1:] if not word.startswith("-")] or ["REPLY"]
    if UNKNOWN.search(text):
        return _read(reader, ["read", *names])
    assignments = (child for child in node.named_children if child.type == "variable_assignment")
    separators = next(
        (reader.variables.values.get("IFS") for child in assignments if text_of(child).startswith("IFS=")), None
    )
    pattern = f"[{re.escape(separators)}]" if separators and isinstance(separators, str) else r"\s+"
    line = next(iter(text.strip().splitlines()), "")
    if any(re.fullmatch(r"-\w*a", word) for word in words):
        reader.variables.assign(names[0], re.split(pattern, line))
        return StatementOutcome.SUCCESS
    parts = re.split(pattern, line, maxsplit=len(names) - 1)
    for name, part in itertools.zip_longest(names, parts, fillvalue=""):
        reader.variables.assign(name, part)
    return StatementOutcome.SUCCESS


def _leave(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    raise Leave(words[0])


def _eval(reader: ScriptReader, words: list[str]) -> StatementOutcome:
    reader.inside(" ".join(words[1:]), reader.source)
    return StatementOutcome.STARTED


_OF_THE_SHELL: Mapping[str, Callable[[ScriptReader, list[str]], StatementOutcome]] = {
    **dict.fromkeys((":", "true"), lambda reader, words: StatementOutcome.SUCCESS),
    "false": lambda reader, words: StatementOutcome.FAILURE,
    **dict.fromkeys(("test", "["), _test),
    "let": _let,
    "set": _set,
    "shift": _shift,
    **dict.fromkeys(("read", "mapfile", "readarray"), _read),
    "getopts": lambda reader, words: StatementOutcome.of(None if reader.variables.arguments else False),
    **dict.fromkeys(("break", "continue", "return", "exit"), _leave),
    "eval": _eval,
}


def _start(reader: ScriptReader, words: tuple[str, ...]) -> None:
    """Store the words of a program; follow a script passed to a shell, by name or as a word."""
    at = next((at for at, word in enumerate(words) if word in (*SHELLS, "source", ".")), len(words))
    rest = words[at + 1 :]
    flag = next((place for place, word in enumerate(rest[:2]) if re.fullmatch(r"-\w*c", word)), None)
    if flag is not None and flag + 1 < len(rest):
        reader.commands.append(words[:at] or ("bash",))
        _follow_text(reader, rest[flag + 1], reader.source, rest[flag + 3 :])
        return
    reader.commands.append(words)
    name = PurePath(next((word for word in rest if not word.startswith("-")), "")).name
    if (text := reader.scripts.get(name)) is not None:
        _follow_text(reader, text, name, rest[1:])


def _follow_text(reader: ScriptReader, text: str, source: str, arguments: Sequence[str]) -> None:
    """Follow the text of a word or of another script, with its own arguments, if any."""
    variables = reader.variables
    outer, outer_source = variables.arguments, variables.values["BASH_SOURCE"]
    variables.arguments = [*arguments] or outer
    variables.values["BASH_SOURCE"] = [source]
    reader.inside(text, source)
    variables.arguments, variables.values["BASH_SOURCE"] = outer, outer_source


def _call(reader: ScriptReader, name: str, arguments: list[str]) -> StatementOutcome:
    """Follow a function."""
    if len(reader.local) >= _DEEPEST_CALL:
        raise RequestError(f"{reader.source}: functions call each other more than {_DEEPEST_CALL} deep")
    outer, reader.variables.arguments = reader.variables.arguments, arguments
    reader.local.append({})
    try:
        return reader.run(reader.functions[name])
    except Leave as leave:
        if leave.word != "return":
            raise
        return StatementOutcome.UNKNOWN
    finally:
        reader.variables.arguments = outer
        for variable, value in reader.local.pop().items():
            reader.variables.assign(variable, "" if value is None else value)


def sbatch_words(text: str) -> list[str]:
    """Return the words of ``#SBATCH`` lines."""
    return [word for match in _SBATCH.finditer(text) for word in match[1].split()]


def define(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Store a function."""
    reader.functions[text_of(node.named_children[0])] = node.named_children[-1]
    return StatementOutcome.SUCCESS
