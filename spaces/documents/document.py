"""A document: the plain data of a file, with the line of each part."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.spaces.documents.json_text import read_json
from forerun.spaces.documents.values import KeyPath
from forerun.spaces.documents.yaml_text import KeyTwiceError, read_yaml
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import shown
from forerun.spaces.reading import MAX_BYTES, read_text

MAX_VALUES, OWN_VALUES = 200_000, 400_000
"""Limits of keys and values of a YAML document, and of forerun's own; JSON is read in C and may have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Contents of a file: ``data`` of mappings, lists, texts, numbers, booleans and None; ``source``: its name."""

    data: Any
    source: str
    text: str = field(repr=False, compare=False)
    _known: dict[KeyPath, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def line(self, path: Iterable[str | int]) -> int | None:
        """Return the line (from 1) of the key or list item at ``path``, or of its nearest parent with one, if any."""
        lines = self._lines()
        wanted = tuple(path)
        while wanted and wanted not in lines:
            wanted = wanted[:-1]
        return lines.get(wanted) or None

    def where(self, path: Iterable[str | int] = ()) -> str:
        """Return ``file.yaml, line 7, levels.1.kind``, the start of error messages."""
        keys = tuple(path)
        line = self.line(keys) if keys else None
        parts = [self.source]
        if line is not None:
            parts.append(f"line {line}")
        if keys:
            parts.append(".".join(map(shown, keys)))
        return ", ".join(parts)

    def _lines(self) -> Mapping[KeyPath, int]:
        """Return the line of every key path, computed on first use: only errors need them."""
        if not self._known and len(self.text) <= MAX_BYTES:
            # Tabs are blanks in JSON and an error in YAML; JSON texts contain no literal tab.
            text = self.text.replace("\t", " ") if _is_json(self.source) else self.text
            with suppress(RequestError):
                read_yaml(text, self.source, most=MAX_VALUES, lines=self._known)
            self._known[()] = 0  # mark as computed
        return self._known


def read_document(path: Path, *, max_bytes: int = MAX_BYTES, own: bool = False, infinite: bool = False) -> Document:
    """Read the YAML (``.yaml``, ``.yml``) or JSON (``.json``) file at ``path``.

    Raises:
        RequestError: the file is missing, not a regular file, unreadable, larger than ``max_bytes`` (checked before
            reading), not UTF-8, or ``parse_document`` refuses its text.
    """
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise RequestError(f"{path}: a document ends in .yaml, .yml or .json")
    return parse_document(read_text(path, most=max_bytes), source=str(path), own=own, infinite=infinite)


def parse_document(text: str, *, source: str, own: bool = False, infinite: bool = False) -> Document:
    """Return the document of ``text``; JSON if ``source`` ends in ``.json``, YAML otherwise.

    ``own``: a result of forerun, which may have more values. ``infinite``: infinite numbers and NaN in JSON are read as
    texts.

    Raises:
        RequestError: syntax errors with line and column; empty text; tags, aliases, several documents in one file; a
            duplicate key; more than ``MAX_DEPTH`` levels or too many values; a number that is not finite or too large;
            a text with control characters.
    """
    if not text.strip():
        raise RequestError(f"{source} is empty")
    if _is_json(source):
        data = read_json(text, source, own=own, infinite=infinite)
        return Document(data=data, source=source, text=text)
    most = OWN_VALUES if own else MAX_VALUES
    try:
        data = read_yaml(text, source, most=most)
    except KeyTwiceError:
        data = read_yaml(text, source, most=most, lines={})  # raises with the line of the first occurrence
    if data is None:
        raise RequestError(f"{source} is empty")
    return Document(data=data, source=source, text=text)


def _is_json(source: str) -> bool:
    return source.lower().endswith(".json")
