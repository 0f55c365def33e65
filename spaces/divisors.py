"""Divisors of numbers, for valid degrees and for suggestions in messages."""

import math

_MOST_TRIED = 1 << 17
"""Limit of tried numbers: numbers up to 10^10 get all divisors, larger ones the small divisors and their partners."""


def divisors(number: int) -> list[int]:
    """Return all divisors in ascending order.

    >>> divisors(40)
    [1, 2, 4, 5, 8, 10, 20, 40]
    """
    small = [d for d in range(1, min(math.isqrt(number), _MOST_TRIED) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def use_one_of(number: int, *, most: int | None = None) -> str:
    """Return "use 1, 2, 4 or 8" for the divisors of a number; ``most``: number of divisors shown.

    >>> use_one_of(8)
    'use 1, 2, 4 or 8'
    """
    options = [str(d) for d in divisors(number)[:most]]
    return f"use {', '.join(options[:-1])} or {options[-1]}" if len(options) > 1 else f"use {options[0]}"
