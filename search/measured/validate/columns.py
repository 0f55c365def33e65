"""The schema of measured runs: one CSV row per training run; ``docs/measured-runs.md`` documents it for users.

Reading is strict about the file (text, header, no negative numbers) and lenient about cells: blank or inexpressible
cells are judged and counted when the row is mapped.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.search.measured.validate.spelling import understood
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import quoted, shown
from forerun.spaces.reading import opened_text

REQUIRED = (
    "run_id",
    "device",
    "gpus",
    "model",
    "layers",
    "hidden",
    "heads",
    "seq_len",
    "precision",
    "framework",
    "dp",
    "tp",
    "pp",
    "micro_batch",
    "global_batch",
    "step_time_s",
    "outcome",
)
"""Columns that a file must have; cells may still be blank."""

OPTIONAL = (
    "source",
    "cluster",
    "strategy",
    "gpus_per_node",
    "intra_link",
    "nic_gbit_per_node",
    "ffn_hidden",
    "kv_heads",
    "vocab",
    "moe_experts",
    "moe_topk",
    "expert_hidden",
    "shared_hidden",
    "gated_mlp",
    "lora",
    "power_limit_w",
    "software_date",
    "software_version",
    "switches",
    "attention",
    "cp",
    "ep",
    "virtual_pp",
    "schedule",
    "sequence_parallel",
    "zero_stage",
    "recompute",
    "tokens_per_s_per_gpu",
    "tflops_per_gpu",
    "peak_mem_gib",
    "memory_kind",
    "group",
    "notes",
)
"""Columns that may be missing, with the same meaning as blank cells."""

NUMERIC = (
    "gpus",
    "gpus_per_node",
    "nic_gbit_per_node",
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "vocab",
    "seq_len",
    "moe_experts",
    "moe_topk",
    "expert_hidden",
    "shared_hidden",
    "power_limit_w",
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "virtual_pp",
    "zero_stage",
    "micro_batch",
    "global_batch",
    "step_time_s",
    "tokens_per_s_per_gpu",
    "tflops_per_gpu",
    "peak_mem_gib",
)
"""Columns with numbers. No number can be negative."""
LARGEST_NUMBER, SMALLEST_NUMBER = 1e15, 1e-12
"""Upper limit of numbers, and lower limit of measured seconds and GiB."""

MEMORY_KINDS = ("allocated", "reserved", "device")
"""Kinds of ``peak_mem_gib``: live tensors, memory of the framework's allocator, or all memory in use; blank: by source,
else the first."""

OUTCOMES = ("ok", "oom", "failed")

MOST_WORDS = 10_000
"""Most texts of a table stored once for all rows: devices, models and degrees repeat, names and times do not."""
LARGEST_FILE_BYTES = 256 * 2**20
"""Most bytes of a table of measured runs, which usually has a few megabytes."""


class Cells(Mapping[str, str]):
    """The cells of one row by column, "" if blank or missing.

    ``places`` (column -> position in ``texts``, None if the file lacks it) is one object for all rows of a file, which
    may be hundreds of thousands.
    """

    __slots__ = ("_places", "_texts")

    def __init__(self, places: Mapping[str, int | None], texts: tuple[str, ...]) -> None:
        self._places, self._texts = places, texts

    def __getitem__(self, column: str) -> str:
        place = self._places[column]
        return "" if place is None else self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: ``cells`` has every column of the schema ("" if blank or missing), in the schema's words (``spelling``).

    ``assumed``: rules for ambiguous cells.
    """

    path: Path
    line: int
    cells: Mapping[str, str]
    assumed: tuple[str, ...] = ()

    def __getitem__(self, column: str) -> str:
        return self.cells[column]

    def where(self, column: str) -> str:
        """Return "file, line, column" of a cell for errors."""
        return f"{self.path}, line {self.line}, column {column}"


