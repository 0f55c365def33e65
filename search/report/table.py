"""The leaderboard as an HTML table, which the page's script makes sortable and filterable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from forerun.search.board.leaderboard import NEAR_MARK, Leaderboard
from forerun.search.board.rows import Row
from forerun.search.figures.markup import Safe, joined, table, tag
from forerun.search.figures.plane import number
from forerun.search.report.axes import Value, distinct
from forerun.spaces.units import format_count, format_seconds

FRONT_MARK = "Pareto front"
"""Note on a row that is Pareto-optimal in throughput per GPU and memory."""

NARROW = ("gpus", "tokens_gpu", "step", "memory")
"""Columns on screens of any width."""
MIDDLE = ("mfu", "days")
"""Further columns from middle width on."""

Figure = Callable[[Row], float | None]
Format = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: ``text`` shows a row's value, ``sort`` orders it. ``first`` is the direction of the first click."""

    key: str
    title: str
    meaning: str
    text: Callable[[Row], str]
    sort: Callable[[Row], float]
    first: str = "ascending"

    @property
    def style(self) -> str:
        """Class of its cells: "more" is hidden on narrow screens, "most" also on screens of middle width."""
        return "n" if self.key in NARROW else "n more" if self.key in MIDDLE else "n most"


def columns_of(rows: Sequence[Row], *, several: bool, bounded: bool = False) -> list[Column]:
    """Return the informative columns; ``several``: several GPU counts; ``bounded``: the OOM risk is limited."""
    limits = {f"{row.memory_limit_gib:.0f}" for row in rows}
    seconds = 0 if rows[0].step_time_s >= 100 else 2 if rows[0].step_time_s >= 1 else 4
    unit, short = rows[0].unit, rows[0].short_unit
    columns = [
        _column(
            "tokens_gpu", f"{short}/s/GPU", f"{unit}s per second and GPU", lambda r: r.throughput_per_gpu, number, True
        ),
        _column("mfu", "MFU", "model FLOPs over the dense peak", lambda r: r.mfu, lambda v: f"{v:.1%}", True),
        _column("step", "step (s)", "seconds per step", lambda r: r.step_time_s, lambda v: f"{v:,.{seconds}f}"),
        _column(
            "memory",
            f"GiB of {limits.pop()}" if len(limits) == 1 and not bounded else "GiB",
            "peak memory of the fullest GPU, of what a GPU has",
            lambda r: r.peak_memory_gib,
            lambda v: f"{v:.1f}",
        ),
    ]
    if several:
        columns.insert(0, _column("gpus", "GPUs", "GPUs in use", lambda r: r.gpus, lambda v: f"{v:,.0f}"))
        columns.insert(1, _column("tokens", f"{short}/s", f"{unit}s per second", lambda r: r.throughput, number, True))
    optional: tuple[tuple[str, str, str, Figure, Format], ...] = (
        ("usd", f"USD/M{short}", f"USD per million {unit}s", lambda r: r.usd_per_million, lambda v: f"{v:.4f}"),
        ("days", "days", "days of the whole training", lambda r: r.train_days, number),
        ("total", "USD", "USD for the whole training", lambda r: r.train_cost_usd, format_count),
        ("energy", "MWh", "MWh that the GPUs take for the whole training", lambda r: r.train_mwh, number),
    )
    for key, title, meaning, value, text in optional:
        if all(value(row) is not None for row in rows):
            columns.append(_column(key, title, meaning, value, text))
    return columns


