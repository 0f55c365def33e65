"""Commands that a launch script would start, without running it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forerun.search.formats.command_line import slurm_variables, split_again
from forerun.search.formats.shell.assignments import assign, declare, unset
from forerun.search.formats.shell.branches import follow_case, follow_if, follow_list, negate
from forerun.search.formats.shell.commands import define, follow_command, sbatch_words
from forerun.search.formats.shell.given import NOTHING, Given
from forerun.search.formats.shell.loops import follow_for, follow_while
from forerun.search.formats.shell.output import follow_pipeline, output
from forerun.search.formats.shell.reader import Follow, ScriptReader, StatementOutcome
from forerun.search.formats.shell.redirections import follow_redirected
from forerun.search.formats.shell.tree import PLACEHOLDER
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Commands of a script as words, its variables, its ``#SBATCH`` words, written files, and skipped parts."""

    commands: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str | Sequence[str]]
    sbatch: tuple[str, ...]
    files: Mapping[str, str]
    notes: tuple[str, ...]


def read_script(text: str, source: str, given: Given = NOTHING) -> Script:
    """Read a shell script, or a bare list of arguments, as started with the ``given`` arguments and environment.

    Conditions that compare texts and numbers of the script are decided; branches of other conditions are skipped, with
    a note.

    Raises
    ------
    RequestError
        Quotes or brackets do not close, or variables grow without end.
    """
    if "\0" in text:
        raise RequestError(f"{source} is not a text file (it has null bytes)")
    sbatch = sbatch_words(text)
    reader = ScriptReader(source, given, _STATEMENTS, slurm_variables(sbatch), output)
    try:
        reader.inside(text, source)
    except RecursionError:
        raise RequestError(f"{source} is nested deeper than any script") from None
    commands = tuple(filter(None, (tuple(split_again(command)) for command in reader.commands)))
    for mark in PLACEHOLDER.findall("\n".join(word for command in commands for word in command)):
        reader.note(f"{mark} is a placeholder of a template")
    return Script(
        commands=commands,
        variables=reader.variables.stated,
        sbatch=(*sbatch, *reader.sbatch),
        files=reader.files,
        notes=tuple(reader.notes),
    )


def _follow_inside(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow statements between brackets; ``(( ... ))`` is a test."""
    if node.children[0].type == "((":
        return _follow_test(reader, node)
    if node.type == "subshell":
        with reader.variables.restored():
            return reader.block(node.named_children)
    return reader.block(node.named_children)


def _follow_test(reader: ScriptReader, node: "Node") -> StatementOutcome:
    return StatementOutcome.of(reader.conditions.of_command(node))


_STATEMENTS: Mapping[str, Follow] = {
    "variable_assignment": assign,
    "declaration_command": declare,
    "unset_command": unset,
    "command": follow_command,
    "redirected_statement": follow_redirected,
    "test_command": _follow_test,
    "negated_command": negate,
    "list": follow_list,
    "if_statement": follow_if,
    "case_statement": follow_case,
    "for_statement": follow_for,
    "while_statement": follow_while,
    "c_style_for_statement": follow_while,
    "function_definition": define,
    "pipeline": follow_pipeline,
    **dict.fromkeys(("variable_assignments", "subshell", "compound_statement", "do_group"), _follow_inside),
}
