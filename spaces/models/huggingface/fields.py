"""Typed access to the fields of a configuration, with a record of read and filled-in fields."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from forerun.spaces.documents.package_data import package_text, package_yaml
from forerun.spaces.errors import RequestError, nearest

ALIASES: Mapping[str, Sequence[str]] = package_yaml("forerun.spaces.models.huggingface", "data", "aliases.yaml")
"""Further spellings of a field."""
LARGEST_SIZE = 2**31
MOST_LAYERS = 10_000


def class_defaults(model_type: str) -> Mapping[str, Any]:
    """Return the numbers and flags of the class of ``model_type``; empty for an unknown type."""
    return _table().get(model_type, {})


@cache
def unused(name: str) -> tuple[str, ...]:
    """Return the fields of some classes that have no effect on the model (``data/unused_fields.yaml``)."""
    return tuple(package_yaml("forerun.spaces.models.huggingface", "data", "unused_fields.yaml")[name])


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return dict(json.loads(package_text("forerun.spaces.models.huggingface", "defaults.json")))


class Fields:
    """The fields of one configuration. A field with null counts as missing."""

    def __init__(
        self,
        values: dict[str, Any],
        *,
        source: str,
        defaults: Mapping[str, Any],
        required: Sequence[str] = (),
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        """Take ``values`` as the fields of one configuration.

        ``defaults``: values of missing fields (not of null fields), except fields in ``required``. ``ignored``: fields
        that the user wants treated as absent, including parts of the model.
        """
        self.source = source
        self.read: set[str] = set()
        self.filled_in: dict[str, object] = {}
        self.parts: dict[str, Fields] = {}
        self.values = values
        self._defaults = defaults
        self._required = required
        self.ignored = ignored

    def size(self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST_SIZE) -> int:
        """Return the integer ``name``; a missing one is ``default`` (or the family's default).

        Raises
        ------
        RequestError
            It is missing without a default, not an integer, or outside ``least..most``.
        """
        given = self.optional_size(name, least=least, most=most)
        if given is not None:
            if self._written(name)[1] is None:
                self.filled_in[name] = given
            return given
        value = self._defaults.get(name, default) if name not in self._required else default
        if value is None:
            spellings = " or ".join((name, *ALIASES.get(name, ())[:3]))
            near = nearest(name, [key for key in self.values if key not in self.read], count=1)
            hint = f"; did you mean it by {near[0]}?" if near else ""
            raise RequestError(f"{self.source}: the required field {spellings} is missing{hint}")
        self.filled_in[name] = value
        return value

    def optional_size(self, name: str, *, least: int = 1, most: int = LARGEST_SIZE) -> int | None:
        """Return the integer ``name``, None if it is missing."""
        spelling, value = self._find(name)
        if value is None:
            return None
        if isinstance(value, list) and len(value) > 1 and all(one == value[0] for one in value):
            value = value[0]  # one equal size per layer
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{self.source}: {spelling} must be a whole number, but got {_shown(value)}")
        if not least <= value <= most:
            raise RequestError(f"{self.source}: {spelling} must be in {least}..{most}, but got {_shown(value)}")
        return value

    def has(self, name: str) -> bool:
        """Check whether ``name`` is given or has a default in the family."""
        return self._find(name)[1] is not None

    def flag(self, name: str, default: bool) -> bool:
        """Return the boolean ``name``, ``default`` if it is missing."""
        spelling, value = self._find(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise RequestError(f"{self.source}: {spelling} must be true or false, but got {_shown(value)}")
        return value

    def text(self, name: str) -> str | None:
        """Return the text ``name``, None if it is missing."""
        spelling, value = self._find(name)
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{self.source}: {spelling} must be a text, but got {_shown(value)}")
        return value

    def listed(self, name: str, kind: type, *, length: int | None = None) -> Sequence[Any] | None:
        """Return the list ``name`` of values of type ``kind``, None if it is missing; ``length``: required length."""
        spelling, value = self._find(name)
        if value is None:
            return None
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise RequestError(f"{self.source}: {spelling} must be a list of {kind.__name__}, but got {_shown(value)}")
        if length is not None and len(value) != length:
            raise RequestError(
                f"{self.source}: {spelling} must have one entry for each of {length} layers, but got {len(value)}"
            )
        return value

    def listed_or_none(self, name: str, kind: type) -> Sequence[Any] | None:
        """Return the list ``name``, None if it is missing or not a list (some fields are a number or a list)."""
        return self.listed(name, kind) if isinstance(self._find(name)[1], list) else None

    def of_layer(self, name: str, index: int) -> int | None:
        """Return the size of layer ``index`` if ``name`` is a list with one entry per layer, otherwise None."""
        sizes = self.listed_or_none(name, int)
        if sizes is None:
            return None
        if index >= len(sizes) or not 0 < sizes[index] <= LARGEST_SIZE:
            what = f"{sizes[index]} for layer {index}" if index < len(sizes) else f"{len(sizes)} of them"
            raise RequestError(f"{self.source}: {name} has a size of at least 1 for every layer, but got {what}")
        return int(sizes[index])

    def of_one_layer(self, name: str, index: int) -> "Fields":
        """Return the fields of one layer from ``name``, which maps two-digit layer numbers to fields.

        Raises
        ------
        RequestError
            It is not a mapping of layer numbers to mappings.
        """
        given = self.raw(name) or {}
        settings = given.get(f"{index:02d}", {}) if isinstance(given, Mapping) else None
        if not isinstance(settings, Mapping):
            raise self.refusal(name, f"must have the settings of layer {index:02d} by their names")
        return Fields(dict(settings), source=self.source, defaults={})

    def first(self, *names: str) -> int:
        """Read the first of ``names`` that is given, otherwise the first with a default; all count as read."""
        chosen = next((name for name in names if self.given(name)), None)
        chosen = chosen or next((name for name in names if self.has(name)), names[0])
        self.read.update(names)
        return self.size(chosen)

    def mapping(self, name: str) -> "Fields":
        """Return the fields of the mapping ``name``, empty if it is none; unlike a ``part``'s they may stay unread."""
        nested = self.raw(name)
        values = dict(nested) if isinstance(nested, Mapping) else {}
        return Fields(values, source=f"{self.source}, {name}", defaults={})

    def refusal(self, name: str, why: str) -> RequestError:
        """Return the error that refuses a field's value, with its reason."""
        return RequestError(f"{self.source}: {name}={_shown(self.raw(name))}: {why}; describe the model in a YAML file")

    def number(self, name: str, default: float) -> float:
        """Return the positive number ``name``, ``default`` if it is missing."""
        spelling, value = self._find(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST_SIZE:
            raise RequestError(f"{self.source}: {spelling} must be a positive number, but got {_shown(value)}")
        return float(value)

    def given(self, name: str) -> bool:
        """Check whether the configuration itself has the field, null or not."""
        return any(spelling in self.values for spelling in (name, *ALIASES.get(name, ())))

    def raw(self, name: str) -> Any:
        """Return the unchecked value of ``name``; None if it is missing."""
        return self._find(name)[1]

    def accept(self, *names: str) -> None:
        """Count fields without an effect on the model as read."""
        for name in names:
            self.raw(name)

    def part(
        self, name: str, model_type: str, defaults: Callable[[str], Mapping[str, Any]] = class_defaults
    ) -> "Fields":
        """Return the fields of the mapping ``name`` (``vision_config``), all of which must be read.

        ``model_type``: type of a part without one; ``defaults``: function from the type to the values of missing
        fields.
        """
        value = self.values.get(name)
        self.read.add(name)
        if value is not None and not isinstance(value, Mapping):
            raise RequestError(f"{self.source}: {name} must be a mapping, but got {type(value).__name__}")
        values = {key: inner for key, inner in (value or {}).items() if key not in self.ignored}
        if not values.get("model_type"):  # as without the key
            values.pop("model_type", None)
        kind = values.get("model_type", model_type)
        part = Fields(values, source=f"{self.source}, {name}", defaults=defaults(str(kind)), ignored=self.ignored)
        if "vision" in name:  # an encoder has no output layer to tie
            part.read.add("tie_word_embeddings")
        self.parts[name] = part
        return part

    def _find(self, name: str) -> tuple[str, Any]:
        """Return the spelling in use and its value; all spellings count as read and must be equal."""
        written = self._written(name)
        if written[1] is None and not self.given(name) and name not in self._required:
            for spelling in (name, *ALIASES.get(name, ())):
                value = self._defaults.get(spelling)
                if value is not None:
                    return spelling, value
        return written

    def _written(self, name: str) -> tuple[str, Any]:
        """Return the spelling in use and its value in the configuration itself."""
        written: tuple[str, Any] = (name, None)
        for spelling in (name, *ALIASES.get(name, ())):
            value = self.values.get(spelling)
            if spelling in self.values:
                self.read.add(spelling)
            if value is None:
                continue
            if written[1] is not None and written[1] != value:
                raise RequestError(
                    f"{self.source}: {written[0]}={_shown(written[1])} and {spelling}={_shown(value)} mean the same "
                    "and disagree; remove one of them"
                )
            written = (spelling, value)
        return written


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
