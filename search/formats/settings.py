"""Settings of one file, read with types; unread ones can be listed."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from forerun.spaces.errors import LONGEST_NAME, RequestError

_OUTSIDE = re.compile(r"\$(?:\{?(?:[A-Za-z_]\w*|[0-9]+|[@*#])|\()")
"""A variable, command or arithmetic unknown before a run."""
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|[0-9]+|[@*#])(?![\w.:])|([A-Za-z_]\w*|[0-9]+|[@*#]))")
"""A variable that the user can give: no reference to a key or a function."""
_VARIABLES = re.compile(r"(\$\w+|\$\{\w+\})(\s+(\$\w+|\$\{\w+\}))*")
_DECIDING = re.compile(r"parallel|batch_?size|seq_?len|max_length|num_layers|accumulation|stage|nodes|nproc|recompute")
"""Names of settings that a message about missing variables lists."""
_SLIP = 0.93
"""Similarity from which an unread name counts as a misspelling of a read name (``difflib``)."""
_NEARLY = _SLIP / (2 - _SLIP)
"""Least ratio of the lengths of two similar names."""
MOST_COMPARED = 500
"""Most unread settings compared with read ones."""
LARGEST = 10**12
"""Largest plausible count in a configuration."""


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one with dotted keys; lists and empty mappings remain values.

    >>> flatten({"a": {"b": 1, "c": {}}, "d": [2]})
    {'a.b': 1, 'a.c': {}, 'd': [2]}

    Raises
    ------
    RequestError
        Two settings get the same dotted key (one is written with a dot).
    """
    flat: dict[str, Any] = {}
    for key, value in data.items():
        inner = flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
        for name, item in inner.items():
            if name in flat:
                raise RequestError(f"key {name!r} is given twice, once with dots and once nested")
            flat[name] = item
    return flat


