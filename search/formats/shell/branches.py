"""Branches of a script: ``&&`` and ``||``, ``if``, ``case``."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from forerun.search.formats.shell.reader import ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_DECIDING = re.compile(r"\b[A-Za-z_]\w*\+?=|--\w")
"""Statements that may affect a run: assignments and options."""


def negate(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow ``! a``."""
    swapped = {StatementOutcome.SUCCESS: StatementOutcome.FAILURE, StatementOutcome.FAILURE: StatementOutcome.SUCCESS}
    return swapped.get(reader.run(node.named_children[0]), StatementOutcome.UNKNOWN)


def follow_list(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow ``a && b`` and ``a || b``: b only if the result of a requires it."""
    left, right = node.named_children[0], node.named_children[-1]
    joint = next(child.type for child in node.children if child.type in ("&&", "||"))
    outcome = reader.run(left)
    if outcome is StatementOutcome.UNKNOWN:
        if _DECIDING.search(text_of(right)):
            reader.note(f"a condition cannot be decided; what follows {joint} is left out", node)
        return outcome
    if (outcome is not StatementOutcome.FAILURE) == (joint == "&&"):
        return reader.run(right)
    _branch(reader, [right], taken=False)
    return outcome


def follow_if(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow the branch of an ``if`` with a true condition; none if undecidable."""
    taken = False
    for conditions, body in _branches(node):
        truth = False if taken else True if conditions is None else reader.truth(conditions)
        if truth is None:
            reader.left_out("condition", conditions or [node])
            break
        taken |= truth
        _branch(reader, body, taken=truth)
    return StatementOutcome.SUCCESS


def follow_case(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow the first branch of a ``case`` with a matching pattern; none if undecidable."""
    value = node.child_by_field_name("value")
    assert value is not None
    text, taken = reader.words.text(value), False
    for item in (child for child in node.named_children if child.type == "case_item"):
        patterns = item.children_by_field_name("value")
        matches = [reader.conditions.matches(text, reader.words.pattern(pattern)) for pattern in patterns]
        truth = not taken and (True in matches or (None if None in matches else False))
        if truth is None:
            reader.left_out("case of", [value])
            break
        taken |= truth
        _branch(reader, [child for child in item.named_children if child not in patterns], taken=truth)
    return StatementOutcome.SUCCESS


def _branch(reader: ScriptReader, nodes: Sequence["Node"], *, taken: bool) -> None:
    """Follow a branch; variables assigned only in other branches are empty, as in a shell."""
    if taken:
        reader.block(nodes)
        return
    for name in _assigned(nodes):
        if reader.variables.is_unset(name):
            reader.variables.assign(name, "")


def _branches(node: "Node") -> Iterator[tuple[list["Node"] | None, list["Node"]]]:
    """Iterate over the branches of an ``if``: conditions (None: else) and statements."""
    clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
    for clause in [node, *clauses]:
        conditions: list[Node] = []
        statements: list[Node] = []
        inside = clause.type == "else_clause"
        for child in clause.children[1:]:
            if child.type == "then":
                inside = True
            elif child.is_named and child not in clauses and child.type != "comment":
                (statements if inside else conditions).append(child)
        yield None if clause.type == "else_clause" else conditions, statements


def _assigned(nodes: Sequence["Node"]) -> Iterator[str]:
    """Iterate over the names that statements assign."""
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        if node.type == "variable_assignment":
            yield text_of(node.children[0]).partition("[")[0]
        waiting += node.named_children
