"""Documents that users write: YAML or JSON read with care, and errors that point at the line.

A document is plain data: no tags, no aliases, no key twice, bounded in size, depth and number of values, so that a
hostile or mistaken file fails at once. Scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2,
section 10.3.2): ``no`` is a text, ``1e9`` is a number. Keys are texts.
"""

import json
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from forerun.spaces.errors import RequestError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_BYTES = 4 << 20
MAX_DEPTH = 64
MAX_VALUES = 200_000

KeyPath = tuple[str | int, ...]
SchemaT = TypeVar("SchemaT", bound="BaseModel")

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says: ``data`` of mappings, lists, texts, numbers, booleans and None; ``source`` names the file."""

    data: Any
    source: str
    text: str = field(repr=False, compare=False)

    def line(self, path: Iterable[str | int]) -> int | None:
        """Line (from 1) of the key or list item at ``path``, or of the nearest parent that has one, else None."""
        try:
            # Tabs are blank space in JSON and an error in YAML; no JSON text holds a literal one.
            text = self.text.replace("\t", " ") if _is_json(self.source) else self.text
            lines = _Reader(self.source).read(text)[1]
        except RequestError:
            return None
        wanted = tuple(path)
        while wanted and wanted not in lines:
            wanted = wanted[:-1]
        return lines.get(wanted)

    def where(self, path: Iterable[str | int] = ()) -> str:
        """``file.yaml, line 7, levels.1.kind``: what error messages start with."""
        keys = tuple(path)
        line = self.line(keys) if keys else None
        parts = [self.source]
        if line is not None:
            parts.append(f"line {line}")
        if keys:
            parts.append(".".join(map(str, keys)))
        return ", ".join(parts)


def read_document(path: Path, *, max_bytes: int = MAX_BYTES) -> Document:
    """Read the YAML (``.yaml``, ``.yml``) or JSON (``.json``) file at ``path``.

    Raises:
        RequestError: the file is missing, not a regular file, unreadable, larger than ``max_bytes`` (asked before
            reading), not UTF-8, or ``parse_document`` refuses its text.
    """
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise RequestError(f"{path}: a document ends in .yaml, .yml or .json")
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise RequestError(f"{path} is a directory; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise RequestError(f"{path} is not a regular file")
        if status.st_size > max_bytes:
            raise RequestError(
                f"{path} has {status.st_size:,} bytes, but a document has at most {max_bytes:,}; is it the right file?"
            )
        raw = path.read_bytes()
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise RequestError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}, line {line}: the file is not UTF-8 text (byte {raw[error.start]:#04x})") from None
    return parse_document(text, source=str(path))


def parse_document(text: str, *, source: str) -> Document:
    """Return the document that ``text`` spells; JSON if ``source`` ends in ``.json``, YAML otherwise.

    Raises:
        RequestError: syntax errors with line and column; empty text; tags, aliases, several documents in one file; a
            key given twice; more than ``MAX_DEPTH`` levels or ``MAX_VALUES`` values.
    """
    if not text.strip():
        raise RequestError(f"{source} is empty")
    if _is_json(source):
        data = _read_json(text, source)
    else:
        data = _Reader(source).read(text)[0]
        if data is None:
            raise RequestError(f"{source} is empty")
    return Document(data=data, source=source, text=text)


def validate(document: Document, schema: type[SchemaT]) -> SchemaT:
    """Return ``document`` as an instance of the pydantic model ``schema``.

    Raises:
        RequestError: naming file, line and key path of every problem (five at most); for a misspelt key the nearest
            known one.
    """
    from pydantic import ValidationError  # here, because importing pydantic takes longer than reading a catalogue

    try:
        return schema.model_validate(document.data)
    except ValidationError as error:
        problems = [_problem(document, schema, detail) for detail in error.errors(include_url=False)]
    problems.sort(key=lambda item: item[0])
    texts = [text for _, text in problems[:5]]
    if len(problems) > 5:
        texts.append(f"and {len(problems) - 5} more")
    raise RequestError("\n".join(texts))


class _Reader:
    """Builds data from parser events on a stack of its own, so that limits hold before anything is built."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: dict[KeyPath, int] = {}
        self._stack: list[tuple[dict[str, Any] | list[Any], KeyPath]] = []
        self._key: list[str | None] = []
        self._count = 0
        self._root: Any = None

    def read(self, text: str) -> tuple[Any, Mapping[KeyPath, int]]:
        """Return the data and the line of each key path."""
        documents = 0
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._error(event, "one file holds one document; remove what follows ---")
                elif isinstance(event, yaml.NodeEvent):
                    self._node(event)
                elif isinstance(event, yaml.CollectionEndEvent):
                    self._stack.pop()
                    self._key.pop()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            opened = error.context_mark
            context = f" ({error.context} that starts on line {opened.line + 1})" if error.context and opened else ""
            raise RequestError(f"{self._source}{place}: {error.problem}{context}") from None
        except yaml.YAMLError as error:
            reason = getattr(error, "reason", None) or str(error).splitlines()[0]
            raise RequestError(f"{self._source} is not YAML: {reason}") from None
        return self._root, self._lines

    def _node(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, f"aliases are not accepted; write the value of *{event.anchor} out")
        if event.tag is not None:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._error(event, f"tags are not accepted; remove {shown}")
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._error(event, f"a document has at most {MAX_VALUES:,} values")
        if isinstance(event, yaml.ScalarEvent):
            if self._stack and isinstance(self._stack[-1][0], dict) and self._key[-1] is None:
                self._open_key(event)
            else:
                self._place(event, self._scalar(event))
            return
        container: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._place(event, container)
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(event, f"a document is at most {MAX_DEPTH} levels deep")
        self._stack.append((container, path))
        self._key.append(None)

    def _open_key(self, event: Any) -> None:
        container, path = self._stack[-1]
        key = event.value
        if key in container:
            raise self._error(event, f"key {key!r} is given twice (first on line {self._lines[(*path, key)]})")
        self._lines[(*path, key)] = event.start_mark.line + 1
        self._key[-1] = key

    def _place(self, event: Any, value: Any) -> KeyPath:
        """Put ``value`` where the parser stands and return its path."""
        if not self._stack:
            self._root = value
            return ()
        container, path = self._stack[-1]
        if isinstance(container, list):
            container.append(value)
            path = (*path, len(container) - 1)
            self._lines[path] = event.start_mark.line + 1
            return path
        key = self._key[-1]
        if key is None:
            raise self._error(event, "keys are texts, not lists or mappings")
        container[key] = value
        self._key[-1] = None
        return (*path, key)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _INT.fullmatch(text):
            if len(text) > 300:
                raise self._error(event, f"a number has at most 300 digits, but this one has {len(text)}")
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _NOT_FINITE.fullmatch(text):
            return float(text.replace(".", "", 1))
        return text

    def _error(self, event: Any, message: str) -> RequestError:
        mark = event.start_mark
        return RequestError(f"{self._source}, line {mark.line + 1}, column {mark.column + 1}: {message}")


