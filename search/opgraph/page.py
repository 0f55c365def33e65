"""Limits as one HTML page that opens without a network: curves over the number of GPUs, and their tables."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from forerun.search.board.rows import Row
from forerun.search.figures.markup import Safe, joined, table, tag
from forerun.search.figures.still_page import section, still_page
from forerun.search.opgraph.limits import FamilyLimits, Limits, efficiency
from forerun.search.order.objectives import OBJECTIVES
from forerun.spaces.files import write_text
from forerun.spaces.opgraph.split import Split
from forerun.spaces.units import format_count, format_seconds

WIDTH, HEIGHT, LEFT, BELOW, RIGHT = 720, 372, 64, 52, 150
COLOURS = 10
"""Colours of the page's style, k0 to k9."""


def write_page(path: Path, limits: Limits) -> None:
    """Write the page atomically.

    Raises:
        RequestError: the path cannot be written.
    """
    write_text(path, limits_page(limits))


def limits_page(limits: Limits) -> str:
    """Return the page. Its Content-Security-Policy forbids scripts and loading."""
    setting, context = limits.setting, limits.setting.context
    sample = context.model.sample
    title = f"{context.model.name} on {context.cluster.name}: scaling limits of each family of splits"
    memory = limits.families[0].best.memory_limit_gib
    sections = (
        section("useful", "Scaling limits", _useful(limits)),
        section(
            "throughput", f"{sample.capitalize()}s per second", _chart(limits.families, _throughput, f"{sample}s/s")
        ),
        section("efficiency", "Efficiency", _chart(limits.families, _efficient(limits), "share of one device's rate")),
        section(
            "memory",
            "Memory of the fullest GPU",
            _chart(limits.families, lambda row: row.peak_memory_gib, "GiB", mark=(memory, "usable")),
        ),
        section("doubling", "What twice as much would bring", _doubling(limits)),
        section("points", "Every point", _points(limits, sample)),
    )
    asked = (
        f"Global batch {setting.request.global_batch}, {context.precision}, {context.profile.name}; "
        f"{OBJECTIVES['throughput'].title_in(sample)} at every number of GPUs. All figures are predicted."
    )
    remarks = [tag("p", line, class_="hint") for line in setting.remarks()]
    return still_page(title=title, subtitle=asked, content=[*sections, *remarks])


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Safe:
    lines = [tag("tr", *(tag("td", str(cell)) for cell in row)) for row in rows]
    return tag("div", table(heads, lines), class_="scroll")


def _useful(limits: Limits) -> Safe:
    rows = [
        (
            family.family,
            family.useful_gpus,
            format_count(family.best.throughput),
            family.stops,
            family.law,
        )
        for family in limits.families
    ]
    never = [tag("p", f"{name} fits on none of these numbers of GPUs; {why}.") for name, why in limits.never.items()]
    heads = ("family", "useful GPUs", f"{limits.setting.context.model.sample}s/s", "limit reached", "hard limit")
    return joined([_table(heads, rows), *never])


def _doubling(limits: Limits) -> Safe:
    names = [change.what for change in limits.families[0].changes]
    rows = [
        (
            family.family,
            family.useful_gpus,
            *("does not fit" if change.gain is None else f"{change.gain:+.1%}" for change in family.changes),
        )
        for family in limits.families
    ]
    return _table(("family", "GPUs", *names), rows)


def _points(limits: Limits, sample: str) -> Safe:
    rows = [
        (
            family.family,
            row.gpus,
            row.graph.global_batch,
            row.name,
            f"{row.throughput:,.1f}",
            f"{efficiency(family.curve[0], row):.0%}",
            format_seconds(row.step_time_s),
            f"{row.peak_memory_gib:.1f}",
            row.graph.bottleneck,
        )
        for family in limits.families
        for row in family.curve
    ]
    heads = ("family", "GPUs", "batch", "split", f"{sample}s/s", "efficiency", "step", "GiB", "bottleneck")
    return _table(heads, rows)


def _throughput(row: Row[Split]) -> float:
    return row.throughput


def _efficient(limits: Limits) -> Callable[[Row[Split]], float]:
    """Efficiency over the best single point with the fewest GPUs."""
    base = min((family.curve[0] for family in limits.families), key=lambda row: (row.gpus, -row.throughput))
    return lambda row: efficiency(base, row)


