"""YAML as plain data, assembled from parser events so that limits apply before anything is built."""

import re
from typing import Any

import yaml

from forerun.spaces.documents.syntax import UNREADABLE, yaml_mistake
from forerun.spaces.documents.values import (
    MAX_DEPTH,
    MOST_DIGITS,
    TOO_DEEP,
    KeyPath,
    check_float,
    check_int,
    check_text,
)
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted, shown

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class KeyTwiceError(RequestError):
    """A mapping has a duplicate key."""


def read_yaml(text: str, source: str, *, most: int, lines: dict[KeyPath, int] | None = None) -> Any:
    """Return the data of a YAML text of at most ``most`` keys and values.

    ``lines`` receives the line of each key path.

    Raises:
        RequestError: syntax errors with line and column, and errors of ``parse_document``.
    """
    return _Reader(source, most, lines).read(text)


class _Reader:
    """Builder of data with an explicit stack.

    ``_open``: container being filled; ``_outer``: containers around it; ``_steps``: index of each in the one around it;
    ``_key``: key without its value yet.
    """

    def __init__(self, source: str, most: int, lines: dict[KeyPath, int] | None) -> None:
        self._source, self._most, self._lines = source, most, lines
        self._open: dict[str, Any] | list[Any] | None = None
        self._outer: list[dict[str, Any] | list[Any] | None] = []
        self._steps: list[str | int | None] = []
        self._key: str | None = None
        self._count = 0
        self._root: Any = None

    def read(self, text: str) -> Any:
        """Return the data."""
        documents = 0
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                kind = type(event)
                if kind is yaml.ScalarEvent or isinstance(event, yaml.NodeEvent):
                    self._node(event, kind)
                elif isinstance(event, yaml.CollectionEndEvent):
                    self._open = self._outer.pop()
                    self._steps.pop()
                elif kind is yaml.DocumentStartEvent:
                    documents += 1
                    if documents > 1:
                        raise RequestError("one file is one document; remove what follows ---")
        except RequestError as error:
            mark: Any = event.start_mark
            place = f"{self._source}, line {mark.line + 1}, column {mark.column + 1}"
            raise type(error)(f"{place}: {error}") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            if mark is None:
                raise RequestError(f"{self._source}: {UNREADABLE}") from None
            opened = error.context_mark
            start = (opened.line, opened.column) if opened else None
            message = yaml_mistake(text, (mark.line, mark.column), start)
            raise RequestError(f"{self._source}, line {mark.line + 1}, column {mark.column + 1}: {message}") from None
        except yaml.YAMLError as error:
            code = getattr(error, "character", None)
            reason = f"the character U+{code:04X} stands in it" if isinstance(code, int) else UNREADABLE
            raise RequestError(f"{self._source} is not YAML: {reason}") from None
        return self._root

    def _node(self, event: Any, kind: type) -> None:
        if kind is yaml.AliasEvent:
            raise RequestError(f"aliases are not accepted; write the value of *{shown(event.anchor)} out")
        if event.tag is not None:
            raise RequestError(f"tags are not accepted; remove {shown(event.tag.replace('tag:yaml.org,2002:', '!!'))}")
        self._count += 1
        if self._count > self._most:
            raise RequestError(f"a document has at most {self._most:,} values")
        if kind is yaml.ScalarEvent:
            if self._key is None and isinstance(self._open, dict):
                self._open_key(event, self._open)
            else:
                self._place(event, _scalar(event))
            return
        container: dict[str, Any] | list[Any] = {} if kind is yaml.MappingStartEvent else []
        if self._key is None and isinstance(self._open, dict):
            raise RequestError("keys are texts, not lists or mappings")
        step = self._place(event, container)
        if len(self._outer) >= MAX_DEPTH:
            raise RequestError(TOO_DEEP)
        self._outer.append(self._open)
        self._steps.append(step)
        self._open = container

    def _open_key(self, event: Any, container: dict[str, Any]) -> None:
        key = event.value
        if key in container:
            first = "" if self._lines is None else f" (first on line {self._lines[self._path(key)]})"
            raise KeyTwiceError(f"key {quoted(key)} is given twice{first}")
        self._key = check_text(key, "a key")
        if self._lines is not None:
            self._lines[self._path(key)] = event.start_mark.line + 1

    def _place(self, event: Any, value: Any) -> str | int | None:
        """Store ``value`` at the parser's position and return its key or list index."""
        if self._open is None:
            self._root = value
            return None
        if isinstance(self._open, list):
            self._open.append(value)
            place = len(self._open) - 1
            if self._lines is not None:
                self._lines[self._path(place)] = event.start_mark.line + 1
            return place
        key, self._key = self._key, None
        assert key is not None
        self._open[key] = value
        return key

    def _path(self, step: str | int) -> KeyPath:
        return (*(one for one in self._steps if one is not None), step)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        return check_text(text)
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        if len(text) > MOST_DIGITS:
            raise RequestError(f"a number has at most {MOST_DIGITS} digits, but this one has {len(text)}")
        return check_int(int(text, 0) if text[:2] in ("0o", "0x") else int(text))
    if _FLOAT.fullmatch(text):
        return check_float(float(text), text)
    if _NOT_FINITE.fullmatch(text):
        return check_float(float(text.replace(".", "", 1)), text)
    return check_text(text)
