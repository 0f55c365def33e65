"""Conversion of values to plain data that every output format accepts."""

import math
from collections.abc import Mapping
from typing import Any

NO_NUMBER = "n/a"
"""Text in place of a number that is infinite or missing."""


def plain(value: Any) -> Any:
    """Return a value of mappings, sequences and scalars with None in place of infinite numbers and NaN.

    >>> plain({"rate": float("inf"), "steps": [1.0, float("nan")]})
    {'rate': None, 'steps': [1.0, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
