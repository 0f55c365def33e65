"""A shell script as a syntax tree, by tree-sitter's grammar of bash."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from tree_sitter import Node

_PLACEHOLDER = re.compile(r"(?<![<\w])<([A-Za-z][\w ,./:'-]*\w)>(?![\w&(])")
"""Placeholders of a template (``<YOUR DIRECTORY>``): to a shell, two redirections."""
PLACEHOLDER = re.compile(r"«[^«»]*»")
"""Words that are read in their places."""
_OPENERS = {
    **{'"': '"', "'": "'", "`": "`", "(": ")", "$(": ")", "{": "}", "${": "}", "[": "]", "[[": "]]", "((": "))"},
    **{"if": "fi", "case": "esac", "while": "done", "for": "done", "until": "done", "do": "done"},
}
"""Opening words and brackets with those that close them."""
_LONGEST_NUMBER = 18
MOST_NODES = 100_000
"""Words, marks and statements of a script, which take a second to follow; published ones have a tenth."""


def parse_shell(text: str, source: str) -> tuple["Node", list[str]]:
    """Parse a script.

    Returns
    -------
    tuple
        The root of its tree, and a note for each part that the grammar does not have.

    Raises
    ------
    RequestError
        If a quote, a bracket or a statement is never closed, or the script has too many words and marks.
    """
    import tree_sitter
    import tree_sitter_bash

    notes: list[str] = []
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    root = parser.parse(_without_placeholders(text.replace("\r\n", "\n")).encode()).root_node
    if root.descendant_count > MOST_NODES:
        raise RequestError(f"{source} has more than {MOST_NODES:,} words and marks of a shell")
    for node in _errors(root):
        line = node.start_point.row + 1
        opener = next((child.type for child in node.children if child.type in _OPENERS), text_of(node).strip()[:1])
        at_end = node.end_byte >= root.end_byte - 1
        if node.is_missing and node.type in _OPENERS.values():
            raise RequestError(f"{source}, line {line}: {node.type} is missing: something is never closed")
        if at_end and opener in _OPENERS:
            raise RequestError(f"{source}, line {line}: {opener} is never closed; is the file truncated?")
        shown = " ".join(text_of(node).split())[:60]
        notes.append(f"line {line}: {shown!r} is not understood; it is left out")
    return root, notes


def text_of(node: "Node") -> str:
    """Return the text of a node as written."""
    return (node.text or b"").decode(errors="replace")


def line_of(node: "Node") -> int:
    """Return the line on which a node begins, from 1."""
    return node.start_point.row + 1


def whole_number(text: str) -> int | None:
    """Return a decimal number of at most 18 digits; None for any other text."""
    digits = text.strip().removeprefix("-")
    small = digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST_NUMBER
    return int(text) if small else None


def _without_placeholders(text: str) -> str:
    """Make one word of each placeholder of a template."""
    return _PLACEHOLDER.sub(lambda match: "«" + "_".join(re.findall(r"[\w./:-]+", match[1])) + "»", text)


def _errors(root: "Node") -> Iterator["Node"]:
    """Iterate over the outermost nodes that the grammar does not have, and over those that are missing."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            yield node
        elif node.has_error:
            waiting += reversed(node.children)
