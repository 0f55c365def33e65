"""The user's current run compared with the best row: time, memory, helpful changes, measured step."""

from collections.abc import Sequence

from forerun.search.answer.baseline import Baseline
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.figures.markup import Safe, column, joined, numbers_line, scrolled, table, tag
from forerun.search.figures.plane import number
from forerun.search.report.bars import Bar, memory_bars, time_bars
from forerun.spaces.units import format_seconds

NOTHING = 5e-4
"""Share of the total below which a part is omitted from the tables, if it is that small in both runs."""


def own_run_section(board: Leaderboard) -> Safe | None:
    """Return the comparison of the user's run with the first row; None if no run was named."""
    baseline = board.baseline
    if baseline is None:
        return None
    best, present = board.rows[0], baseline.row
    return joined(
        [
            tag("p", tag("code", present.name), class_="winner"),
            tag("p", _summary(baseline, board)),
            _bars(best, present),
            tag("h3", "Difference"),
            _differences(baseline, best),
            _changes(baseline),
            _notes(baseline),
        ]
    )


def _summary(baseline: Baseline, board: Leaderboard) -> str:
    predicted = f"From {baseline.source}, read as {baseline.format}; predicted" if baseline.format else "Predicted"
    rows = len(board.rows)
    faster = "All" if baseline.faster_rows == rows else f"{baseline.faster_rows:,}"
    text = (
        f"{baseline.text} {predicted} as {baseline.framework}. "
        f"{faster} of the {rows:,} rows of the leaderboard are faster per GPU."
    )
    measured = baseline.measured
    if measured is not None and measured.counted is not None:
        text += (
            f" Measured: {format_seconds(measured.step_time_s)}, the median of {measured.counted:,} steps of "
            f"{measured.source}; {format_seconds(measured.low_s or 0.0)} to {format_seconds(measured.high_s or 0.0)}."
        )
    return text


def _bars(best: Row, present: Row) -> Safe:
    """Return time and memory of both runs, each pair on one scale."""
    rows = (("best", best), ("your run", present))
    steps = [Bar(label=name, value=format_seconds(row.step_time_s), parts=row.breakdown_s) for name, row in rows]
    memory = [
        Bar(label=name, value=f"{row.peak_memory_gib:.1f} GiB", parts=row.memory_gib, limit=row.memory_limit_gib)
        for name, row in rows
    ]
    return joined(
        [
            tag("h3", "Time of a step"),
            time_bars(steps, digits=3, rows="run"),
            tag("h3", "Memory of the fullest GPU"),
            memory_bars(memory, rows="run"),
        ]
    )


def _differences(baseline: Baseline, best: Row) -> Safe:
    """Return the difference of every part from the best row."""
    present = baseline.row
    seconds, gib = baseline.difference_s(best), baseline.difference_gib(best)
    scale = present.gpus / best.gpus
    lines = [
        _line(part, best.breakdown_s[part], scale * present.breakdown_s[part], seconds[part], "s", 3)
        for part in seconds
        if max(best.breakdown_s[part], present.breakdown_s[part]) > NOTHING * best.step_time_s
    ]
    lines.append(_line("step", best.step_time_s, scale * present.step_time_s, sum(seconds.values()), "s", 3))
    lines += [
        _line(f"{part} (memory)", best.memory_gib[part], present.memory_gib[part], gib[part], "GiB", 2)
        for part in gib
        if max(best.memory_gib[part], present.memory_gib[part]) > NOTHING * best.peak_memory_gib
    ]
    lines.append(_line("peak memory", best.peak_memory_gib, present.peak_memory_gib, sum(gib.values()), "GiB", 2))
    scaled = (
        "" if present.gpus == best.gpus else f" Times are those of {best.gpus:,} GPUs: yours runs on {present.gpus:,}."
    )
    return _table(f"Your run less the best, part by part.{scaled}", ("part", "best", "your run", "difference"), lines)


def _line(name: str, best: float, present: float, gap: float, unit: str, digits: int) -> Safe:
    return numbers_line(
        name, f"{best:,.{digits}f} {unit}", f"{present:,.{digits}f} {unit}", f"{gap:+,.{digits}f} {unit}"
    )


def _changes(baseline: Baseline) -> Safe | None:
    if not baseline.changes:
        return None
    lines = [
        numbers_line(
            tag("code", change.words),
            f"{change.added_s / baseline.row.step_time_s:+.1%}",
            number(change.row.throughput_per_gpu),
            f"{change.row.peak_memory_gib:.1f}",
        )
        for change in baseline.changes
    ]
    return _table(
        "Changes of one axis that help your run most, by closed forms", ("change", "step", "tok/s/GPU", "GiB"), lines
    )


def _notes(baseline: Baseline) -> Safe | None:
    """Return the settings of the files that the prediction ignores."""
    items: list[str] = list(baseline.notes)
    items += [f"unknown setting: {key} = {value}" for key, value in baseline.unknown.items()]
    items += [f"changes speed or memory, and is not modelled: {key} = {v}" for key, v in baseline.unmodelled.items()]
    listed = [tag("li", text) for text in items]
    if baseline.other:
        settings = ", ".join(f"{key} = {value}" for key, value in baseline.other.items())
        more = tag("summary", f"{len(baseline.other):,} harmless settings")
        listed.append(tag("li", tag("details", more, tag("p", settings))))
    return joined([tag("h3", "Notes about your run"), tag("ul", *listed)]) if listed else None


def _table(caption: str, names: Sequence[str], lines: Sequence[Safe]) -> Safe:
    heads = [names[0], *(column(name) for name in names[1:])]
    return scrolled(table(heads, lines, caption=caption), caption)
