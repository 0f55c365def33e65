"""Standard output and error with escaped texts from any writer."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, cast

from forerun.spaces.escaping import visible


class Shown(Protocol):
    """Interface of the progress line of a verb (``forerun.search.cli.progress``)."""

    def still(self) -> None:
        """Hide the line for a while."""

    def end(self) -> None:
        """Hide the line permanently."""


class Escaped:
    """A stream that escapes harmful characters.

    ``raw`` is for forerun's own colours and bars. ``waiting``: progress line, hidden by output, permanently if this
    stream ``answers``. Answers are printed by the thread that opened the stream; output of library threads is sent to
    ``messages``.
    """

    def __init__(self, raw: TextIO, messages: TextIO | None = None) -> None:
        self.raw = raw
        self._messages, self._thread = messages, threading.get_ident()
        self.waiting: Shown | None = None
        self.answers = True

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        if self.waiting is not None:
            (self.waiting.end if self.answers else self.waiting.still)()
        strange = self._messages is not None and threading.get_ident() != self._thread
        (self._messages if strange and self._messages else self.raw).write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below an escaped one for direct output, or the stream itself."""
    if not isinstance(stream, Escaped):
        return stream
    if stream.waiting is not None:
        stream.waiting.end()
    return stream.raw


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Escape all output in the block."""
    before = sys.stdout, sys.stderr
    out, err = (raw_stream(stream) for stream in before)
    sys.stdout, sys.stderr = cast("TextIO", Escaped(out, messages=err)), cast("TextIO", Escaped(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
