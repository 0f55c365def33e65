"""Candidates built from answers to questions, and their enumeration in the order of an odometer."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Choose = Callable[[str, Sequence[int]], int]
"""``choose(name, choices) -> choice``: function that answers a question."""
Built = TypeVar("Built")


def ask(choose: Choose, name: str, choices: Sequence[int]) -> int:
    """Return the answer to a question; a question with a single choice is not asked."""
    return choices[0] if len(choices) == 1 else choose(name, choices)


def every(build: Callable[[Choose], Built | None]) -> Iterator[Built]:
    """Yield the results of all combinations of answers to the questions of ``build``, except None.

    Later questions may depend on earlier answers. The last question changes fastest.
    """
    digits: list[int] = []
    while True:
        radices: list[int] = []
        path = iter([*digits])

        def choose(name: str, choices: Sequence[int], path: Iterator[int] = path, radices: list[int] = radices) -> int:
            radices.append(len(choices))
            return choices[next(path, 0)]

        result = build(choose)
        if result is not None:
            yield result
        digits += [0] * (len(radices) - len(digits))
        while digits and digits[-1] == radices[len(digits) - 1] - 1:
            digits.pop()
        if not digits:
            return
        digits[-1] += 1


def batched(items: Iterator[Built], count: int) -> Iterator[tuple[Built, ...]]:
    """Yield the items in tuples of ``count``; the last one may be shorter."""
    while chunk := tuple(itertools.islice(items, count)):
        yield chunk
