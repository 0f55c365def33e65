"""Axes of a strategy from its text: names and choices, for the choice of runs and Optuna's studies."""

import re
from collections.abc import Mapping, Sequence

_WORD = re.compile(r"^([a-z-]+?)(?:=(.*)|([0-9][0-9/]*))?$")
USUAL_CHOICES = {"schedule": "1f1b", "recompute": "none", "split": "even", "zero": "0"}
"""Choices of axes missing in the text of a strategy; other degrees are 1, other words "off"."""
Value = str | int


def axes_of(strategy: str) -> Mapping[str, str]:
    """Split the text of a strategy into axes and choices.

    >>> axes_of("tp4 dp2 sp recompute=full")
    {'tp': '4', 'dp': '2', 'sp': 'on', 'recompute': 'full'}
    """
    matches = [match for word in strategy.split() if (match := _WORD.match(word))]
    return {match[1]: match[2] or match[3] or "on" for match in matches}


def axis_values(strategies: Sequence[str]) -> list[dict[str, Value]]:
    """Return the choice of every strategy on every axis named by any strategy, degrees as numbers.

    >>> axis_values(["tp4 sp", "tp2 recompute=full"])[1]
    {'tp': 2, 'sp': 'off', 'recompute': 'full'}
    """
    axes = [axes_of(text) for text in strategies]
    values: list[dict[str, Value]] = [{} for _ in axes]
    for name in dict.fromkeys(name for one in axes for name in one):
        numeric = all(one[name].isdigit() for one in axes if name in one)
        usual = USUAL_CHOICES.get(name, "1" if numeric else "off")
        for one, row in zip(axes, values, strict=True):
            text = one.get(name, usual)
            row[name] = int(text) if numeric and text.isdigit() else text
    return values


def choices_of(values: Sequence[Mapping[str, Value]]) -> dict[str, tuple[Value, ...]]:
    """Return the choices of every axis in the order of the strategies; ``values``: see ``axis_values``."""
    return {axis: tuple(dict.fromkeys(one[axis] for one in values)) for axis in values[0]}
