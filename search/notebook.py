"""Results in notebooks: a small HTML table, and a table of pandas where pandas is installed."""

import html
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from forerun.search.rows import Row
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

SHOWN = 20
"""Rows that a notebook shows; ``to_pandas`` has all of them."""
HEADS = ("#", "strategy", "GPUs", "tok/s/GPU", "MFU", "step", "GiB", "notes")


def rows_html(rows: Sequence[Row], *, title: str, text: str) -> str:
    """Return the first rows as an HTML table with a caption and a paragraph; texts are escaped."""
    head = "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:SHOWN])
    more = f"<p>{len(rows) - SHOWN:,} more rows.</p>" if len(rows) > SHOWN else ""
    return (
        f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{more}<p>{html.escape(text)}</p>"
    )


def frame_of(lines: Sequence[Mapping[str, Any]]) -> Any:
    """Return flat lines as a ``pandas.DataFrame`` with a column per field.

    Raises:
        RequestError: pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise RequestError(
            "to_pandas() needs pandas, which is not installed; run `pip install pandas`, or use to_csv()"
        ) from None
    return pandas.DataFrame(list(lines))


def _cells(row: Row) -> str:
    texts = (
        "" if row.rank is None else str(row.rank),
        row.strategy,
        f"{row.gpus:,}",
        f"{row.tokens_per_s_per_gpu:,.0f}" if row.tokens_per_s_per_gpu >= 100 else f"{row.tokens_per_s_per_gpu:.3g}",
        f"{row.mfu:.1%}",
        format_seconds(row.step_time_s),
        f"{row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f}",
        "; ".join(row.marks),
    )
    return "".join(f"<td>{html.escape(text)}</td>" for text in texts)
