"""A progress bar on stderr that appears only on a terminal and only when a search takes more than a second."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 1.0


class Walk:
    """Shows how much of a space has been enumerated; a context manager that removes the bar at its end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._start_s = time.monotonic()
        self._size = 0
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def started(self, size: int) -> None:
        """Say how many candidates there are."""
        self._size = size

    def advance(self, enumerated: int, legal: int) -> None:
        """Show that ``enumerated`` candidates are done, ``legal`` of which were scored."""
        if self._bar is None:
            if time.monotonic() - self._start_s < PATIENCE_S or not self._stream.isatty():
                return
            self._open()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=enumerated, legal=f"{legal:,}")

    def _open(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from forerun.search.cli.console import open_progress

        self._bar = Progress(
            TextColumn("searching"),
            BarColumn(),
            TextColumn("{task.percentage:.0f}%  {task.fields[legal]} scored"),
            TimeRemainingColumn(),
            console=open_progress(self._stream),
            transient=True,
        )
        self._bar.add_task("walk", total=self._size, legal="0")
        self._bar.start()
