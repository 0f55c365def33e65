"""Standard output and error whose texts are escaped on the way out, whoever writes them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, cast

from forerun.spaces.escaping import visible


class Ending(Protocol):
    """What shows that a verb works (``forerun.search.cli.progress``)."""

    def end(self) -> None:
        """Show it no more."""


class Escaped:
    """A stream that writes harmful characters out. ``raw`` takes what forerun made itself: colours and bars.
    ``waiting`` is on the terminal until something else is printed."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self.waiting: Ending | None = None

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        self.still()
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def still(self) -> None:
        """Take what is on the terminal away, for something else is printed."""
        if self.waiting is not None:
            self.waiting.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below an escaped one, which is about to be written to, or the stream itself."""
    if not isinstance(stream, Escaped):
        return stream
    stream.still()
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
