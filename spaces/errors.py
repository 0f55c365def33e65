"""The errors a user can meet, each with the exit code the command line ends with.

A text states the law, then the values, then the nearest fix:
``40 heads are not divisible by tp=16; use 1, 2, 4, 5, 8, 10, 20 or 40``.
"""

import difflib
from collections.abc import Iterable


class ForerunError(Exception):
    """Base of every error that forerun raises on purpose."""

    exit_code = 1


class RequestError(ForerunError):
    """The request is wrong: the message names the law, the values and the nearest fix."""

    exit_code = 2


class InfeasibleError(ForerunError):
    """The request is right and nothing fits: the message names the blockers."""

    exit_code = 3


def unknown(what: str, name: str, known: Iterable[str]) -> RequestError:
    """Return the error for a ``name`` that is not among ``known``, with the nearest ones first."""
    choices = sorted(known)
    near = difflib.get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    if near:
        return RequestError(f"unknown {what} {name!r}; did you mean {' or '.join(near)}?")
    shown = ", ".join(choices[:40]) + (", …" if len(choices) > 40 else "")
    return RequestError(f"unknown {what} {name!r}; known: {shown}")
