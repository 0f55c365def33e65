"""The few parts of the protobuf wire format that execution traces need (protobuf.dev, "Encoding").

A field is its number and wire type as a varint and then its value: 0 a varint, 2 a length and as many bytes. Fields at
their default are left out, as proto3 does.
"""

from collections.abc import Iterable


def varint(value: int) -> bytes:
    """Return a whole number of at least 0 in groups of seven bits, lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int, *, always: bool = False) -> bytes:
    """Return a field that holds a whole number of at least 0; ``always``: also a 0, as members of a oneof need."""
    return varint(field << 3) + varint(value) if value or always else b""


def text(field: int, value: str) -> bytes:
    """Return a field that holds a text."""
    return message(field, value.encode()) if value else b""


def message(field: int, value: bytes) -> bytes:
    """Return a field that holds another message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def numbers(field: int, values: Iterable[int]) -> bytes:
    """Return a field that holds whole numbers of at least 0, packed."""
    packed = b"".join(map(varint, values))
    return message(field, packed) if packed else b""


def delimited(value: bytes) -> bytes:
    """Return a message as one of a stream: its length first."""
    return varint(len(value)) + value
