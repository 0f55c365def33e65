"""A shell script as a syntax tree, by tree-sitter's grammar of bash."""

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from tree_sitter import Node

_PLACEHOLDER = re.compile(r"(?<![<\w])<([A-Za-z][\w ,./:'-]*\w)>(?![\w&(])")
"""Placeholders of a template (``<YOUR DIRECTORY>``): to a shell, two redirections."""
PLACEHOLDER = re.compile(r"«[^«»]*»")
"""A placeholder after its replacement by one word."""
_OPENERS = {
    **{'"': '"', "'": "'", "`": "`", "(": ")", "$(": ")", "{": "}", "${": "}", "[": "]", "[[": "]]", "((": "))"},
    **{"if": "fi", "case": "esac", "while": "done", "for": "done", "until": "done", "do": "done"},
}
"""Opening words and brackets with their closing ones."""
_COMMENT = re.compile(r"`\s*#[^`\n]*`")
"""Comments between the words of a command (`` `# text` ``), in which the grammar loses the second backtick."""
_LONGEST_NUMBER = 18
MOST_NODES = 100_000
"""Most words, marks and statements of a script, a second of work; published scripts have a tenth."""
MOST_BYTES, MOST_BACKTICKS = 1 << 17, 1_000
"""Most bytes and backticks of a script. Unclosed substitutions need memory quadratic in their number, and the parser
cannot be interrupted meanwhile."""
LONGEST_PARSE_S = 2.0
"""Processor time for parsing a script, in s. A shell script of the largest size takes 0.1 s, other text superlinear
time."""
_CHUNK = 4096


def parse_shell(text: str, source: str, until_s: float | None = None) -> tuple["Node", list[str]]:
    """Parse a script.

    Parameters
    ----------
    text
        The script.
    source
        Its name, for messages.
    until_s
        Processor time of the thread at which parsing stops, in s (None: ``LONGEST_PARSE_S`` from now).

    Returns
    -------
    tuple
        The root of its tree, and a note for each part unknown to the grammar.

    Raises
    ------
    RequestError
        A quote, a bracket or a statement is never closed, or the script is too large or takes too long to parse.
    """
    notes: list[str] = []
    content = _without_placeholders(_COMMENT.sub("", text.replace("\r\n", "\n"))).encode()
    for count, most, unit in (
        (len(content), MOST_BYTES, "bytes"),
        (content.count(b"`"), MOST_BACKTICKS, "backticks"),
    ):
        if count > most:
            raise RequestError(f"{source} has more than {most:,} {unit}; launch scripts have fewer")
    root = _root(content, source, time.thread_time() + LONGEST_PARSE_S if until_s is None else until_s)
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


def _root(content: bytes, source: str, until_s: float) -> "Node":
    """Parse a script up to a processor time of the thread."""
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    try:
        return parser.parse(
            lambda offset, _: content[offset : offset + _CHUNK],
            progress_callback=lambda offset, has_error: time.thread_time() > until_s,
        ).root_node
    except ValueError:  # parsing was stopped
        raise RequestError(f"{source} takes too long to parse as a shell script; is it one?") from None


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
    """Iterate over the outermost nodes unknown to the grammar, and over missing ones."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            yield node
        elif node.has_error:
            waiting += reversed(node.children)
