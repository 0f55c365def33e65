"""Results in notebooks: small HTML tables and bars.

Elements have inline styles, because notebooks drop style sheets; texts have the notebook's colour.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.spaces.files import write_text
from forerun.spaces.units import format_seconds


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing that a notebook shows; ``html`` is its markup."""

    html: str

    def save(self, path: "str | Path") -> None:
        """Write the drawing as a page.

        Raises
        ------
        RequestError
            The file cannot be written.
        """
        write_text(Path(path), f"<!doctype html><meta charset=utf-8>{self.html}")

    def _repr_html_(self) -> str:
        return self.html


Plain = Mapping[str, Any]
"""A row or a change as ``to_json`` returns it."""

SHOWN = 20
"""Rows that a notebook shows; ``to_pandas`` has all of them."""
LEAST_SHARE = 0.002
"""Share of a bar below which a part is left out."""
COLOURS = ("#2c7048", "#806410", "#2166ac", "#0e7c86", "#b03a6f", "#a0500f", "#c0392b", "#5b4bb5", "#8436a8", "#6b6f76")
"""Colours of the parts in order, as in the light theme of the report, with a contrast of 3 against white and black."""
HEADS = ("#", "strategy", "GPUs", "{}/s/GPU", "MFU", "step", "GiB", "notes")


def rows_html(rows: Sequence[Plain], *, title: str, text: str) -> str:
    """Return the first rows as an HTML table with a caption and a paragraph; texts are escaped."""
    unit, _ = _speed(rows[0]) if rows else ("token", 0.0)
    short = "tok" if unit == "token" else f"{unit}s"
    head = "".join(f'<th scope="col">{name.format(short)}</th>' for name in HEADS)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:SHOWN])
    more = f"<p>{len(rows) - SHOWN:,} more rows.</p>" if len(rows) > SHOWN else ""
    return (
        f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{more}<p>{html.escape(text)}</p>"
    )


def row_text(row: Plain) -> str:
    """Return the figures of a strategy as one line."""
    fits = "" if row["fits"] else f", {row['peak_memory_gib'] - row['memory_limit_gib']:.1f} GiB too much"
    unit, speed = _speed(row)
    stage = f" on stage {row['peak_stage']}" if unit == "token" else ""
    return (
        f"{row['gpus']:,} GPUs; step {format_seconds(row['step_time_s'])}; "
        f"{speed:,.0f} {unit}s/s per GPU; MFU {row['mfu']:.1%}; "
        f"{row['peak_memory_gib']:.1f} of {row['memory_limit_gib']:.1f} GiB{stage}{fits}"
    )


def row_html(row: Plain) -> str:
    """Return a strategy with its figures and with bars of the parts of its step and memory."""
    marks = f"<p>! {html.escape('; '.join(row['marks']))}</p>" if row["marks"] else ""
    return (
        f"<p><code>{html.escape(row['strategy'])}</code></p><p>{row_text(row)}</p>{marks}"
        f"{bar_html('step', row['breakdown_s'], row['step_time_s'])}"
        f"{bar_html('memory', row['memory_gib'], max(row['memory_limit_gib'], row['peak_memory_gib']))}"
    )


def bar_html(name: str, parts: Mapping[str, float], full: float) -> str:
    """Return parts as one stacked bar with a legend; ``full`` is the value of the full width."""
    boxes, legend = [], []
    for number, (part, amount) in enumerate(parts.items()):
        share = amount / full
        if share < LEAST_SHARE:
            continue
        colour = COLOURS[number % len(COLOURS)]
        boxes.append(f'<span style="width:{100 * share:.2f}%;background:{colour}" title="{part} {share:.1%}"></span>')
        legend.append(f'<span style="color:{colour}">&#9632;</span> {part} {share:.0%}')
    track = "display:flex;height:1.2em;max-width:50em;border:1px solid #8888"
    return f'<div>{name}<div style="{track}">{"".join(boxes)}</div><small>{" ".join(legend)}</small></div>'


def step_picture(steps: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw steps on one scale, each as a bar of its parts.

    Parameters
    ----------
    steps
        Seconds of each part by the name of the step.
    """
    longest = max((sum(parts.values()) for parts in steps.values()), default=1.0)
    bars = (bar_html(f"<code>{html.escape(name)}</code>", parts, longest) for name, parts in steps.items())
    return Picture(f"<div>{''.join(bars)}</div>")


def changes_html(changes: Sequence[Plain], *, title: str) -> str:
    """Return changes of one axis as a table."""
    lines = []
    for change in changes:
        row, added_s = change["row"], change["added_s"]
        lines.append(
            f"<tr><td>{html.escape(change['change'])}</td><td>{format_seconds(row['step_time_s'])}</td>"
            f"<td>{added_s / (row['step_time_s'] - added_s):+.1%}</td>"
            f"<td>{row['peak_memory_gib']:.1f}{'' if row['fits'] else ' (too much)'}</td></tr>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("change", "step", "by", "GiB"))
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _speed(row: Plain) -> tuple[str, float]:
    """Return the unit of a row's work, and the work of a GPU per second."""
    if "tokens_per_s_per_gpu" in row:
        return "token", row["tokens_per_s_per_gpu"]
    return row["unit"], row["samples_per_s_per_gpu"]


def _cells(row: Plain) -> str:
    _, speed = _speed(row)
    texts = (
        "" if row["rank"] is None else str(row["rank"]),
        row["strategy"],
        f"{row['gpus']:,}",
        f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}",
        f"{row['mfu']:.1%}",
        format_seconds(row["step_time_s"]),
        f"{row['peak_memory_gib']:.1f} of {row['memory_limit_gib']:.1f}",
        "; ".join(row["marks"]),
    )
    return "".join(f"<td>{html.escape(text)}</td>" for text in texts)
