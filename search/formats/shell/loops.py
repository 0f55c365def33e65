"""Loops of a script: over words and arguments, and with a condition; each ends after a bounded number of turns."""

from typing import TYPE_CHECKING

from forerun.search.formats.shell.reader import Leave, ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of
from forerun.search.formats.shell.words import UNKNOWN

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_TURNS = 1000
_OPTIONS_OF_A_RUN = 3
"""Number of options from which a command counts as a run; a launch has one run."""


def follow_for(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow a loop over words; over the user's value, if given."""
    variable, *values = [child for child in node.named_children if child.type not in ("comment", "do_group")]
    over = any(child.type == "in" for child in node.children)
    words = reader.words.fields(values) if over else [*(reader.variables.arguments or ())]
    name = text_of(variable)
    turns = _Turns(reader, node)
    if any(UNKNOWN.search(word) for word in words):
        reader.left_out("loop over", values or [node])
        with reader.variables.restored():  # runs on several hosts are one run
            reader.variables.forget(name)
            turns.follow()
        return StatementOutcome.SUCCESS
    for word in words[: 1 if reader.variables.is_given(name) else _MOST_TURNS]:
        reader.variables.assign(name, word)
        if not turns.follow():
            break
    else:
        if len(words) > _MOST_TURNS and not reader.variables.is_given(name):
            turns.cut_short()
    turns.choose(f"{name} = {', '.join(words)}")
    return StatementOutcome.SUCCESS


def follow_while(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow a loop with a condition, while the condition is decidable and variables change."""
    conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
    counts = node.type == "c_style_for_statement"
    for child in node.children_by_field_name("initializer"):
        reader.words.number(child)
    turns = _Turns(reader, node)
    for _ in range(_MOST_TURNS):
        before = reader.variables.state
        truth = _counted(reader, conditions) if counts else reader.truth(conditions)
        if truth is None:
            reader.left_out("loop while", conditions or [node])
        if truth is None or truth == (node.children[0].type == "until") or not turns.follow():
            break
        for child in node.children_by_field_name("update"):
            reader.words.number(child)
        if reader.variables.state == before:
            break
    else:
        turns.cut_short()
    turns.choose("its turns")
    return StatementOutcome.SUCCESS


def _counted(reader: ScriptReader, conditions: list["Node"]) -> bool | None:
    numbers = [reader.words.number(child) for child in conditions]
    return None if None in numbers or not numbers else numbers[-1] != 0


class _Turns:
    """Turns of one loop; the first of several started runs counts."""

    def __init__(self, reader: ScriptReader, node: "Node") -> None:
        self._reader = reader
        self._node = node
        self._body = node.child_by_field_name("body")
        self._first = len(reader.commands)
        self._runs: list[list[tuple[str, ...]]] = []

    def follow(self) -> bool:
        """Follow one turn and return whether the loop continues."""
        start = len(self._reader.commands)
        goes_on = True
        try:
            self._reader.block([] if self._body is None else [self._body])
        except Leave as leave:
            if leave.word not in ("break", "continue"):
                raise
            goes_on = leave.word == "continue"
        started = [
            command
            for command in self._reader.commands[start:]
            if sum(word.startswith("--") for word in command) >= _OPTIONS_OF_A_RUN
        ]
        if started and started not in self._runs:
            self._runs.append(started)
        return goes_on

    def cut_short(self) -> None:
        """Add a note on turns that are not followed."""
        self._reader.note(f"the loop has not ended after {_MOST_TURNS:,} turns; further ones are left out", self._node)

    def choose(self, over: str) -> None:
        """Drop the runs of later turns, with a note."""
        if len(self._runs) < 2:
            return
        self._reader.note(f"the loop over {over[:80]} starts several runs; the first one is read", self._node)
        later = [command for run in self._runs[1:] for command in run]
        kept = [command for command in self._reader.commands[self._first :] if command not in later]
        self._reader.commands[self._first :] = kept
