"""Reader of a JSON document with one long array, piece by piece: a file of gigabytes needs the memory of one piece.

Pieces are parsed by the decoder of the standard library, which runs in C; a value cut by the end of a piece is read
again with the next. Only JSON is accepted, nothing is evaluated, and a single value is limited to ``MOST_VALUE``.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from forerun.spaces.errors import RequestError
from forerun.spaces.reading import check_ratio, opened, size_of

PIECE = 1 << 22
"""Bytes read at once."""
MOST_VALUE = 1 << 23
"""Limit of characters of one event or header; the largest events have a few thousand, headers a million."""
MOST_HEADERS, LEAST_VALUE, MANY = 10_000, 16, 100_000
"""Limits for hostile files: keys next to the events, mean characters of values, and spaces, above ``MANY``."""
_SPACE = " \t\r\n"
_SPACES = re.compile(f"[{_SPACE}]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONGEST_WORD = 16
"""Largest number of characters missing in a cut word, number or escape."""

Progress = Callable[[int], None]
"""Progress callback with the bytes of a file read since its last call."""


def is_moment(value: Any) -> TypeGuard[float]:
    """Check whether an event's time is finite and within the microseconds that clocks count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


class JsonStream:
    """The values of one file, in order.

    ``items(array)``: yields the members of the array with key ``array`` in the outermost object, or of the outermost
    array itself. ``header``: all other keys, complete once the items are exhausted.

    Raises:
        RequestError: the file cannot be read, is empty, torn or not JSON, or a value is too large.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.tolerant = False
        self._progress = progress
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._place = 0
        self._end = False
        self._values = self._characters = self._blanks = self._unpacked = self._packed = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")()

    def items(self, array: str) -> Iterator[Any]:
        """Yield the members of the array; the trace event format lets a bare array lack its closing bracket."""
        try:
            with opened(self.path) as raw:
                self._raw: BinaryIO = raw
                self._packed = size_of(raw)
                self._file: BinaryIO = raw
                if raw.read(2) == b"\x1f\x8b":
                    raw.seek(0)
                    self._file = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]  # typeshed: a stream of bytes as well
                else:
                    raw.seek(0)
                self._told = 0
                yield from self._document(array)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise RequestError(self._torn("its compressed data end early")) from None
        except UnicodeDecodeError:
            raise RequestError(f"{self.path} is not UTF-8 text, as JSON must be") from None
        except RecursionError:
            raise RequestError(f"{self.path} nests brackets deeper than any trace does") from None

    def _document(self, array: str) -> Iterator[Any]:
        first = self._peek()
        if first == "":
            raise RequestError(f"{self.path} is empty; was the profiler stopped before it wrote its trace?")
        if first == "[":
            self.tolerant = True
            self._place += 1
            yield from self._members()
        elif first == "{":
            self._place += 1
            yield from self._object(array)
        else:
            raise RequestError(f"a trace is a JSON object or array, but {self.path} starts with {first!r}")
        if self._peek() != "":
            raise RequestError(f"{self.path} continues after the end of its JSON document; were two traces joined?")

    def _object(self, array: str) -> Iterator[Any]:
        """Walk the outermost object; its opening bracket has been read."""
        if self._peek() == "}":
            self._place += 1
            return
        while True:
            key = self._value()
            if not isinstance(key, str):
                raise RequestError(f"{self.path} is not valid JSON: a key of its outermost object is {key!r:.40}")
            self._expect(":")
            if key == array and self._peek() == "[":
                self._place += 1
                yield from self._members()
            else:
                self.header[key] = self._value()
                if len(self.header) > MOST_HEADERS:
                    raise RequestError(
                        f"{self.path} is not a trace: it has over {MOST_HEADERS:,} keys beside its events"
                    )
            if self._expect(",}") == "}":
                return

    def _members(self) -> Iterator[Any]:
        """Yield the members of an array whose opening bracket has been read."""
        if self._peek() == "]":
            self._place += 1
            return
        while True:
            yield self._value()
            if self._peek() == "" and self.tolerant:
                return
            if self._expect(",]") == "]":
                return
            if self.tolerant and self._peek() in ("", "]"):
                self._place += self._peek() == "]"
                return

    def _value(self) -> Any:
        """Return the next value, after reading all of it."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                # A string without its closing quote has its error at its start; other errors are where they occur.
                cut = self._text[error.pos : error.pos + 1] == '"' and _STRING.match(self._text, error.pos) is None
                if error.pos < len(self._text) - _LONGEST_WORD and not cut:
                    raise RequestError(f"{self.path} is not valid JSON near {self._near(error.pos)}") from None
            except ValueError:  # Python does not convert numbers of thousands of digits
                raise RequestError(f"{self.path} has a number that no trace has: it is too long") from None
            else:
                if end < len(self._text) or self._end:
                    self._count(end - self._place)
                    self._place = end
                    return value
            if self._end:
                raise RequestError(self._torn("it ends within a value"))
            if len(self._text) - self._place > MOST_VALUE:
                raise RequestError(
                    f"a value of a trace has at most {MOST_VALUE:,} characters, but {self.path} has a longer one, or "
                    f"is not valid JSON near {self._text[self._place : self._place + 40]!r}"
                )
            self._fill()

    def _count(self, characters: int, blanks: int = 0) -> None:
        """Count values and the blanks between them, and refuse files that only cost time."""
        self._values += characters > 0
        self._characters += characters
        self._blanks += blanks
        if self._values > MANY and self._characters < LEAST_VALUE * self._values:
            raise RequestError(f"{self.path} is not a trace: it has over {MANY:,} values without content")
        if self._blanks > max(LEAST_VALUE * MANY, 2 * self._characters):
            raise RequestError(f"{self.path} is not a trace: most of it is blank")

    def _fill(self) -> None:
        """Drop the parsed text and read the next piece."""
        want = PIECE if len(self._text) - self._place < PIECE else len(self._text)
        piece = self._file.read(want)
        self._end = not piece
        self._unpacked += len(piece)
        if self._file is not self._raw:
            check_ratio(self.path, self._packed, self._unpacked)
        self._text = self._text[self._place :] + self._utf8.decode(piece, final=self._end)
        self._place = 0
        if self._progress is not None:
            now = self._raw.tell()
            self._progress(now - self._told)
            self._told = now

    def _peek(self) -> str:
        """Return the next character that is not a space; an empty string at the end."""
        while True:
            text, place = self._text, self._place
            if place < len(text) and text[place] in _SPACE:
                start, place = place, _SPACES.match(text, place).end()  # type: ignore[union-attr]  # matches nothing too
                self._place = place
                self._count(0, place - start)
            if place < len(text):
                return text[place]
            if self._end:
                return ""
            self._fill()

    def _expect(self, marks: str) -> str:
        """Consume one of ``marks``."""
        mark = self._peek()
        if mark == "":
            raise RequestError(self._torn(f"one of {' '.join(marks)} is missing at its end"))
        if mark not in marks:
            raise RequestError(f"{self.path} is not valid JSON: {mark!r} where {' or '.join(marks)} is expected")
        self._place += 1
        return mark

    def _near(self, place: int) -> str:
        return repr(self._text[max(place - 20, 0) : place + 20])

    def _torn(self, what: str) -> str:
        return f"{self.path} is torn: {what}; copy it again, or let the profiler finish before the job ends"