class LaunchSettings:
    """Settings by name. Every query marks its setting as read; ``rest`` has the unread ones."""

    def __init__(self, values: Mapping[str, Any], source: str, *, bare_flags: bool = False) -> None:
        """Take settings; ``bare_flags``: a flag followed only by unset variables has no value."""
        self._values = dict(values)
        self._source = source
        self._read: set[str] = set()
        self._asked: set[str] = set()
        self.bare_flags = bare_flags

    def __contains__(self, name: str) -> bool:
        """Whether the file has the setting with any value but null."""
        return self._values.get(name) is not None

    def names(self) -> list[str]:
        """Return the names of all settings that have a value but null."""
        return [name for name, value in self._values.items() if value is not None]

    def every(self) -> frozenset[str]:
        """Return the names of all settings, including null ones."""
        return frozenset(self._values)

    def also(self, name: str, value: Any) -> None:
        """Add a setting from another source, such as a variable of the launch script."""
        self._values.setdefault(name, value)

    def raw(self, *names: str) -> Any:
        """Return the value of the first existing one of ``names`` (new names before old ones), or None.

        Raises
        ------
        RequestError
            Several names have different values.
        """
        self._asked.update(names)
        present = [name for name in names if name in self._values]
        self._read.update(present)
        values = [self._values[name] for name in present if self._values[name] is not None]
        if any(value != values[0] for value in values[1:]):
            raise RequestError(f"{self._source}: {' and '.join(present)} name the same thing and differ")
        return values[0] if values else None

    def _inside(self, names: tuple[str, ...]) -> Any:
        """Return a value after checking that the file itself states it."""
        value = self.raw(*names)
        if not isinstance(value, str) or not _OUTSIDE.search(value):
            return value
        texts = {
            name: text
            for name, text in self._values.items()
            if isinstance(text, str) and (name in names or _DECIDING.search(name))
        }
        missing = {name: text for name, text in texts.items() if _OUTSIDE.search(text)}
        shown = ", ".join(f"{name}={text}" for name, text in list(missing.items())[:12])
        named_in = (match[1] or match[2] for text in missing.values() for match in _VARIABLE.finditer(text))
        variables = list(dict.fromkeys(named_in))
        named = " ".join(f"--set-var {name}=..." for name in variables if not name.isdecimal() and name not in "@*#")
        ways = [f"give {named}"] if named else []
        if any(name.isdecimal() or name in "@*#" for name in variables):
            ways.append("give the arguments that the script is started with after --")
        raise RequestError(
            f"{self._source}: not stated in the file: {shown}; {' and '.join(ways) or 'write the numbers'}"
        )

    def whole(self, *names: str, least: int = 1) -> int | None:
        """Return a whole number of at least ``least``; None if missing.

        Raises
        ------
        RequestError
            The value is no such number.
        """
        value = self._inside(names)
        if value is None:
            return None
        text = str(value).strip()
        if re.fullmatch(r"\d{1,3}(_\d{3})+", text):  # as in Python
            text = text.replace("_", "")
        digits = text.removeprefix("-")
        if isinstance(value, bool) or not digits.isdecimal() or not digits.isascii() or len(digits) > 13:
            raise self.wrong(names, f"must be a whole number, but got {_shown(value)}")
        number = int(text)
        if not least <= number <= LARGEST:
            raise self.wrong(names, f"must be at least {least} and at most {LARGEST}, but got {number}")
        return number

    def flag(self, *names: str) -> bool | None:
        """Return a boolean, None if missing.

        Raises
        ------
        RequestError
            The value is not a boolean.
        """
        if self.bare_flags and _VARIABLES.fullmatch(str(self.raw(*names))):
            return True
        value = self._inside(names)
        if value is None or isinstance(value, bool):
            return value
        booleans = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        if str(value).strip().lower() not in booleans:
            raise self.wrong(names, f"must be true or false, but got {_shown(value)}")
        return booleans[str(value).strip().lower()]

    def text(self, *names: str) -> str | None:
        """Return a text, None if missing.

        Raises
        ------
        RequestError
            The value is a list or a mapping.
        """
        value = self.raw(*names)
        if value is None:
            return None
        if isinstance(value, Mapping | list | tuple):
            raise self.wrong(names, f"must be a text, but got {_shown(value)}")
        return str(value)

    def one_of(self, names: str | tuple[str, ...], choices: Iterable[str]) -> str | None:
        """Return one of ``choices`` in lower case, None without a value.

        Raises
        ------
        RequestError
            The value is not one of the choices.
        """
        names = (names,) if isinstance(names, str) else names
        self._inside(names)
        value, known = self.text(*names), list(choices)
        if value is not None and value.lower() not in known:
            raise self.wrong(names, f"must be one of {', '.join(filter(None, known))}, but got {_shown(value)}")
        return None if value is None else value.lower()

    def facts(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings found among ``names`` (setting: fact) under the names of the facts."""
        facts = {fact: self.raw(name) for name, fact in names.items() if name in self}
        outside = {fact for fact, value in facts.items() if isinstance(value, str) and _OUTSIDE.search(value)}
        return {fact: _plain(value) for fact, value in facts.items() if fact not in outside}

    def rest(self, known: Callable[[str], bool] = lambda name: False) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings that were not read: first those with a ``known`` name, then the others.

        A name that differs by a letter or two from a queried name counts as unknown, since it is probably misspelt.
        """
        left = {name: value for name, value in self._values.items() if name not in self._read}
        asked: dict[tuple[str, int], list[str]] = {}
        for name in self._asked:
            asked.setdefault((name.rpartition(".")[0], len(name)), []).append(name)
        slips = {name for name in islice(left, MOST_COMPARED) if _slip(name, asked)}
        other = {name: value for name, value in left.items() if known(name) and name not in slips}
        return other, {name: value for name, value in left.items() if name not in other}

    def wrong(self, names: Iterable[str], law: str) -> RequestError:
        """Return the error for a setting that breaks a law."""
        name = next((name for name in names if name in self._values), next(iter(names)))
        return RequestError(f"{self._source}: {name} {law}")


def _slip(name: str, asked: Mapping[tuple[str, int], list[str]]) -> bool:
    """Whether a name is a misspelling of a read setting of its section (``asked``, by section and length)."""
    section, length = name.rpartition(".")[0], len(name)
    if length > LONGEST_NAME:
        return False
    lengths = range(int(_NEARLY * length), int(length / _NEARLY) + 2)
    near = [one for other in lengths for one in asked.get((section, other), ())]
    return bool(difflib.get_close_matches(name, near, n=1, cutoff=_SLIP))


def _plain(value: Any) -> Any:
    """Convert numbers written as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 13:
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
