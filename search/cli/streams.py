"""Standard output and error whose texts are escaped on the way out, whoever writes them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, cast

from forerun.spaces.escaping import visible


class Shown(Protocol):
    """What shows that a verb works (``forerun.search.cli.progress``)."""

    def still(self) -> None:
        """Show it no more for a while."""

    def end(self) -> None:
        """Show it no more."""


class Escaped:
    """A stream that writes harmful characters out. ``raw`` takes what forerun made itself: colours and bars.
    ``waiting`` is on the terminal until something else is printed, for good where this is the stream that ``answers``.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self.waiting: Shown | None = None
        self.answers = True

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        if self.waiting is not None:
            (self.waiting.end if self.answers else self.waiting.still)()
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below an escaped one, which is about to be written to, or the stream itself."""
    if not isinstance(stream, Escaped):
        return stream
    if stream.waiting is not None:
        stream.waiting.end()
    return stream.raw


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Escape what is printed within."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Escaped(raw_stream(stream))) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
