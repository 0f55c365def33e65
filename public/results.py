"""The result of a search, with what notebooks and scripts do with it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.notebook import Picture, step_picture
from forerun.spaces.errors import RequestError

SLURM = "slurm"
"""Stands for the first format of the framework that has a batch script."""
BATCH_SCRIPT = "slurm.sbatch"
GENERIC_FORMAT = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Leaderboard):
    """A leaderboard that can be drawn and exported.

    ``rows`` are the best strategies in rank order, ``why`` says why the first one is first, ``notes`` what can change a
    decision. ``to_pandas()``, ``to_csv()`` and ``to_json()`` return the rows as data.
    """

    @classmethod
    def of(cls, board: Leaderboard) -> Self:
        """Return a leaderboard as a result."""
        return cls(**{field.name: getattr(board, field.name) for field in fields(Leaderboard)})

    def plot(self, rows: int = 10) -> Picture:
        """Draw the step time of the first rows, each as a bar of its parts on one scale.

        Parameters
        ----------
        rows
            Number of rows to draw.
        """
        return step_picture({f"{row.rank}. {row.name}": row.breakdown_s for row in self.rows[:rows]})

    def export(
        self, format: str = SLURM, *, rank: int = 1, out: "str | Path | None" = None, force: bool = False
    ) -> dict[str, str]:
        """Return the launch files of a row by name.

        Parameters
        ----------
        format
            Name of a format (``forerun export --help`` lists them), or ``"slurm"`` for the framework's own format with
            a batch script.
        rank
            Row of the leaderboard, from 1.
        out
            Folder to write the files to; None writes nothing.
        force
            Whether files in ``out`` may be overwritten.

        Raises
        ------
        RequestError
            The format is unknown or cannot express the row, or the folder is in use.
        """
        from forerun.search.formats.exporting import export, launch_in
        from forerun.search.formats.job import NO_JOB, Job

        launch, context = launch_in(self.to_json(), rank, name="a search", source=Path("a search/leaderboard.json"))
        job = NO_JOB if out is None else Job(folder=str(Path(out).absolute()))
        names = _formats_of(str(self.request["framework"])) if format == SLURM else (format,)
        refused: list[str] = []
        for name in names:
            try:
                files = dict(export(launch, context, name, job).files[name])
            except RequestError as error:
                refused.append(str(error))
                continue
            if format != SLURM or BATCH_SCRIPT in files:
                return files if out is None else _written(files, Path(out), force=force)
        raise RequestError("\n".join(refused) or f"no format of {self.request['framework']} writes a batch script")


def _formats_of(framework: str) -> tuple[str, ...]:
    """Return the names of the formats of a framework; of one without any, that of plain PyTorch."""
    from forerun.search.formats.registry import writers_of
    from forerun.spaces.frameworks import framework_names, resolve_framework

    known = framework.partition("@")[0] in framework_names() or Path(framework).exists()
    names = tuple(entry.name for entry in writers_of(resolve_framework(framework))) if known else ()
    return names or (GENERIC_FORMAT,)


def _written(files: dict[str, str], out: Path, *, force: bool) -> dict[str, str]:
    from forerun.search.board.folder import claimed
    from forerun.spaces.files import write_text

    with claimed(out, force=force):
        for name, text in files.items():
            write_text(out / name, text)
    return files
