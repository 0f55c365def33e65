"""Messages about invalid YAML, JSON or TOML, independent of the parser's version.

Messages are derived from the position of the error and the characters around it. The parsers' own messages differ
between versions and are never shown.
"""

import json
import re

from forerun.spaces.documents.values import MAX_DEPTH, TOO_DEEP
from forerun.spaces.escaping import quoted

UNREADABLE = "this is not valid YAML; look for a missing space after : or -, a missing quote, or wrong indentation"
_SHOWN = 40
_NEED_QUOTES = "@`%*&!|>"
_CLOSING = {"[": "]", "{": "}", '"': '"', "'": "'"}
_WORD = re.compile(r"[A-Za-z_]+")
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_TOML_PLACE = re.compile(r"line (\d+), column (\d+)")

Place = tuple[int, int]
"""Line and column, both from 0."""


def yaml_mistake(text: str, place: Place, start: Place | None = None) -> str:
    """Describe the mistake in a YAML text.

    Parameters
    ----------
    text
        The entire text.
    place
        Position at which the parser stopped.
    start
        Start of the list, mapping or text in which it stopped.
    """
    lines = text.split("\n")
    row = _line(lines, place)
    column = min(place[1], len(row))
    before = row[:column]
    if _flow_depth(lines, place) > MAX_DEPTH:
        return TOO_DEEP
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return "a tab cannot indent; use spaces"
    for mark in (_character(lines, place), _character(lines, start)):
        if mark and mark in _NEED_QUOTES:
            return f"a text that begins with {mark} needs quotes"
    opening = _character(lines, start)
    if opening == '"' and "\\" in row[max(column - 2, 0) : column + 1]:
        return "a text in double quotes has an unknown escape; write \\\\ for a backslash, or use single quotes"
    if start is not None and opening in _CLOSING:
        return f"{opening} of line {start[0] + 1} needs its {_CLOSING[opening]}, or a comma is missing before this"
    above = _line(lines, start) if start is not None and start[0] < place[0] else ""
    if above and above.lstrip().startswith("-") != row.lstrip().startswith("-"):
        return "entries of a list and keys of a mapping are mixed on one level"
    if row[column : column + 1] == ":":
        if place[0] and ":" not in lines[place[0] - 1]:
            return "the line above needs a key with ': '"
        if ":" in before:
            return f"a second ': ' in one line; put quotes around {quoted(row.split(':', 1)[1].strip(), most=_SHOWN)}"
        return "this line is indented further than its neighbours, and the key above has a value already"
    if row[column : column + 1] in ("]", "}"):
        return f"nothing opens this {row[column]}"
    if not before.strip(" -"):
        return "the indentation of this line fits no line above"
    return UNREADABLE


def json_mistake(text: str, position: int) -> str:
    """Describe the mistake in a JSON text whose parser stopped at ``position``."""
    before, rest = text[:position].rstrip(), text[position:].lstrip()
    here = text[position : position + 1]
    if not rest:
        return "the text ends inside a list, a mapping or a text"
    if here and here < " " and text.count('"', text.rfind("\n", 0, position) + 1, position) % 2:
        return "a text has no line break, tab or control character inside; write \\n for a line break"
    if rest[0] == "'":
        return "keys and texts need double quotes, not single ones"
    if rest[0] == "\\" or before[-1:] == "\\":
        return "a text has an unknown escape; write \\\\ for a backslash"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    if (before[-1:] == "," and rest[0] in "]}") or (rest[0] == "," and rest[1:].lstrip()[:1] in ("]", "}")):
        return "remove the comma before the closing bracket"
    if _is_json(before):
        return "one file is one document; remove what follows it"
    if rest[0] == '"' and not re.match(r'"[^"\n]*"', rest):
        return 'a text needs its closing "'
    word = _WORD.match(rest)
    if word is not None and before[-1:] in ("", ":", ",", "["):
        written = _CONSTANTS.get(word.group())
        return f"write {written}, not {word.group()}" if written else f"the text {quoted(word.group())} needs quotes"
    near = quoted(rest.split("\n", 1)[0], most=_SHOWN)
    if before[-1:] in (":", "["):
        return f"a value is missing before {near}"
    if before[-1:] == "{":
        return f"a key in double quotes is missing before {near}"
    return f"a comma, a colon, a quote or a bracket is missing before {near}"


def toml_mistake(text: str, report: str) -> str:
    """Describe the mistake in a TOML text; only the line is taken from the parser's ``report``."""
    place = _TOML_PLACE.search(report)
    lines = text.split("\n")
    number = min(int(place.group(1)), len(lines)) if place else len(lines)
    near = quoted(lines[number - 1].strip(), most=_SHOWN)
    return f"line {number}: {near} is not valid TOML; texts need quotes, and a key is given once"


def _line(lines: list[str], place: Place) -> str:
    return lines[place[0]] if place[0] < len(lines) else ""


def _character(lines: list[str], place: Place | None) -> str:
    return "" if place is None else _line(lines, place)[place[1] : place[1] + 1]


def _flow_depth(lines: list[str], place: Place) -> int:
    """Count the open brackets before ``place``, including those inside texts."""
    deepest = depth = 0
    for mark in re.findall(r"[\[\]{}]", "\n".join([*lines[: place[0]], _line(lines, place)[: place[1]]])):
        depth = depth + 1 if mark in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
