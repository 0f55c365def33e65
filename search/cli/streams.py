"""Standard output and error whose texts are escaped on the way out, whoever writes them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from forerun.spaces.escaping import visible


class Escaped:
    """A stream that writes harmful characters out. ``raw`` takes what forerun made itself: colours and bars."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below an escaped one, or the stream itself."""
    return stream.raw if isinstance(stream, Escaped) else stream


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Escape what is printed within."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Escaped(raw_stream(stream))) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
