"""The timeline as text: one row per pipeline rank, one column per slice of the step."""

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from forerun.simulator.events.engine.kinds import COPY, KINDS, LETTERS, STREAMS
from forerun.simulator.events.step.result import EventResult
from forerun.spaces.units import format_seconds

Kind = TypeVar("Kind", bound=Hashable)

_LEGEND = [f"{letter} {kind}" for letter, kind in zip(LETTERS, KINDS, strict=True)]
_RARE = range(COPY, len(KINDS))
"""Kinds that only some trees have; the legend shows them only where they occur."""
MOST_ROWS = 32
"""Pipeline ranks shown on a terminal."""


def timeline_text(result: EventResult, width: int = 100) -> str:
    """Return a Gantt chart of the compute streams in ``width`` columns.

    Kinds alternate where a column has several (``deal_slices``). Above ``MOST_ROWS`` pipeline ranks only the first and
    the last are shown.
    """
    columns = max(width - 9, 10)
    rows = _occupied_s(result, columns)
    slice_s = result.step_time_s / columns
    lines = []
    count = len(result.stages)
    shown = list(range(count))
    if count > MOST_ROWS:
        shown = [*range(MOST_ROWS - MOST_ROWS // 4), *range(count - MOST_ROWS // 4, count)]
    for before, stage in itertools.pairwise((-1, *shown)):
        if stage > before + 1:
            lines.append(f"{'…':<8} {stage - before - 1} more")
        lines.append(f"{f'stage {stage}':<8} {_marks(rows[stage * len(STREAMS)], slice_s)}")
    scale = f"0{format_seconds(result.step_time_s):>{columns - 1}}"
    kinds = result.records.found()
    rare = [_LEGEND[kind] for kind in _RARE if kind in kinds]
    return "\n".join([*lines, f"{'':<8} {scale}", "  ".join([*_LEGEND[:COPY], ". idle", *rare])])


def _occupied_s(result: EventResult, columns: int) -> list[list[dict[int, float]]]:
    """Return the seconds by kind of every column of every stream."""
    records = result.records
    rows: list[list[dict[int, float]]] = [[{} for _ in range(columns)] for _ in result.occupied_s]
    scale = columns / result.step_time_s if result.step_time_s else 0.0
    for task, kind in enumerate(records.kinds()):
        low, high = float(records.start_s[task]) * scale, float(records.end_s[task]) * scale
        for stream in records.streams_of(task):
            row = rows[stream]
            for column in range(int(low), min(int(high) + 1, columns)):
                covered = min(high, column + 1) - max(low, column)
                if covered > 0:
                    row[column][kind] = row[column].get(kind, 0.0) + covered / scale
    return rows


def deal_slices(cells: Sequence[Mapping[Kind, float]], length: float) -> Iterator[Kind | None]:
    """Yield the kind shown by every slice of a timeline, None where it is idle; ``cells``: seconds by kind.

    A slice of length ``length`` shows one kind, and time that it does not show is carried to the next slice: in slices
    with many passes, kinds alternate in proportion to their time. Only a kind that runs in the slice is shown.

    >>> "".join(kind or "." for kind in deal_slices([{"F": 0.4, "B": 0.6}, {"F": 0.4, "B": 0.6}, {}], 1.0))
    'BF.'
    """
    owed: dict[Kind | None, float] = {None: 0.0}
    for cell in cells:
        for kind, time in cell.items():
            owed[kind] = owed.get(kind, 0.0) + time
        owed[None] += max(length - sum(cell.values()), 0.0)
        shown = max([*cell, None], key=lambda kind: owed[kind])
        owed[shown] -= length
        yield shown


def _marks(cells: Sequence[Mapping[int, float]], slice_s: float) -> str:
    """Return the letters of a row, a dot where it is idle."""
    return "".join("." if kind is None else LETTERS[kind] for kind in deal_slices(cells, slice_s))
