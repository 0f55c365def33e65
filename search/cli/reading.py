"""Progress of reading several files."""

from collections.abc import Sequence
from pathlib import Path

from forerun.search.cli.progress import show_progress


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