def _chart(
    families: Sequence[FamilyLimits],
    value: Callable[[Row[Split]], float],
    unit: str,
    *,
    mark: tuple[float, str] | None = None,
) -> Safe:
    """Return lines over the number of GPUs, both axes logarithmic, each named at its end; ``mark`` is a level line."""
    points = [[(float(row.gpus), value(row)) for row in family.curve] for family in families]
    flat = [point for line in points for point in line]
    levels = [level for _, level in flat] + ([mark[0]] if mark else [])
    across, up = _scale([gpus for gpus, _ in flat], LEFT, WIDTH - RIGHT), _scale(levels, HEIGHT - BELOW, 12)
    children: list[Safe] = []
    for gpus in _powers([gpus for gpus, _ in flat]):
        children.append(tag("text", f"{gpus:g}", x=f"{across(gpus):.1f}", y=HEIGHT - 28, text_anchor="middle"))
    for level in _decades(levels):
        y = up(level)
        children.append(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", stroke="var(--line)", stroke_width=1)
        )
        children.append(tag("text", _short(level), x=LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    if mark is not None:
        y = up(mark[0])
        children.append(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", stroke="var(--warn)", stroke_width=2)
        )
        children.append(tag("text", mark[1], x=LEFT + 6, y=f"{y + 14:.1f}"))
    taken: list[tuple[float, float]] = []
    for number, (family, line) in enumerate(zip(families, points, strict=True)):
        children += _line(family.family, line, across, up, number % COLOURS, taken)
    label = tag("text", f"{unit} against GPUs", x=LEFT, y=HEIGHT - 8, class_="unit")
    described = (
        f"{unit} against the number of GPUs, a line for each family of splits; the figures are in the table below"
    )
    return tag(
        "svg",
        *children,
        label,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=described,
        style="max-width:54rem;width:100%;height:auto;font:12px system-ui,sans-serif;fill:var(--text)",
    )


def _line(
    name: str,
    points: Sequence[tuple[float, float]],
    across: Callable[[float], float],
    up: Callable[[float], float],
    colour: int,
    taken: list[tuple[float, float]],
) -> list[Safe]:
    places = [(across(gpus), up(level)) for gpus, level in points]
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    stroke = f"var(--c{colour})"
    drawn = [tag("path", d=path, fill="none", stroke=stroke, stroke_width=2)]
    for (x, y), (gpus, level) in zip(places, points, strict=True):
        title = tag("title", f"{name}: {level:,.4g} on {gpus:g} GPUs")
        drawn.append(tag("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r=3, fill=stroke))
    x, y = places[-1]
    # Names of lines with close ends are placed below each other.
    while any(abs(x - left) < 90 and abs(y - top) < 13 for left, top in taken):
        y += 13
    taken.append((x, y))
    drawn.append(tag("text", name, x=f"{x + 8:.1f}", y=f"{y + 4:.1f}", style=f"fill:{stroke}"))
    return drawn


def _scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    """Return the position of a value between ``first`` and ``last``, by logarithm."""
    low, high = math.log(min(values)), math.log(max(values))
    if high - low < 0.2:  # one value, or nearly: in the middle
        low, high = low - 0.5, high + 0.5
    return lambda value: first + (math.log(value) - low) / (high - low) * (last - first)


def _powers(counts: Sequence[float]) -> list[int]:
    ordered = sorted({int(count) for count in counts})
    return ordered if len(ordered) <= 12 else ordered[:: math.ceil(len(ordered) / 12)]


def _decades(values: Sequence[float]) -> list[float]:
    """Return round numbers within the values: 1, 2 and 5 of every decade, or decades alone if there are many."""
    low, high = min(values), max(values)
    steps = [factor * 10.0**power for power in range(-4, 12) for factor in (1, 2, 5)]
    ticks = [step for step in steps if low <= step <= high]
    return ticks if len(ticks) <= 8 else [step for step in ticks if math.log10(step) % 1 < 1e-9]


def _short(value: float) -> str:
    return format_count(value) if value >= 1000 else f"{value:g}"
