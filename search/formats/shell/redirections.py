"""Redirections of a script: here-documents, which it writes to files, submits or reads."""

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from forerun.search.formats.shell.commands import SHELLS, follow_command, sbatch_words
from forerun.search.formats.shell.given import SCRIPTS
from forerun.search.formats.shell.reader import ScriptReader, StatementOutcome
from forerun.search.formats.shell.tree import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_FROM_OUTPUT = re.compile(r"1?>|&>")


def follow_redirected(reader: ScriptReader, node: "Node") -> StatementOutcome:
    """Follow a statement with redirections: a here-document is a written file or a script."""
    outer = reader.printed
    if any(child.type == "file_redirect" and _FROM_OUTPUT.match(text_of(child)) for child in node.children):
        reader.printed = None  # its output is redirected
    outcome = _follow_body(reader, node)
    reader.printed = outer
    return outcome


def _follow_body(reader: ScriptReader, node: "Node") -> StatementOutcome:
    body = node.child_by_field_name("body")
    for document in (child for child in node.children if child.type == "heredoc_redirect"):
        if body is not None and reader.printed is not None and text_of(body) == "cat":
            reader.printed.append(_here_text(reader, document))
            return StatementOutcome.SUCCESS
        _here_document(reader, document, node)
    if body is None or body.type != "command":
        return StatementOutcome.SUCCESS if body is None else reader.run(body)
    if text_of(body.children[0]) == "read" and (text := _read_text(reader, node)) is not None:
        reader.variables.assign(reader.words.fields(body.named_children)[-1], text)
        return StatementOutcome.SUCCESS
    files = [child.children_by_field_name("destination") for child in node.children if child.type == "file_redirect"]
    return follow_command(reader, body, [word for file in files for word in file[1:]])  # words after `> file`


def _read_text(reader: ScriptReader, statement: "Node") -> str | None:
    """Return the here-document that ``read -d ''`` assigns to a variable; None for a ``read`` of lines."""
    document = next((child for child in statement.children if child.type == "heredoc_redirect"), None)
    return None if document is None or not re.search(r"\s-r?d\b", text_of(statement)) else _here_text(reader, document)


def _here_text(reader: ScriptReader, document: "Node") -> str | None:
    inside = next((child for child in document.children if child.type == "heredoc_body"), None)
    start = next((child for child in document.children if child.type == "heredoc_start"), None)
    if inside is None or start is None:
        return None
    text = text_of(inside) if text_of(start)[:1] in "'\"\\" else reader.words.body(inside)
    return re.sub(r"^\t+", "", text, flags=re.MULTILINE) if document.children[0].type == "<<-" else text


def _here_document(reader: ScriptReader, document: "Node", statement: "Node") -> None:
    text = _here_text(reader, document)
    if text is None:
        return
    parts = [*statement.children, *document.children]
    files = [child.children_by_field_name("destination")[:1] for child in parts if child.type == "file_redirect"]
    names = [PurePath(name).name for file in files for name in reader.words.fields(file)]
    if written := [name for name in names if name.endswith(SCRIPTS)]:
        reader.scripts.setdefault(written[0], text)
        return
    commands = [child for child in parts if child.type in ("command", "pipeline")]
    if {word for command in commands for word in text_of(command).split()} & {*SHELLS}:
        reader.sbatch += sbatch_words(text)
        reader.inside(text, reader.source)
    elif names:
        reader.files.setdefault(names[0], text)
