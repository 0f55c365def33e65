"""Texts of a trace, each stored once and numbered in order of occurrence."""

from forerun.spaces.errors import RequestError

MOST_TEXTS = 500_000
"""Limit of different names of events in one file: Python stacks with addresses of objects have some ten thousand."""
LONGEST = 200
"""Characters stored of a name."""


def number_of(texts: dict[str, int], text: str, source: object) -> int:
    """Return the number of a text, which is added if it is new.

    Raises:
        RequestError: ``source`` has more different texts than any real trace.
    """
    number = texts.setdefault(text[:LONGEST], len(texts))
    if number >= MOST_TEXTS:
        raise RequestError(f"{source} is not a trace: its events have more than {MOST_TEXTS:,} different names")
    return number
