"""The one form in which numbers leave forerun: every file, page and document accepts them."""

import math
from collections.abc import Mapping
from typing import Any

NO_NUMBER = "n/a"
"""Text in place of a number that is infinite or missing."""


def plain(value: Any) -> Any:
    """Return a value of mappings, sequences and scalars in which no number is infinite or NaN; None takes its place.

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
