"""Output of command substitutions, where functions of the script and the shell's own commands print it."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forerun.search.formats.shell.reader import Leave, ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of
from forerun.search.formats.shell.words import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node

_WHOLE = re.compile(r"(?!.*\*\*)[\d\s()*/%+-]{1,200}", re.DOTALL)
"""Arithmetic of whole numbers that means the same to ``expr``, ``bc`` and the shell."""


def output(reader: ScriptReader, node: "Node") -> str | None:
    """Return the output of a substitution; None where a program, or an open condition, has a part in it.

    A script that the substitution submits is followed: ``JOB=$(sbatch --parsable <<EOF ...)``.
    """
    outer = reader.printed, reader.notes, reader.undecided
    first = len(reader.commands)
    reader.printed, reader.notes, reader.undecided = [], {}, False
    with reader.variables.restored():
        try:
            reader.block(node.named_children)
        except Leave:
            pass
    printed, undecided = reader.printed, reader.undecided or bool(reader.notes)
    reader.printed, reader.notes, reader.undecided = outer
    started = reader.commands[first:]
    if not any(command[0] == "sbatch" for command in started):
        del reader.commands[first:]
    if started or undecided or None in printed:
        return None
    text = _joined(printed).rstrip("\n")
    return None if UNKNOWN.search(text) else text


def follow_pipeline(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow the commands of a pipeline; ``bc`` at its end calculates."""
    *before, last = node.named_children
    if reader.printed is None or text_of(last).strip() != "bc":
        return reader.block(node.named_children)
    outer, reader.printed = reader.printed, []
    outcome = reader.block(before)
    outer.append(None if None in reader.printed else _calculated(reader, _joined(reader.printed)))
    reader.printed = outer
    return outcome


def _joined(printed: list[str | None]) -> str:
    return "".join(filter(None, printed))


def _calculated(reader: ScriptReader, expression: str) -> str | None:
    value = reader.words.calculated(expression) if _WHOLE.fullmatch(expression) else None
    return None if value is None else f"{value}\n"


def _echo(reader: ScriptReader, words: list[str]) -> str:
    options = next((at for at, word in enumerate(words) if not re.fullmatch(r"-[neE]+", word)), len(words))
    return " ".join(words[options:]) + ("" if any("n" in word for word in words[:options]) else "\n")


def _printf(reader: ScriptReader, words: list[str]) -> str | None:
    first, *parts = re.split("%[sd]", words[0].replace("\\n", "\n")) if words else [""]
    if len(parts) != len(words[1:]) or any("%" in part for part in (first, *parts)):
        return None
    return first + "".join(value + part for value, part in zip(words[1:], parts, strict=True))


PRINTERS: Mapping[str, Callable[[ScriptReader, list[str]], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "expr": lambda reader, words: _calculated(reader, " ".join(words)),
    **dict.fromkeys(("cat", "tee"), lambda reader, words: None),
}
"""Commands that print: what, None where it is in a file."""
