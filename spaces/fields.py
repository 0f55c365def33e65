"""Dataclasses from plain data, read by the types of their fields."""

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

Value = TypeVar("Value")


def finite(value: Any) -> float:
    """Return a finite number.

    Raises
    ------
    ValueError
        The number is not finite.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number must be finite, but got {number}")
    return number


READERS: Mapping[Any, Callable[[Any], Any]] = {
    bool: bool,
    int: int,
    float: finite,
    str: str,
    tuple[str, ...]: lambda texts: tuple(map(str, texts)),
    Mapping[str, int]: lambda counts: {str(name): int(count) for name, count in counts.items()},
    Mapping[str, str]: lambda texts: {str(name): str(text) for name, text in texts.items()},
    Mapping[str, Any]: lambda values: {str(name): str(value) for name, value in values.items()},
}
"""Reader of a field by its type; an optional field may be None."""


def fields_from(
    kind: type[Value], data: Mapping[str, Any], *, names: Mapping[str, str] = types.MappingProxyType({}), **known: Any
) -> Value:
    """Return a dataclass from plain data.

    Parameters
    ----------
    kind
        The dataclass; its fields have types of ``READERS``.
    data
        Values by name. A missing field has its default.
    names
        Name in the data of every field that is called otherwise there.
    known
        Fields that are not read.

    Raises
    ------
    KeyError, TypeError, ValueError, OverflowError
        A field is missing or invalid.
    """
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass
        name = names.get(field.name, field.name)
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if field.name not in known and (name in data or not optional):
            known[field.name] = _read(field.type, data[name])
    return kind(**known)


def _read(kind: Any, value: Any) -> Any:
    if isinstance(kind, types.UnionType):
        return None if value is None else READERS[get_args(kind)[0]](value)
    return READERS[kind](value)