def leaderboard_table(board: Leaderboard, rows: Sequence[Row], front: frozenset[int]) -> Safe:
    """Return the table; ``front`` has the positions of Pareto-optimal ``rows``."""
    several, bounded = len(board.request["gpu_counts"]) > 1, board.request.get("oom_risk") is not None
    columns = columns_of(rows, several=several, bounded=bounded)
    left_out = "" if len(rows) == len(board.rows) else f" of the {len(board.rows):,} kept"
    caption = (
        f"The best {len(rows):,}{left_out}, of {board.space.legal:,} legal strategies. "
        "GiB is the peak of the fullest GPU; MFU counts no recomputed work."
    )
    head = [
        tag("th", "#", scope="col", class_="n", data_first="ascending", aria_sort="ascending", title="rank"),
        tag("th", "strategy", scope="col", data_first="ascending"),
        *(
            tag(
                "th",
                column.title,
                scope="col",
                class_=column.style,
                data_first=column.first,
                data_key=column.key,
                title=column.meaning,
            )
            for column in columns
        ),
        tag("th", "notes", scope="col", data_first="descending", class_="more"),
    ]
    body = [_line(place, row, columns, place in front) for place, row in enumerate(rows)]
    return table(head, body, caption=caption, id="board")


def filter_form(columns: Mapping[str, Sequence[Value]], *, example: str = "tp4 recompute=full") -> Safe:
    """Return the filters of the table, with an ``example`` of words; hidden until the script runs."""
    find = tag(
        "label",
        tag("span", "words of the strategy"),
        tag("input", type="search", id="find", placeholder=example, autocomplete="off"),
    )
    fields = []
    for axis, values in columns.items():
        options = [tag("option", "any", value=""), *(tag("option", value) for value in distinct(values))]
        fields.append(tag("label", tag("span", axis), tag("select", *options, data_axis=axis)))
    by_axis = None
    if fields:
        by_axis = tag("details", tag("summary", "Filter by axis"), tag("div", *fields, class_="fields"), id="by-axis")
    checks = [
        tag("label", tag("input", type="checkbox", id="front"), " Pareto front only", class_="check"),
        tag("label", tag("input", type="checkbox", id="clean"), " without warnings", class_="check"),
        tag("button", "Reset", type="reset"),
    ]
    status = tag("p", class_="status", id="shown", role="status")
    checked = tag("div", *checks, class_="checks")
    return tag(
        "form",
        tag("div", find, class_="fields"),
        by_axis,
        checked,
        status,
        id="filter",
        aria_label="Filter the leaderboard",
        hidden=True,
    )


def _column(
    key: str,
    title: str,
    meaning: str,
    value: Figure,
    text: Format,
    larger_first: bool = False,
) -> Column:
    return Column(
        key=key,
        title=title,
        meaning=meaning,
        text=lambda row: text(value(row) or 0.0),
        sort=lambda row: value(row) or 0.0,
        first="descending" if larger_first else "ascending",
    )


MOST_VARIANTS = 10
"""Variants that open below a row; the rest is counted."""


def _variants(row: Row) -> Safe | None:
    """Return the folded list of a row's variants; None without variants."""
    if not row.variants:
        return None
    items = [
        tag("li", tag("code", str(one.strategy)), f" {format_seconds(one.step_time_s)}, {one.peak_memory_gib:.1f} GiB")
        for one in row.variants[:MOST_VARIANTS]
    ]
    if more := len(row.variants) - len(items):
        items.append(tag("li", f"{more} more (--all-variants)"))
    return tag("details", tag("summary", f"+{len(row.variants)} variants within 1%"), tag("ul", *items))


def _line(place: int, row: Row, columns: Sequence[Column], on_front: bool) -> Safe:
    warnings = [mark for mark in row.marks if mark != NEAR_MARK]
    notes = [tag("span", mark, class_="mark warn") for mark in warnings]
    notes += [tag("span", NEAR_MARK, class_="mark")] if NEAR_MARK in row.marks else []
    notes += [tag("span", FRONT_MARK, class_="mark")] if on_front else []
    return tag(
        "tr",
        tag("td", row.rank, class_="n"),
        tag("th", tag("code", " ".join(filter(None, (row.name, row.precision)))), _variants(row), scope="row"),
        *(tag("td", column.text(row), class_=column.style, data_v=f"{column.sort(row):.6g}") for column in columns),
        tag("td", joined(notes), data_v=len(warnings), class_="more"),
        id=f"r{place}",
        data_front=on_front,
        data_warned=bool(warnings),
    )
