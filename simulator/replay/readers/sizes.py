"""Sizes of tensors in profiles: shapes as nested lists, dtypes under many names."""

from typing import Any

_BYTES = {
    "float": 4,
    "float32": 4,
    "double": 8,
    "float64": 8,
    "half": 2,
    "float16": 2,
    "c10::half": 2,
    "bfloat16": 2,
    "c10::bfloat16": 2,
    "float8_e4m3fn": 1,
    "c10::float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "c10::float8_e5m2": 1,
    "long": 8,
    "long int": 8,
    "int64": 8,
    "int": 4,
    "int32": 4,
    "short": 2,
    "int16": 2,
    "byte": 1,
    "unsigned char": 1,
    "signed char": 1,
    "char": 1,
    "uint8": 1,
    "int8": 1,
    "bool": 1,
}


def dtype_bytes(value: Any) -> int:
    """Return the bytes of one element of the first known dtype in ``value`` (text or list); 0 for none."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str) and one.lower() in _BYTES:
            return _BYTES[one.lower()]
    return 0


def elements(value: Any) -> int:
    """Return the elements of the first operand with elements, summed over a list of tensors; 0 for none.

    >>> elements([[[2, 3], [4]], []])
    10
    """
    for one in value if isinstance(value, list) else ():
        count = _count(one, 3)
        if count:
            return count
    return 0


def _count(value: Any, depth: int) -> int:
    if not isinstance(value, list) or not value or not depth:
        return 0
    if all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**48 for one in value):
        product = 1
        for one in value:
            product = min(product * one, 2**62)
        return product
    return sum(_count(one, depth - 1) for one in value)
