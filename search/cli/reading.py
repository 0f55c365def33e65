"""A progress bar for files that are read: only on a terminal, and only where that takes more than a second."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from forerun.search.cli.progress import PATIENCE_S

if TYPE_CHECKING:
    from rich.progress import Progress


class ReadingBar:
    """Shows which file is read and how much of all bytes; a context manager that removes the bar at its end."""

    def __init__(self, stream: TextIO, files: Sequence[Path]) -> None:
        self._stream = stream
        self._total = sum(path.stat().st_size for path in files)
        self._read = 0
        self._start_s = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, path: Path, count: int) -> None:
        """Show that ``count`` more bytes of a file have been read."""
        self._read += count
        if self._bar is None:
            if time.monotonic() - self._start_s < PATIENCE_S or not self._stream.isatty():
                return
            self._bar = self._open()
        self._bar.update(self._bar.task_ids[0], completed=self._read, name=path.name)

    def _open(self) -> "Progress":
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        from forerun.search.cli.console import open_progress

        bar = Progress(
            TextColumn("reading {task.fields[name]}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=open_progress(self._stream),
            transient=True,
        )
        bar.add_task("read", total=self._total, name="")
        bar.start()
        return bar