def _is_json(source: str) -> bool:
    return source.lower().endswith(".json")


def _read_json(text: str, source: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise RequestError(f"{source}: key {twice!r} is given twice")
        return mapping

    too_deep = RequestError(f"{source}: a document is at most {MAX_DEPTH} levels deep")
    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise RequestError(f"{source}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise too_deep from None
    except ValueError as error:  # a number of thousands of digits
        raise RequestError(f"{source}: {error}") from None
    level, depth = [data], 0
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise too_deep
    return data


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _problem(document: Document, schema: type["BaseModel"], detail: Any) -> tuple[int, str]:
    """Return the sort key (misspelt keys first: a missing key is often their consequence) and text of one problem."""
    kind, path = detail["type"], _data_path(document.data, detail["loc"])
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "extra_forbidden":
        known = sorted(_known_keys(schema, path[:-1]))
        near = nearest(str(path[-1]), known, count=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        return 0, f"{document.where(path)}: unknown key; {hint}"
    if kind == "missing":
        return 1, f"{document.where(path)}: this key is required"
    if kind in ("model_type", "dict_type", "list_type", "tuple_type", "model_attributes_type"):
        wanted = "a list" if kind in ("list_type", "tuple_type") else "a mapping of keys to values"
        return 2, f"{document.where(path)}: this must be {wanted}, but got {_shown(detail['input'])}"
    got = "" if kind == "value_error" else f", but got {_shown(detail['input'])}"
    return 2, f"{document.where(path)}: {message[:1].lower()}{message[1:]}{got}"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _data_path(data: Any, location: Sequence[str | int]) -> KeyPath:
    """Drop from a pydantic location the names of union members, which the document does not hold."""
    path: list[str | int] = []
    for index, step in enumerate(location):
        inside = (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and step < len(data)
        )
        if inside:
            data = data[step]
            path.append(step)
        elif index == len(location) - 1 and isinstance(data, dict):
            path.append(step)
    return tuple(path)


def _known_keys(schema: type["BaseModel"], path: KeyPath) -> set[str]:
    """Return the keys that ``schema`` knows at ``path``."""
    models = {schema}
    for step in path:
        if isinstance(step, str) and any(step in model.model_fields for model in models):
            annotations = [m.model_fields[step].annotation for m in models if step in m.model_fields]
            models = {found for annotation in annotations for found in _models_in(annotation)}
    return {known.alias or name for model in models for name, known in model.model_fields.items()}


def _models_in(annotation: Any) -> set[type["BaseModel"]]:
    from typing import get_args

    from pydantic import BaseModel

    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation} if issubclass(annotation, BaseModel) else set()
    return {found for inner in get_args(annotation) for found in _models_in(inner)}
