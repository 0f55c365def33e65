"""Validation of documents: errors with file, line, key and the nearest known key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from forerun.spaces.documents.document import Document
from forerun.spaces.documents.values import KeyPath
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.escaping import quoted, shown

if TYPE_CHECKING:
    from pydantic import BaseModel

SchemaT = TypeVar("SchemaT", bound="BaseModel")
MOST_PROBLEMS = 5
_REASONS = {
    "bool_parsing": "this must be true or false",
    "bool_type": "this must be true or false",
    "finite_number": "this number must be finite",
    "float_parsing": "this must be a number",
    "float_type": "this must be a number",
    "greater_than": "this must be above {gt}",
    "greater_than_equal": "this must be at least {ge}",
    "int_from_float": "this must be a whole number",
    "int_parsing": "this must be a whole number",
    "int_type": "this must be a whole number",
    "less_than": "this must be below {lt}",
    "less_than_equal": "this must be at most {le}",
    "literal_error": "this must be {expected}",
    "string_pattern_mismatch": "this must match {pattern}",
    "string_too_long": "this must have at most {max_length} characters",
    "string_too_short": "this must have at least {min_length} characters",
    "string_type": "this must be a text",
    "too_long": "this list is too long; the most is {max_length}",
    "too_short": "this list is too short; the least is {min_length}",
}
"""Message for each kind of pydantic error, since pydantic's own messages change between versions."""
_FIRST = {"extra_forbidden": 0, "missing": 1}
"""Misspelt keys come first: a missing key is often their consequence."""


def validate(document: Document, schema: type[SchemaT]) -> SchemaT:
    """Return ``document`` as an instance of the pydantic model ``schema``.

    Raises:
        RequestError: the document is invalid; the message has file, line and key path of every problem (at most five),
            and for a misspelt key the nearest known one.
    """
    from pydantic import ValidationError  # importing pydantic takes longer than reading a catalogue

    try:
        return schema.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    details.sort(key=lambda detail: _FIRST.get(detail["type"], 2))
    texts = [_problem(document, schema, detail) for detail in details[:MOST_PROBLEMS]]
    if len(details) > MOST_PROBLEMS:
        texts.append(f"and {len(details) - MOST_PROBLEMS} more")
    raise RequestError("\n".join(texts))


def _problem(document: Document, schema: type["BaseModel"], detail: Any) -> str:
    """Return the message of one problem."""
    kind, path = detail["type"], _data_path(document.data, detail["loc"])
    if kind == "extra_forbidden":
        known = sorted(_known_keys(schema, path[:-1]))
        near = nearest(shown(path[-1]), known, count=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        return f"{document.where(path)}: unknown key; {hint}"
    if kind == "missing":
        return f"{document.where(path)}: this key is required"
    if kind in ("model_type", "dict_type", "list_type", "tuple_type", "model_attributes_type"):
        wanted = "a list" if kind in ("list_type", "tuple_type") else "a mapping of keys to values"
        return f"{document.where(path)}: this must be {wanted}, but got {_shown(detail['input'])}"
    values = {name: _number(value) for name, value in detail.get("ctx", {}).items()}
    if kind in ("value_error", "assertion_error"):
        message = str(values["error"])
        return f"{document.where(path)}: {message[:1].lower()}{message[1:]}"
    reason = _REASONS.get(kind, "this value is not accepted here").format_map(values)
    return f"{document.where(path)}: {reason}, but got {_shown(detail['input'])}"


def _number(value: Any) -> Any:
    """Return a number in a form without trailing zeros."""
    return f"{value:g}" if isinstance(value, float) else value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else quoted(value, most=60)


def _data_path(data: Any, location: Sequence[str | int]) -> KeyPath:
    """Return a pydantic location without the names of union members, which are not in the document."""
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
    """Return the keys of ``schema`` at ``path``."""
    models = {schema}
    for step in path:
        if isinstance(step, str) and any(step in model.model_fields for model in models):
            annotations = [m.model_fields[step].annotation for m in models if step in m.model_fields]
            models = {inner for annotation in annotations for inner in _models_in(annotation)}
    return {known.alias or name for model in models for name, known in model.model_fields.items()}


def _models_in(annotation: Any) -> set[type["BaseModel"]]:
    from typing import get_args

    from pydantic import BaseModel

    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation} if issubclass(annotation, BaseModel) else set()
    return {model for inner in get_args(annotation) for model in _models_in(inner)}
