"""Assignments of a script: ``A=1``, ``A+=(b c)``, ``A[2]=x``, ``export A``, ``unset A``."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forerun.search.formats.shell.reader import ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of
from forerun.search.formats.shell.variables import Value

if TYPE_CHECKING:
    from tree_sitter import Node

DECLARING = ("export", "local", "readonly", "declare", "typeset")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)


def assign(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow one assignment."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    assert target is not None
    variables, name = reader.variables, text_of(target).partition("[")[0]
    appends = any(child.type == "+=" for child in node.children)
    new: Value = (
        "" if value is None else reader.words.array(value) if value.type == "array" else reader.words.text(value)
    )
    old = variables.value(name) if appends else None
    if target.type == "subscript" and isinstance(new, str):
        _assign_element(reader, name, reader.words.fields(target.named_children[1:]), new)
    elif isinstance(new, list) and old is not None:
        variables.assign(name, [*([old] if isinstance(old, str) and old else old), *new])
    elif isinstance(new, str) and isinstance(old, list):
        variables.assign(name, [f"{old[0] if old else ''}{new}", *old[1:]])
    elif isinstance(new, str):
        before = f"${name}" if appends and name in variables.unknown else old or ""
        variables.assign(name, f"{before}{new}")
    else:
        variables.assign(name, new)
    return StatementOutcome.SUCCESS


def _assign_element(reader: ScriptReader, name: str, key: list[str], new: str) -> None:
    value, place = reader.variables.value(name), "".join(key)
    if isinstance(value, list) and place.isdecimal() and int(place) <= len(value):
        reader.variables.assign(name, [*value[: int(place)], new, *value[int(place) + 1 :]])
    else:
        reader.variables.assign(name, {**(value if isinstance(value, dict) else {}), place: new})


def declare(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow ``export`` and similar commands."""
    return declare_words(reader, node.children)


def declare_words(reader: ScriptReader, nodes: Sequence["Node"]) -> StatementOutcome:
    """Follow the words of ``export`` and similar commands, which are assignments."""
    word, *parts = nodes
    is_integer = any(re.fullmatch(r"-\w*i\w*", text_of(part)) for part in parts)
    for part in parts:
        name = text_of(part).partition("=")[0].partition("[")[0]
        if reader.local and text_of(word) != "export":
            reader.local[-1].setdefault(name, reader.variables.value(name))
        if part.type == "variable_assignment":
            assign(reader, part)
        elif match := _ASSIGNMENT.fullmatch(reader.words.text(part)):
            reader.variables.assign(match[1], match[2])
        value = reader.variables.value(name)
        if is_integer and isinstance(value, str) and value:
            number = reader.words.calculated(value)
            reader.variables.assign(name, value if number is None else str(number))
    return StatementOutcome.SUCCESS


def unset(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow ``unset``."""
    for name in reader.words.fields(node.named_children):
        reader.variables.unset(name)
    return StatementOutcome.SUCCESS
