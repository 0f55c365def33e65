"""Output of command substitutions, printed by functions of the script and shell built-ins."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forerun.search.formats.shell.reader import Leave, ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of, whole_number
from forerun.search.formats.shell.words import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node

_WHOLE = re.compile(r"(?!.*\*\*)[\d\s()*/%+-]{1,200}", re.DOTALL)
"""Arithmetic of whole numbers with equal meaning in ``expr``, ``bc`` and the shell."""
_MOST_NUMBERS = 10_000


def output(reader: ScriptReader, node: "Node") -> str | None:
    """Return the output of a substitution; None if it depends on a program or an undecidable condition.

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
    values = words[1:]
    if any("%" in part for part in (first, *parts)) or (len(values) % len(parts) if parts else values):
        return None
    turns = [values[at : at + len(parts)] for at in range(0, len(values), len(parts) or 1)] or [[]]
    return "".join(first + "".join(map("".join, zip(turn, parts, strict=True))) for turn in turns)


def _seq(reader: ScriptReader, words: list[str]) -> str | None:
    numbers = [whole_number(word) for word in words]
    if None in numbers or not 1 <= len(numbers) <= 3:
        return None
    first, step, last = (1, 1, *numbers)[-3:] if len(numbers) < 2 else (numbers[0], *(1, *numbers[1:])[-2:])
    assert first is not None and step is not None and last is not None
    turns = range(first, last + (1 if step > 0 else -1), step) if step else ()
    return None if len(turns) > _MOST_NUMBERS else "".join(f"{number}\n" for number in turns)


PRINTERS: Mapping[str, Callable[[ScriptReader, list[str]], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "seq": _seq,
    "expr": lambda reader, words: _calculated(reader, " ".join(words)),
    **dict.fromkeys(("cat", "tee"), lambda reader, words: None),
}
"""Printing commands -> their text, None for the content of a file."""
