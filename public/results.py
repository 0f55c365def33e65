"""Results of a search and of a simulation, for notebooks and scripts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.notebook import SHOWN, Picture, row_text, step_picture
from forerun.search.board.rows import Row
from forerun.spaces.errors import RequestError

SLURM = "slurm"
"""Name for the first format of the framework with a batch script."""
BATCH_SCRIPT = "slurm.sbatch"
GENERIC_FORMAT = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Leaderboard):
    """A leaderboard that can be drawn and exported.

    ``rows`` are the best strategies in rank order, ``why`` explains the first rank, ``notes`` can change a decision.
    ``to_pandas()``, ``to_csv()`` and ``to_json()`` return the rows as data.
    """

    @classmethod
    def of(cls, board: Leaderboard) -> Self:
        """Return a leaderboard as a result."""
        return cls(**{item.name: getattr(board, item.name) for item in fields(Leaderboard)})

    def __repr__(self) -> str:
        """Return the job and the first rows, one line each."""
        rows = [f"{row.rank}. {row.name}: {row_text(row.to_json())}" for row in self.rows[:SHOWN]]
        return "\n".join((self.title, *rows))

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
        return _exported(self.to_json(), format, rank=rank, out=out, force=force)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationResult(Row[Any]):
    """Prediction of one strategy, equal to the same row of an explanation.

    ``step_time_s``, ``peak_memory_gib`` and ``fits`` are its main figures; ``to_json()`` returns everything as data.
    """

    request: Mapping[str, Any] = field(repr=False)
    """The job with every default filled in, as plain data."""

    @classmethod
    def of(cls, row: Row[Any], request: Mapping[str, Any]) -> Self:
        """Return a row and its job as a result."""
        return cls(**{item.name: getattr(row, item.name) for item in fields(Row)}, request=request)

    def __repr__(self) -> str:
        """Return the strategy and its figures as one line."""
        return f"{self.name}: {row_text(self.to_json())}"

    def __eq__(self, other: object) -> bool:
        """Whether two predictions are equal, regardless of other fields of their jobs."""
        return isinstance(other, Row) and all(
            getattr(self, item.name) == getattr(other, item.name) for item in fields(Row)
        )

    __hash__ = Row.__hash__

    def export(self, format: str = SLURM, *, out: "str | Path | None" = None, force: bool = False) -> dict[str, str]:
        """Return the launch files of the strategy by name.

        Parameters
        ----------
        format, out, force
            As for `SearchResult.export`.

        Raises
        ------
        RequestError
            The format is unknown or cannot express the strategy, or the folder is in use.

        Examples
        --------
        >>> from forerun import simulate
        >>> job = {"cluster": "dgx-h100", "global_batch": 256, "seq_len": 8192}
        >>> files = simulate("llama3-8b", strategy="tp2 dp32 mbs1 zero1 sp", **job).export()
        >>> sorted(files)
        ['launch.sh', 'slurm.sbatch']
        """
        document = {"request": self.request, "leaderboard": [self.to_json()]}
        return _exported(document, format, rank=1, out=out, force=force)


def _exported(
    document: Mapping[str, Any], format: str, *, rank: int, out: "str | Path | None", force: bool
) -> dict[str, str]:
    """Return the launch files of a row of a leaderboard, after writing them to ``out``."""
    from forerun.search.formats.exporting import export, launch_in
    from forerun.search.formats.job import NO_JOB, Job

    launch, context = launch_in(document, rank, name="a search", source=Path("a search/leaderboard.json"))
    job = NO_JOB if out is None else Job(folder=str(Path(out).absolute()))
    framework = str(document["request"]["framework"])
    names = _formats_of(framework) if format == SLURM else (format,)
    refused: list[str] = []
    for name in names:
        try:
            files = dict(export(launch, context, name, job).files[name])
        except RequestError as error:
            refused.append(str(error))
            continue
        if format != SLURM or BATCH_SCRIPT in files:
            return files if out is None else _written(files, Path(out), force=force)
    raise RequestError("\n".join(refused) or f"no format of {framework} writes a batch script")


def _formats_of(framework: str) -> tuple[str, ...]:
    """Return the names of the formats of a framework; for a framework without formats, the format of plain PyTorch."""
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
