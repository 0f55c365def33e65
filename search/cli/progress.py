"""Progress line of a verb on stderr, with the finished share if known.

It appears after a second without output, is cleared before any output, and returns after messages on stderr; an answer
on stdout ends it.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from forerun.search.cli.streams import Escaped, raw_stream

if TYPE_CHECKING:
    from rich.progress import Progress


PATIENCE_S = 0.7


class Waiting:
    """One line on a terminal: task, a bar if its amount is known, elapsed and remaining time.

    Called as ``OnProgress`` (``forerun.search.request.scorer``) by any task, in any thread.
    """

    def __init__(self, stream: TextIO, task: str) -> None:
        self._stream = stream
        self._now = (task, 0, 0, "")
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._over = not stream.isatty()
        self._timer = self._armed()

    def __call__(self, task: str, done: int = 0, of: int = 0, note: str = "") -> None:
        """Show a task, its finished amount (``of`` 0: total unknown) and a short remark."""
        with self._lock:
            new, self._now = task != self._now[0], (task, done, of, note)
            if self._bar is not None:
                self._show(new)

    def still(self) -> None:
        """Clear the line until there has been no output for a while."""
        with self._lock:
            if not self._over:
                self._stop()
                self._timer = self._armed()

    def end(self) -> None:
        """Clear the line permanently."""
        with self._lock:
            self._over = True
            self._stop()

    def _armed(self) -> threading.Timer:
        timer = threading.Timer(PATIENCE_S, self._open)
        timer.daemon = True
        if not self._over:
            timer.start()
        return timer

    def _stop(self) -> None:
        self._timer.cancel()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _open(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        from forerun.search.cli.console import open_progress

        with self._lock:
            if self._over or self._bar is not None:
                return
            self._bar = Progress(
                SpinnerColumn("line"),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=open_progress(self._stream),
                transient=True,
                redirect_stdout=False,  # output ends it
                redirect_stderr=False,
            )
            self._bar.start()
            self._show(new=True)

    def _show(self, new: bool) -> None:
        if self._bar is None:
            return
        task, done, of, note = self._now
        if new:  # its rate is independent of the previous task's
            for old in self._bar.task_ids:
                self._bar.remove_task(old)
            self._bar.add_task(task, total=of or None, completed=done, note=note)
        else:
            self._bar.update(self._bar.task_ids[0], total=of or None, completed=done, note=note)


@contextmanager
def working(task: str) -> Iterator[None]:
    """Show progress of a verb until it prints; ``task``: its task, empty if the verb shows progress itself."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, Escaped)]
    if not task or len(streams) < 2:
        yield
        return
    waiting = Waiting(raw_stream(sys.stderr), task)
    for stream in streams:
        stream.waiting = waiting
        stream.answers = stream is sys.stdout
    try:
        yield
    finally:
        waiting.end()


def show_progress(task: str, done: int = 0, of: int = 0, note: str = "") -> None:
    """Show the current task on the terminal of the running verb, if any (``Waiting``)."""
    waiting = sys.stderr.waiting if isinstance(sys.stderr, Escaped) else None
    if isinstance(waiting, Waiting):
        waiting(task, done, of, note)


class Walk:
    """Progress of the enumeration of a space."""

    def __init__(self) -> None:
        self._size = 0

    def started(self, size: int) -> None:
        """Note the number of candidates."""
        self._size = size

    def sampling(self, done: int, of: int) -> None:
        """Show the searched share of a sample, from which candidates to skip follow."""
        show_progress("searching a sample", done, of)

    def advance(self, enumerated: int, legal: int) -> None:
        """Show that ``enumerated`` candidates are done, of which ``legal`` were scored."""
        note = f"{legal:,} scored"
        if enumerated < self._size:
            show_progress("searching", enumerated, self._size, note)
        else:
            show_progress("comparing the best", note=note)


class ReadingBar:
    """Progress bar of the current file and the share of all bytes."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._total = sum(path.stat().st_size for path in files)
        self._read = 0

    def __call__(self, path: Path, count: int) -> None:
        """Add ``count`` read bytes of a file."""
        self._read += count
        show_progress("reading", self._read, self._total, path.name)


def analysing(phase: str, done: int, of: int) -> None:
    """Show the current phase of an analysis, and the number of finished ones."""
    show_progress("analysing", done, of, phase)


class MeasuringBar:
    """A progress bar on a terminal, and a line for every tenth elsewhere."""

    def __init__(self, size: int) -> None:
        self.size, self._tenth, self._bar = max(size, 1), 0, None
        if sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            from forerun.search.cli.console import open_progress

            self._bar = Progress(
                TextColumn("measuring"),
                BarColumn(),
                TextColumn("{task.completed} of {task.total}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[now]}"),
                console=open_progress(sys.stderr),
                transient=True,
            )

    def __enter__(self) -> "MeasuringBar":
        if self._bar is not None:
            self._bar.add_task("measuring", total=self.size, now="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, done: int, what: str) -> None:
        """Show the finished amount and the latest measurement."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, now=what[:48])
        elif 10 * done // self.size > self._tenth:
            self._tenth = 10 * done // self.size
            print(f"forerun: {done} of {self.size} measured", file=sys.stderr)
