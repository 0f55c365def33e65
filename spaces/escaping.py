"""Escapes for names, keys and values from foreign files, so that printing them has no effect.

Control characters move a terminal's cursor, set its title or answer in the user's name; bidirectional marks change the
displayed order of text (CVE-2021-42574); a cell that starts with ``=`` is a formula in a spreadsheet (CWE-1236).
"""

import json
import re

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 except tab and new line, DEL and C1."""
UNSEEN = "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
"""Bidirectional and joining marks, line separators, surrogate halves, tags."""

_NOT_SHOWN = re.compile(f"[{CONTROL}{UNSEEN}]")
_BREAKS = re.compile("[\t\n]")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?[0-9.][0-9.eE+\-]*%?")
_URL = re.compile(r"(?i)([a-z][a-z0-9+.-]{0,30}://)([^\s'\"<>]*)")
MOST_SHOWN = 80
"""Characters of a key, a value or a name in a message."""


def harmful(text: str) -> str | None:
    """Return the first character of a text that must be escaped, None if there is none."""
    match = _NOT_SHOWN.search(text)
    return match[0] if match else None


def visible(text: str) -> str:
    """Return a text of several lines with harmful characters escaped.

    >>> visible("\\x1b[2Jname")
    '\\\\x1b[2Jname'
    """
    return _NOT_SHOWN.sub(_written_out, text)


def shown(value: object, *, most: int = MOST_SHOWN) -> str:
    """Return a name or a value on one line, with harmful characters escaped, at most ``most`` characters of it."""
    text = str(value)
    if len(text) > most:
        text = text[: most - 1] + "…"
    return visible(_BREAKS.sub(_written_out, text))


def quoted(value: object, *, most: int = MOST_SHOWN) -> str:
    """Return the ``repr`` of a value, with harmful characters escaped, at most ``most`` characters of it."""
    if isinstance(value, str | bytes) and len(value) > most:
        value = value[:most]
    return shown(repr(value), most=most)


def without_secrets(text: str) -> str:
    """Return a text with URLs reduced to scheme and host, since users, paths and queries may contain secrets.

    >>> without_secrets("mysql://me:secret@host:80/db?password=x and sqlite:///studies.db")
    'mysql://host:80/… and sqlite:///…'
    """
    return _URL.sub(lambda match: match[1] + _host_of(match[2]), text)


def _host_of(rest: str) -> str:
    """Return the host from the text after a scheme, with a mark for omitted parts."""
    # Where a password may contain the characters that end a host, no host is certain.
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if rest.count("@") > authority.count("@") or authority.count("@") > 1:
        return "…"
    host = authority.rpartition("@")[2]
    return host if rest in (host, f"{host}/") else f"{host}/…"


def visible_json(text: str) -> str:
    """Return equal JSON text with every harmful character as a JSON escape."""
    return _NOT_SHOWN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def cell(text: str) -> str:
    """Return a text as the cell of a spreadsheet: a formula gets a leading apostrophe.

    >>> cell("=1+1"), cell("-3.5")
    ("'=1+1", '-3.5')
    """
    text = visible(text)
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