def read_rows(paths: Sequence[Path]) -> list[TableRow]:
    """Return the rows of all files in order.

    Raises:
        RequestError: a file cannot be read, is not a table of runs, or names a run twice.
    """
    rows: list[TableRow] = []
    seen: dict[str, TableRow] = {}
    for path in paths:
        for row in _read_file(path):
            name = row["run_id"]
            if name in seen:
                first = seen[name]
                raise RequestError(
                    f"every run_id must be there once, but {name!r} is in {first.path}, line {first.line} "
                    f"and in {path}, line {row.line}; name each file once and each run differently"
                )
            seen[name] = row
            rows.append(row)
    return rows


def _read_file(path: Path) -> list[TableRow]:
    """Return the rows of one file."""
    with opened_text(path, most=LARGEST_FILE_BYTES, kind="a table of runs") as text:
        reader = csv.reader(text, strict=True)
        try:
            table = _Table(path, _header(path, next(reader, None)))
            return [table.row(reader.line_num, cells) for cells in reader if cells]
        except csv.Error as error:
            raise RequestError(f"{path}, line {reader.line_num}: not a CSV table ({shown(error)})") from None


def _header(path: Path, header: list[str] | None) -> list[str]:
    """Check the first line and return its column names."""
    if not header:
        raise RequestError(f"{path} is empty; its first line must name the columns, at least {', '.join(REQUIRED)}")
    names = [name.strip() for name in header]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise RequestError(f"{path}, line 1: every column must be there once, but {', '.join(twice)} is there twice")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        shown = ", ".join(missing)
        raise RequestError(
            f"{path}, line 1: no table of measured runs: column {shown} is missing (see forerun validate -h)"
        )
    return names


class _Table:
    """One file: its columns, and the shared texts of its rows."""

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self._path, self._columns, self._header = path, len(header), tuple(header)
        self._places = dict.fromkeys((*REQUIRED, *OPTIONAL)) | {name: place for place, name in enumerate(header)}
        self._words: dict[str, str] = {}

    def row(self, line: int, cells: Sequence[str]) -> TableRow:
        """Check one line against the header and return it as a row."""
        if len(cells) != self._columns:
            raise RequestError(
                f"{self._path}, line {line}: {self._columns} columns are named, but this line has {len(cells)}"
            )
        read = [understood(column, cell.strip()) for column, cell in zip(self._header, cells, strict=True)]
        texts = tuple(self._once(text) for text, _ in read)
        row = TableRow(self._path, line, Cells(self._places, texts), tuple(rule for _, rule in read if rule))
        _check(row)
        return row

    def _once(self, text: str) -> str:
        """Return the shared object of a text."""
        if len(self._words) < MOST_WORDS:
            return self._words.setdefault(text, text)
        return self._words.get(text, text)


def _check(row: TableRow) -> None:
    """Raise RequestError for a cell that is impossible for any run."""
    if not row["run_id"]:
        raise RequestError(f"{row.where('run_id')}: every run needs a name, but this cell is blank")
    if row["outcome"] not in OUTCOMES:
        error = unknown("outcome", row["outcome"], OUTCOMES)
        raise RequestError(f"{row.where('outcome')}: {error}")
    for column in NUMERIC:
        text = row.cells[column]
        if text.startswith("-"):
            raise RequestError(f"{row.where(column)}: must not be negative, but is {shown(text)}")
        long = len(text) > 15 or "e" in text.lower()
        if long and not _number_below(text, LARGEST_NUMBER):
            raise RequestError(f"{row.where(column)}: must be below {LARGEST_NUMBER:g}, but is {shown(text)}")
    for column in ("step_time_s", "peak_mem_gib"):
        measured(row, column)


def _number_below(text: str, most: float) -> bool:
    """Whether a number is below ``most``; True for other texts, which are reported when they are read."""
    try:
        return float(text.replace(",", "").replace("_", "")) < most
    except ValueError:
        return True


def measured(row: TableRow, column: str) -> float | None:
    """Return a measured number, None if blank.

    Raises:
        RequestError: the cell is not a finite number of zero or more.
    """
    text = row[column]
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise RequestError(f"{row.where(column)}: must be a finite number of zero or more, but is {quoted(text)}")
    if value and not SMALLEST_NUMBER <= value <= LARGEST_NUMBER:
        raise RequestError(f"{row.where(column)}: is nothing that was measured: {quoted(text)}")
    return value
