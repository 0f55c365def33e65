"""Errors for users, each with its exit code on the command line.

A text has the law, the values, and the nearest fix:
``40 heads are not divisible by tp=16; use 1, 2, 4, 5, 8, 10, 20 or 40``.
"""

import difflib
import re
from collections.abc import Iterable

LONGEST_NAME = 200
"""Limit of characters of a name that is shown or compared with others, in quadratic time."""


class ForerunError(Exception):
    """Base of every intentional error of forerun."""

    exit_code = 1


class RequestError(ForerunError):
    """The request is wrong: the message names the law, the values and the nearest fix."""

    exit_code = 2


class InfeasibleError(ForerunError):
    """The request is valid but nothing fits: the message names the blockers."""

    exit_code = 3


def unknown(what: str, name: str, known: Iterable[str]) -> RequestError:
    """Return the error for a ``name`` that is not among ``known``, with the nearest ones first."""
    choices = sorted(known)
    near = nearest(name, choices)
    name = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…"
    if near:
        return RequestError(f"unknown {what} {name!r}; did you mean {' or '.join(near)}?")
    shown = ", ".join(choices[:40]) + (", …" if len(choices) > 40 else "")
    return RequestError(f"unknown {what} {name!r}; known: {shown}")


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """Return up to ``count`` names of ``known`` that ``name`` may mean.

    Names that differ only in case and punctuation come first, followed by names that share all numbered parts
    (``hgx-h100`` and ``dgx-h100``), typing errors, names that contain or are contained in ``name`` (``h100`` in
    ``dgx-h100``), and similar spellings.
    """
    choices = sorted(known)
    word = _letters(name)
    if not word or len(name) > LONGEST_NAME:
        return []
    same = [choice for choice in choices if _letters(choice) == word]
    slips = difflib.get_close_matches(name.lower(), choices, n=count, cutoff=0.85)
    parts = [choice for choice in choices if word in re.split("[^a-z0-9]+", choice.lower()) or _holds(word, choice)]
    similar = difflib.get_close_matches(name.lower(), choices, n=count, cutoff=0.65)
    parts.sort(key=lambda choice: (choice not in similar, len(choice)))
    numbered = [choice for choice in similar if _numbers(name) and _numbers(name) <= _numbers(choice)]
    return same or list(dict.fromkeys([*numbered, *slips, *parts, *similar]))[:count]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _numbers(name: str) -> set[str]:
    """Return the parts of a name that contain a digit: ``h100`` of ``dgx-h100``."""
    return {part for part in re.split("[^a-z0-9]+", name.lower()) if any(map(str.isdigit, part))}


def _holds(word: str, choice: str) -> bool:
    """Check whether one contains the other; three letters or fewer do not count."""
    letters = _letters(choice)
    return min(len(word), len(letters)) > 3 and (word in letters or letters in word)
