"""References of a YAML configuration to its keys, to the environment and to computed numbers (OmegaConf, Primus).

Nothing is evaluated: a reference is replaced by its value, and unchanged without one.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_ENVIRONMENT = re.compile(r"(?:oc\.env|env):\s*([A-Za-z_]\w*)\s*(?:,(.*))?", re.DOTALL)
_DEFAULT = re.compile(r"([A-Za-z_]\w*):-?(.*)", re.DOTALL)
_PATH = re.compile(r"(\.*)([A-Za-z_]\w*(?:\.\w+)*)")
FUNCTIONS: Mapping[str, Callable[[Sequence[int]], int]] = {"sum": sum, "multiply": math.prod}
"""Resolvers that training tools register, for whole numbers."""
LONGEST, DEEPEST = 2000, 8
"""Most characters of a text with references, and most nested references."""


def resolved(data: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a document with its references replaced; ``variables``: environment variables.

    >>> resolved({"a": {"b": 2, "c": "${.b}", "d": "${TP:4}"}, "e": "${a.b}/${oc.env:X}"}, {"X": "y"})
    {'a': {'b': 2, 'c': 2, 'd': 4}, 'e': '2/y'}
    """
    references = _References(data, variables)
    return {key: references.value((key,), value, DEEPEST) for key, value in data.items()}


class _References:
    """Values of a document's references; each key is resolved once."""

    def __init__(self, data: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self._data = data
        self._variables = variables
        self._followed: dict[tuple[str, ...], Any] = {}

    def value(self, path: tuple[str, ...], value: Any, deep: int) -> Any:
        """Return the value of a key with its references replaced, at most ``deep`` nested ones."""
        if isinstance(value, Mapping):
            return {key: self.value((*path, str(key)), inner, deep) for key, inner in value.items()}
        if not isinstance(value, str) or "${" not in value or len(value) > LONGEST or not deep:
            return value
        kept: list[str] = []
        text = value
        while len(text) <= LONGEST and (match := _REFERENCE.search(text)):
            resolved = self._named(path, match[1].strip(), deep - 1)
            if match[0] == text and not kept:
                return text if resolved is None else resolved
            if resolved is None:  # unchanged, marked so that it is not resolved again
                kept.append(f"${{{_plain_name(match[1])}}}")
            resolved = f"\0{len(kept) - 1}\0" if resolved is None else str(resolved)
            text = text[: match.start()] + resolved + text[match.end() :]
        return re.sub("\0(\\d+)\0", lambda mark: kept[int(mark[1])], text)

    def _named(self, path: tuple[str, ...], name: str, deep: int) -> Any:
        """Return the value of a reference, if any; for an unset variable a plain reference to it."""
        if match := _ENVIRONMENT.fullmatch(name):
            text = self._variables.get(match[1], match[2])
            return f"${{{match[1]}}}" if text is None else _scalar(text)
        function, _, arguments = name.partition(":")
        if function in FUNCTIONS:
            numbers = [_scalar(part) for part in arguments.split(",")]
            are_integers = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
            return FUNCTIONS[function](numbers) if are_integers else None
        if match := _DEFAULT.fullmatch(name):
            return _scalar(self._variables.get(match[1], match[2]))
        if name in self._variables:
            return _scalar(self._variables[name])
        return self._at(path, name, deep)

    def _at(self, path: tuple[str, ...], name: str, deep: int) -> Any:
        """Return the value of a key: ``a.b`` from the top, ``.b`` in this section, ``..b`` in the enclosing one."""
        match = _PATH.fullmatch(name)
        if match is None:
            return None
        dots, keys = len(match[1]), tuple(match[2].split("."))
        target = (*path[: len(path) - dots], *keys) if dots else keys
        if target not in self._followed:
            self._followed[target] = None  # a circular reference has no value
            self._followed[target] = self._followed_value(target, deep)
        return self._followed[target]

    def _followed_value(self, target: tuple[str, ...], deep: int) -> Any:
        node: Any = self._data
        for key in target:
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = node[key]
        node = None if isinstance(node, Mapping | list) else self.value(target, node, deep)
        return None if isinstance(node, str) and "${" in node else node


def _plain_name(name: str) -> str:
    match = _ENVIRONMENT.fullmatch(name.strip())
    return name if match is None else match[1]


def _scalar(text: str) -> Any:
    """Convert a word to a number or a boolean."""
    word = text.strip().strip("'\"")
    if re.fullmatch(r"-?\d{1,13}", word, re.ASCII):
        return int(word)
    return {"true": True, "false": False, "null": None, "": None}.get(word.lower(), word)
