"""Progress of a measurement on this machine."""

import sys


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

    def told(self, done: int, what: str) -> None:
        """Show the finished amount and the latest measurement."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, now=what[:48])
        elif 10 * done // self.size > self._tenth:
            self._tenth = 10 * done // self.size
            print(f"forerun: {done} of {self.size} measured", file=sys.stderr)
