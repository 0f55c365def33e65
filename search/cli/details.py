"""One strategy, or two, on the terminal: parts of the step and of memory as tables with bars."""

from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.search.answer.explain.explain import MEANING, MEMORY_MEANING, Explanation
from forerun.search.board.requested import ScoredChange
from forerun.search.board.rows import GIB, AnyRow
from forerun.search.cli.bars import Brush
from forerun.search.cli.console import brush_of
from forerun.simulator.assignment.operators import OperatorPass
from forerun.spaces.units import format_seconds

BAR = 20
MOST_STAGES = 16
MOST_OPERATORS = 10


def headline(row: AnyRow) -> list[Text]:
    """Return a row in a few lines."""
    on = f" on stage {row.peak_stage}" if row.facts is None else ""
    memory = f"peak memory {row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f} GiB{on}"
    if not row.fits:
        memory += f": does not fit, {row.excess_gib:.1f} GiB too much"
    level, lines = f"{row.interval_level or 0:.0%}", []
    if row.step_time_low_s is not None and row.step_time_high_s is not None:
        source = f" ({row.evidence.source})" if row.evidence is not None else ""
        bounds = f"{format_seconds(row.step_time_low_s)} and {format_seconds(row.step_time_high_s)}"
        lines.append(f"{level} of measured steps are expected between {bounds}{source}")
    if row.peak_memory_low_gib is not None and row.peak_memory_high_gib is not None:
        memory += f" ({level} between {row.peak_memory_low_gib:.1f} and {row.peak_memory_high_gib:.1f} GiB)"
    lines = [
        f"{row.gpus} GPUs: step {format_seconds(row.step_time_s)}, {row.throughput:,.0f} {row.unit}s/s, "
        f"{row.throughput_per_gpu:,.1f} {row.unit}s/s/GPU, MFU {row.mfu:.1%}",
        *lines,
        memory,
        *([row.risk_text] if row.risk_text else []),
    ]
    if row.cost_usd_per_hour is not None:
        lines.append(f"{row.cost_usd_per_hour:,.2f} USD/h, {row.usd_per_million:.3g} USD per million {row.unit}s")
    if row.watts_per_gpu is not None:
        lines.append(f"{row.watts_per_gpu:,.0f} W per GPU, {row.joules_per_unit:.3g} J per {row.unit}")
    if row.train_days is not None:
        cost = "" if row.train_cost_usd is None else f", {row.train_cost_usd:,.0f} USD"
        hours = f"{row.train_gpu_hours:,.0f} GPU-hours{cost}{row.energy_text}"
        lines.append(f"whole training: {row.train_days:,.1f} days, {hours}")
    marks = [Text(f"! {mark}", style="yellow") for mark in row.marks]
    return [Text(row.name, style="bold"), *map(Text, lines), *marks]


def step_table(row: AnyRow, brush: Brush, console: Console) -> Table:
    """Return the parts of a step."""
    parts = [(part, value, format_seconds(value)) for part, value in row.breakdown_s.items()]
    return _parts_table("step", parts, row.step_time_s, format_seconds(row.step_time_s), brush, console)


def memory_table(row: AnyRow, brush: Brush, console: Console) -> Table:
    """Return the parts of the fullest device's memory, and the moment of their peak."""
    at_loss = row.memory_gib.get("logits", 0.0) > 0.0 == row.memory_gib.get("working", 0.0)
    moment = "at loss" if at_loss else "backward"
    parts = [(part, value, f"{value:.2f} GiB") for part, value in row.memory_gib.items()]
    return _parts_table(
        f"memory of stage {row.peak_stage}, {moment}" if row.facts is None else "memory of the fullest device",
        parts,
        row.peak_memory_gib,
        f"{row.peak_memory_gib:.2f} GiB",
        brush,
        console,
    )


def memory_stack(row: AnyRow, brush: Brush, width: int) -> Text:
    """Return the memory parts as one bar of the device's memory."""
    text = Text("[").append_text(brush.bar(row.memory_gib, width, full=max(row.memory_limit_gib, row.peak_memory_gib)))
    text.pad_right(width + 1 - len(text))
    return text.append(f"] {row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f} GiB")


def stage_stacks(stages: Sequence[Mapping[str, float]], limit_bytes: float, brush: Brush, width: int) -> Text:
    """Return a bar of memory parts (bytes) for every stage, on a device's scale; a selection of many stages."""
    count = len(stages)
    shown = sorted({round(place * (count - 1) / (MOST_STAGES - 1)) for place in range(MOST_STAGES)})
    full = max(limit_bytes, *(sum(stage.values()) for stage in stages))
    text = Text()
    for number in range(count) if count <= MOST_STAGES else shown:
        parts = stages[number]
        bar = Text(f"stage {number:<3} [").append_text(brush.bar(parts, width, full=full))
        bar.pad_right(width + 11 - len(bar))
        text.append_text(bar).append(f"] {sum(parts.values()) / GIB:5.1f} GiB\n")
    return text.append_text(brush.legend(stages, width=width + 22))


