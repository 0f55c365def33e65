"""Reader and writer of the part of the Protobuf wire format that Chakra's execution traces need.

A message is a sequence of fields: a varint with number and wire type, followed by a varint, 8 bytes, 4 bytes, or a
length and that number of bytes (protobuf.dev/programming-guides/encoding). Fields with default values are omitted, as
in proto3. Lengths are checked before reading, so that a hostile file cannot exhaust memory.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from forerun.spaces.errors import RequestError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
MOST_MESSAGE = 1 << 26
"""Limit of bytes of one message; a node of an execution trace has a few hundred."""


def varint(value: int) -> bytes:
    """Return a non-negative integer in groups of seven bits, lowest first.

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
    """Encode a field with a non-negative integer; ``always``: also a 0, as members of a oneof need."""
    return varint(field << 3 | VARINT) + varint(value) if value or always else b""


def double(field: int, value: float) -> bytes:
    """Encode a field with a floating-point number."""
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def text(field: int, value: str) -> bytes:
    """Encode a field with a text."""
    return message(field, value.encode()) if value else b""


def message(field: int, value: bytes) -> bytes:
    """Encode a field with another message."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def numbers(field: int, values: Iterable[int]) -> bytes:
    """Encode a field with packed non-negative integers."""
    packed = b"".join(map(varint, values))
    return message(field, packed) if packed else b""


def delimited(value: bytes) -> bytes:
    """Return a message of a stream, preceded by its length."""
    return varint(len(value)) + value


def messages(file: BinaryIO, source: str) -> Iterator[bytes]:
    """Yield the messages of a file in which each is preceded by its length.

    Raises:
        RequestError: the file ends within a message, or a length exceeds the largest node.
    """
    for number in itertools.count():
        first = file.read(1)
        if not first:
            return
        size, shift, byte = first[0] & 0x7F, 7, first[0]
        while byte & 0x80:
            more = file.read(1)
            if not more or shift > 28:
                raise RequestError(f"{source} is torn, or no Chakra trace: a length of a message does not end")
            byte = more[0]
            size |= (byte & 0x7F) << shift
            shift += 7
        if size > MOST_MESSAGE:
            raise RequestError(
                f"{source} is not a Chakra trace: a message claims {size:,} bytes, nodes have a few hundred"
            )
        if not size and number:
            raise RequestError(f"{source} is not a Chakra trace: node {number} has no bytes")
        data = file.read(size)
        if len(data) < size:
            raise RequestError(f"{source} is torn: it ends {size - len(data):,} bytes before its last node does")
        yield data


def fields(data: bytes, source: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (number, wire type, value) of the fields of one message.

    Raises:
        RequestError: the bytes are not a message.
    """
    place = 0
    while place < len(data):
        key, place = read_varint(data, place, source)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == VARINT:
            value, place = read_varint(data, place, source)
        else:
            if wire == BYTES:
                size, place = read_varint(data, place, source)
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
            else:
                raise RequestError(f"{source} is not a Chakra trace: a field has wire type {wire}")
            if place + size > len(data):
                raise RequestError(f"{source} is not a Chakra trace: a field is longer than its message")
            value, place = data[place : place + size], place + size
        yield number, wire, value


def read_varint(data: bytes, place: int, source: str) -> tuple[int, int]:
    """Return the varint at ``place`` and the position after it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise RequestError(f"{source} is not a Chakra trace: a number does not end")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
        shift += 7


def packed(value: int | bytes, source: str) -> list[int]:
    """Return a repeated integer, packed or single."""
    if isinstance(value, int):
        return [value]
    numbers, place = [], 0
    while place < len(value):
        number, place = read_varint(value, place, source)
        numbers.append(number)
    return numbers