def operators_table(explanation: Explanation) -> Table:
    """Return the slowest operators on the busiest stage, forward and backward."""
    title = f"slowest operators of stage {explanation.busiest}, per step: share of peak, and what bounds them"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left")
    table.add_column("operator", overflow="fold", min_width=24)
    for name in ("forward", "of peak", "backward", "of peak"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in explanation.operators[:MOST_OPERATORS]:
        cells = [cell for run in (one.forward, one.backward) for cell in _operator_cells(run)]
        table.add_row(Text(one.name), *map(Text, cells))
    return table


def _operator_cells(run: OperatorPass | None) -> tuple[str, str]:
    if run is None:
        return "", ""
    return format_seconds(run.seconds), f"{run.share:.0%} {run.bound.removesuffix(' cores'):>6}"


def changes_table(title: str, changes: Sequence[ScoredChange]) -> Table:
    """Return changes of one axis with their effects on time and memory."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left")
    table.add_column("change", overflow="fold", min_width=24)
    for name in ("step", "by", "GiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for change in changes:
        before = change.row.step_time_s - change.added_s
        table.add_row(
            Text(change.words),
            Text(format_seconds(change.row.step_time_s)),
            Text(f"{change.added_s / before:+.1%}"),
            Text(f"{change.row.peak_memory_gib:.1f}" + ("" if change.row.fits else " (too much)")),
        )
    return table


def explained(explanation: Explanation, timeline: Text, console: Console) -> list[Text | Table]:
    """Return one strategy in full: row, time, operators, memory, its step as a ``timeline``, changes."""
    brush, row, stages = brush_of(console), explanation.row, explanation.stages
    if len(stages) > 1:
        bars = stage_stacks(stages, row.memory_limit_gib * GIB, brush, min(60, console.width - 26))
    else:
        bars = memory_stack(row, brush, min(60, console.width - 24))
    groups = (
        ("changes that help most", explanation.helping()),
        ("changes that hurt most", explanation.hurting()),
        ("changes that save most memory", explanation.saving_memory()),
    )
    return [
        *headline(row),
        Text(),
        Text(explanation.text),
        step_table(row, brush, console),
        operators_table(explanation),
        memory_table(row, brush, console),
        bars,
        Text(),
        timeline,
        Text(),
        *(changes_table(title, changes) for title, changes in groups if changes),
    ]


def comparison_table(first: AnyRow, second: AnyRow, *, names: tuple[str, str] = ("A", "B")) -> Table:
    """Return a table of two rows with titles ``names`` and the differences of the second from the first."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in (*names, f"{names[1]} - {names[0]}"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in first.breakdown_s:
        _compare(table, part, first.breakdown_s[part], second.breakdown_s[part], "s")
    _compare(table, "step", first.step_time_s, second.step_time_s, "s", style="bold")
    bounds = [(row.step_time_low_s, row.step_time_high_s) for row in (first, second)]
    _add_intervals(table, first, bounds, lambda low, high: f"{low:.4g} to {high:.4g} s")
    _compare(table, f"{first.unit}s/s/GPU", first.throughput_per_gpu, second.throughput_per_gpu, "")
    _compare(table, "MFU", 100 * first.mfu, 100 * second.mfu, "%")
    table.add_section()
    for part in first.memory_gib:
        _compare(table, part, first.memory_gib[part], second.memory_gib[part], "GiB")
    _compare(table, "peak memory", first.peak_memory_gib, second.peak_memory_gib, "GiB", style="bold")
    bounds = [(row.peak_memory_low_gib, row.peak_memory_high_gib) for row in (first, second)]
    _add_intervals(table, first, bounds, lambda low, high: f"{low:.1f} to {high:.1f} GiB")
    return table


def _add_intervals(
    table: Table,
    row: AnyRow,
    bounds: Sequence[tuple[float | None, float | None]],
    text: Callable[[float, float], str],
) -> None:
    """Add a line with the intervals of both rows, if any."""
    cells = [text(low, high) for low, high in bounds if low is not None and high is not None]
    if len(cells) == len(bounds):
        table.add_row(Text(f"{row.interval_level or 0:.0%} between"), *map(Text, cells), "", style="dim")


def _compare(table: Table, name: str, first: float, second: float, unit: str, *, style: str = "") -> None:
    if first == second == 0:
        return
    digits = 3 if unit == "s" else 1
    cells = [f"{first:,.{digits}f} {unit}", f"{second:,.{digits}f} {unit}", f"{second - first:+,.{digits}f} {unit}"]
    table.add_row(Text(name), *map(Text, cells), style=style)


def _parts_table(
    title: str, parts: Sequence[tuple[str, float, str]], total: float, total_text: str, brush: Brush, console: Console
) -> Table:
    """Return a table of parts (name, value, text) that add up to ``total``; zero parts are omitted."""
    meanings = MEANING if title == "step" else MEMORY_MEANING
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_footer=True)
    table.add_column(title, "total", no_wrap=True)
    table.add_column("", total_text, justify="right", no_wrap=True)
    table.add_column("share", "100%", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=BAR)
    if console.width >= 100:
        table.add_column("", overflow="fold")
    for part, value, text in parts:
        if value == 0:
            continue
        cells = [Text(part), Text(text), Text(f"{value / total:.1%}"), brush.bar({part: value}, BAR, full=total)]
        table.add_row(*cells, *([Text(meanings[part], style="dim")] if console.width >= 100 else []))
    return table
