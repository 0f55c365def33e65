"""A leaderboard on the terminal."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from forerun.search.answer.notes.goodput import probability_in_time
from forerun.search.board.leaderboard import NEAR_MARK, Leaderboard
from forerun.search.board.rows import MAY_NOT_FIT_MARK, TIGHT_MARK, Row, closed_form_mark
from forerun.search.cli.bars import Brush
from forerun.search.cli.brief import decision, distinct_words, reason, shared_words, weighty_defaults, weighty_notes
from forerun.search.cli.console import brush_of, open_console, say
from forerun.search.cli.tables import StrategyText
from forerun.search.cli.trees import tree_lines
from forerun.search.explore.flat.bound import SLOWER
from forerun.search.measured.intervals import LEVEL
from forerun.search.order.objectives import objective_named
from forerun.simulator.memory.risk import RISKY, share_at
from forerun.spaces.units import format_count, format_seconds, format_whole

SECONDS_PER_DAY = 86400.0

if TYPE_CHECKING:
    from forerun.search.answer.baseline import Baseline
    from forerun.search.board.requested import NextRuns

QUIET, BRIEF, VERBOSE = "quiet", "brief", "verbose"
"""Levels of detail of a printed leaderboard."""
WIDE, WIDE_LINES, NARROW_LINES = 100, 40, 60
"""Columns of a wide terminal, and lines of output on a wide and on a narrower one."""
WIDTHS = {
    "#": 4,
    "strategy": 25,
    "GPUs": 5,
    "rate": 10,
    "MFU": 6,
    "step": 8,
    "range": 10,
    "memory": 10,
    "USD/M": 9,
}
"""Width of each column of a leaderboard, in characters."""
FIGURES = ("rate", "MFU", "step", "range", "memory", "USD/M")
FEWEST_ROWS = 3
"""Rows that are always shown, regardless of length."""
LEAST_BAR, MOST_BAR, MOST_STRATEGY = 8, 40, 64
MOST_ROWS = 1000
"""Most rows on a terminal: each takes a millisecond to lay out."""
GOES_FIRST = ("time", "range", "USD/M", "MFU")
"""Columns omitted on a narrow terminal, in this order."""
VARIANTS_LEGEND = "(+N) variants with the same degrees within 1% of the row; --all-variants lists them"
SAME_LEGEND = "= not significantly slower than a better rank (90 %; errors of similar strategies are correlated)"


def print_board(board: Leaderboard, detail: str = BRIEF, *, out: Path | None = None) -> None:
    """Print a leaderboard.

    Parameters
    ----------
    board
        Leaderboard to print.
    detail
        ``QUIET``: the table alone; ``BRIEF``: in one screen; ``VERBOSE``: all notes, counts and defaults.
    out
        Folder of the written search.
    """
    console = open_console()
    if detail == QUIET:
        baseline = None if board.baseline is None else board.baseline.row
        several = len(board.request["gpu_counts"]) > 1 or (baseline is not None and baseline.gpus != board.rows[0].gpus)
        bounded = board.request.get("oom_risk") is not None
        rows = board.rows[:MOST_ROWS]
        say(console, board_table(rows, console, brush_of(console), several=several, bounded=bounded, baseline=baseline))
        return
    above = _above(board, console, detail, out, board.rows[:MOST_ROWS])
    if detail == VERBOSE:
        notes, others = list(board.advice), 0
    else:
        notes, others = weighty_notes(board)
        least = sum(_height(console, part) for part in (*(Text(note) for note in notes[:1]), *brief_counts(board, 1)))
        room = (WIDE_LINES if console.width >= WIDE else NARROW_LINES) - least
        above, used = _within(room, board, console, out, above)
        notes, left_out = fitting(notes, console, room - used + sum(_height(console, Text(note)) for note in notes[:1]))
        others += left_out
    say(console, *above, *(Text(f"note: {note}") for note in notes))
    if board.measure_next is not None:
        say(console, *measure_lines(board.measure_next), "")
    if board.trees is not None:
        say(console, *tree_lines(board.trees), "")
    if board.baseline is not None:
        say(console, *baseline_lines(board.baseline, board.rows))
    say(console, *(counts(board) if detail == VERBOSE else brief_counts(board, others)))


def _within(
    room: int, board: Leaderboard, console: Console, out: Path | None, above: list[RenderableType]
) -> tuple[list[RenderableType], int]:
    """Shorten the table of rows until the parts above the notes fit in ``room`` lines.

    Returns the parts and their number of lines; ``FEWEST_ROWS`` rows stay.
    """
    rows = board.rows[:MOST_ROWS]
    while (used := sum(_height(console, part) for part in above)) > room and len(rows) > FEWEST_ROWS:
        rows = rows[: max(FEWEST_ROWS, len(rows) - (used - room))]
        above = _above(board, console, BRIEF, out, rows)
    return above, used


def _height(console: Console, part: RenderableType) -> int:
    return len(console.render_lines(part, console.options, pad=False))


def fitting(notes: Sequence[str], console: Console, room: int) -> tuple[list[str], int]:
    """Return the first notes that fit a number of lines, at least one, and the number of omitted ones."""
    shown, used = list[str](), 0
    for note in notes:
        used += _height(console, Text(f"note: {note}"))
        if shown and used > room:
            break
        shown.append(note)
    return shown, len(notes) - len(shown)


def _above(
    board: Leaderboard, console: Console, detail: str, out: Path | None, rows: Sequence[Row[Any]]
) -> list[RenderableType]:
    """Return the parts above the notes, with the first ``rows`` of the board."""
    brush, baseline = brush_of(console), None if board.baseline is None else board.baseline.row
    several = len({*board.request["gpu_counts"], *([] if baseline is None else [baseline.gpus])}) > 1
    bounded = board.request.get("oom_risk") is not None
    shared = shared_words(rows)
    table = board_table(rows, console, brush, several=several, bounded=bounded, baseline=baseline, shared=shared)
    parts: list[RenderableType] = [title(board)]
    parts += [Text(f"warning: {text}", style="yellow") for text in board.warnings]
    parts += [Text(board.unmeasured, style="yellow")] if board.unmeasured else []
    parts += [Text(line) for line in decision(board, out)]
    parts += [Text(f"all rows: {' '.join(shared)}")] if shared else []
    parts.append(table)
    if len(rows) < len(board.rows):
        complete = "--verbose, --json" if len(board.rows) <= MOST_ROWS else "--json"
        parts.append(Text(f"and {len(board.rows) - len(rows):,} more rows: {complete} and --out have all of them"))
    if table.columns[-1].header == "time":
        breakdowns = (row.breakdown_s for row in (*rows, *([] if baseline is None else [baseline])))
        parts.append(brush.legend(breakdowns, width=console.width))
    parts += _signs(board, detail)
    for mark in marks_of_all(rows):
        if mark not in (NEAR_MARK, TIGHT_MARK, MAY_NOT_FIT_MARK):
            parts.append(Text(f"! all rows: {mark}", style="yellow"))
    if letters := lettered(rows):
        marks = "; ".join(f"[{letter}] {mark}" for mark, letter in letters.items())
        parts.append(Text(f"! {marks}", style="yellow"))
    if detail == VERBOSE and any(row.variants for row in board.rows):
        parts.append(Text(VARIANTS_LEGEND, style="dim"))
    parts += [Text(limit_line(board), style="dim")] if bounded else []
    names = {row.name for row in rows}
    if families := [row for row in board.families if row.name not in names]:
        parts.append(Text("best of every other family", style="bold"))
        parts.append(board_table(families, console, brush, several=several))
    parts.append(Text(board.why if detail == VERBOSE else reason(board)))
    return parts + list(training_lines(board))


def _signs(board: Leaderboard, detail: str) -> list[Text]:
    """Return the legend of signs in one line, or (verbose) a line for each."""
    verbose = detail == VERBOSE
    tight = ", from measured runs at this predicted peak" if verbose else ""
    signs = (
        ("~", NEAR_MARK, " (below the prediction error)" if verbose else ""),
        ("!", TIGHT_MARK, f": OOM risk above {RISKY:.0%}{tight} (--oom-risk limits it)"),
        ("?", MAY_NOT_FIT_MARK, f": OOM risk above {RISKY:.0%} by the calibration (--oom-risk limits it)"),
    )
    marks = {mark for row in (*board.rows, *(board.families or ())) for mark in row.marks}
    lines = [SAME_LEGEND] if any(row.same_as_rank is not None for row in board.rows) else []
    lines += [f"{sign} {mark}{more}" for sign, mark, more in signs if mark in marks]
    return [Text(line, style="dim") for line in (lines if verbose else ["; ".join(lines)] if lines else [])]


def brief_counts(board: Leaderboard, notes: int) -> list[Text]:
    """Return the number of feasible candidates, the defaults that can change a decision, and a hint at --verbose."""
    more = f"{notes} more note{'s' * (notes > 1)}, " if notes else ""
    lines = [
        f"{format_whole(board.space.size)} candidates, {board.space.feasible:,} feasible, {board.elapsed_s:.2f} s; "
        f"--verbose: {more}rejected counts, all defaults"
    ]
    if defaults := weighty_defaults(board):
        lines.insert(0, "defaults used: " + "; ".join(defaults))
    return [Text(line, style="dim") for line in lines]


def lettered(rows: Sequence[Row[Any]]) -> dict[str, str]:
    """Return a letter for every mark of the rows that has no sign."""
    in_all = marks_of_all(rows)
    signs = (NEAR_MARK, TIGHT_MARK, MAY_NOT_FIT_MARK)
    marks = dict.fromkeys(
        mark for row in rows for mark in row.marks if mark not in (*signs, *in_all, closed_form_mark(row.rank))
    )
    return dict(zip(marks, "abcdefghijklmnopqrstuvwxyz", strict=False))


def limit_line(board: Leaderboard) -> str:
    """Return the memory limit of devices under a limit on the OOM risk."""
    risk, limits = board.request["oom_risk"], [row.memory_limit_gib for row in board.rows]
    least, most = f"{min(limits):.1f}", f"{max(limits):.1f}"
    if least != most:  # a calibration limits each row separately
        return f"memory limit {least} to {most} GiB, from --oom-risk {risk:.0%}"
    device = limits[0] / share_at(risk)
    return f"memory limit {least} of the device's {device:.1f} GiB, from --oom-risk {risk:.0%}"


def training_lines(board: Leaderboard) -> list[Text]:
    """Return time and cost of the whole training with the first row, if its length is known."""
    row, tokens = board.rows[0], board.request.get("tokens")
    if row.train_days is None or tokens is None:
        return []
    days = f"{row.train_days:,.1f} days{' without failures' if row.goodput else ''}"
    if row.step_time_low_s is not None and row.step_time_high_s is not None:
        low, high = (row.train_days * bound / row.step_time_s for bound in (row.step_time_low_s, row.step_time_high_s))
        days += f" ({row.interval_level:.0%}: {low:,.1f} to {high:,.1f})"
    usd = "" if row.train_cost_usd is None else f", {row.train_cost_usd:,.0f} USD"
    hours = f"{row.train_gpu_hours:,.0f} GPU-hours{usd}{row.energy_text}"
    return [Text(f"Training on {format_count(tokens)} tokens: {days}, {hours}.{_in_time(board)}")]


def _in_time(board: Leaderboard) -> str:
    """Return the probability that the first row ends within --train-within."""
    within_s = board.request.get("train_within_s")
    chance = None if within_s is None else probability_in_time(board.rows[0], within_s / SECONDS_PER_DAY)
    if chance is None or within_s is None:
        return ""
    return f" P(in {format_seconds(within_s)}) = {chance:.0%}{' with failures' if board.rows[0].goodput else ''}."


def measure_lines(proposal: "NextRuns") -> list[Text]:
    """Return the lines on proposed runs to measure."""
    aim = "to choose the best" if proposal.rule == "regret" else "to predict all of them"
    lines = [f"expected regret of choosing #1: {proposal.regret:.1%} of a step; runs to measure {aim}:"]
    what = "less regret" if proposal.rule == "regret" else "less uncertainty on average"
    for run in proposal.runs:
        gain = f"{run.gain:.2%} {what}" if run.gain > 0 else "no further gain"
        lines.append(f"  #{run.row.rank}  {run.row.name}  ({gain})")
    if proposal.measured:
        lines.append(f"{proposal.measured} of the rows were measured already")
    return [Text(line) for line in lines]


def title(board: Leaderboard) -> Text:
    """Return the request in one line."""
    request = board.request
    counts = request["gpu_counts"]
    devices = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    sequence = f"sequence {request['seq_len']}, " if request.get("seq_len") else ""
    precision = " and ".join(request.get("precisions") or [request["precision"]])
    return Text(
        f"{request['model_name']} on {request['cluster_name']}, {devices} GPUs, "
        f"global batch {request['global_batch']}, {sequence}{precision}, {request['framework']}: "
        f"{objective_named(request['objective']).title_in(board.unit)}",
        style="bold",
    )


def board_table(
    rows: Sequence[Row[Any]],
    console: Console,
    brush: Brush,
    *,
    several: bool,
    bounded: bool = False,
    baseline: Row[Any] | None = None,
    shared: Sequence[str] = (),
) -> Table:
    """Return rows as a table, with the user's ``baseline`` run below.

    ``several``: GPU counts differ, ``bounded``: the OOM risk is limited, ``shared``: omitted words common to all
    strategies.

    Uninformative columns are omitted.
    """
    absent = {
        "GPUs": not several,
        "USD/M": not any(row.cost_usd_per_hour is not None for row in rows),
        "range": not any(row.range_text for row in rows),
    }
    # The range from published runs is similar in all rows; a calibration gives each row a separate range.
    calibrated = rows[0].interval_level not in (None, LEVEL)
    without = [name for name, gone in absent.items() if gone]
    letters = lettered(rows)
    names = [_strategy(row, letters, shared) for row in rows]
    if baseline is not None:
        names.append(_strategy(baseline, letters, ()))
    wanted = min(max(len(name.plain) for name in names) + 1, MOST_STRATEGY)
    shown = shown_columns(console.width, without=without, first_to_go=GOES_FIRST[calibrated:], strategy=wanted)
    widths = {**WIDTHS, "strategy": max(wanted, WIDTHS["strategy"])}
    bar_width = min(MOST_BAR, console.width - 1 - sum(widths[name] for name in shown if name != "time"))
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("strategy", min_width=min(24, wanted))
    if several:
        table.add_column("GPUs", justify="right", no_wrap=True)
    limits = {f"{row.memory_limit_gib:.0f}" for row in rows}
    # With a limited risk the memory limit is below the device's memory, and may differ by row.
    unit = rows[0].short_unit
    titles = {
        "rate": f"{unit}/s/GPU",
        "USD/M": f"USD/M{unit}",
        "memory": "GiB" if bounded or len(limits) > 1 else f"of {limits.pop()} GiB",
        "range": f"{rows[0].interval_level or 0:.0%} range",
    }
    for name in FIGURES:
        if name in shown:
            table.add_column(titles.get(name, name), justify="right", no_wrap=True)
    if "time" in shown:
        table.add_column("time", no_wrap=True, width=bar_width)
    for row, strategy in zip((*rows, *([] if baseline is None else [baseline])), names, strict=True):
        if row is baseline:
            table.add_section()
        sign = "=" if row.same_as_rank is not None else "~" if NEAR_MARK in row.marks else ""
        name = "you" if row is baseline else f"{row.rank or ''}{sign}"
        cells: list[RenderableType] = [Text(name), StrategyText(strategy)]
        cells += [Text(str(row.gpus))] if several else []
        *speed, peak = figures(row)
        values = dict(zip(("rate", "MFU", "step"), speed, strict=True))
        values["range"] = row.range_text
        values["memory"] = peak
        values["USD/M"] = f"{row.usd_per_million or 0.0:.3g}"
        cells += [Text(text) for name, text in values.items() if name in shown]
        table.add_row(*cells, *([brush.bar(row.breakdown_s, bar_width)] if "time" in shown else []))
    return table


def shown_columns(
    width: int, *, without: Collection[str], first_to_go: Sequence[str] = GOES_FIRST, strategy: int = 0
) -> list[str]:
    """Return the columns of a leaderboard that fit a terminal of ``width`` columns; ``without``: uninformative columns.

    ``first_to_go``: columns omitted first; ``strategy``: width of the longest strategy.

    >>> shown_columns(63, without=["range", "USD/M"])
    ['#', 'strategy', 'GPUs', 'rate', 'step', 'memory']
    """
    names = [name for name in (*WIDTHS, "time") if name not in without]
    for name in first_to_go:
        # MFU is kept even if the longest strategies then need a second line.
        widths = WIDTHS if name == "MFU" else {**WIDTHS, "strategy": max(strategy, WIDTHS["strategy"])}
        if sum(widths.get(column, LEAST_BAR) for column in names) < width:
            break
        names = [column for column in names if column != name]
    return names


def baseline_lines(baseline: "Baseline", rows: Sequence[Row]) -> list[RenderableType]:
    """Return the user's losses of time and memory against the first row, and changes that would help."""
    from forerun.search.cli.details import changes_table, comparison_table

    faster = baseline.faster_rows
    place = f"{faster} of {len(rows)} rows above {'is' if faster == 1 else 'are'} faster per GPU"
    read = f"format {baseline.format}, " if baseline.format else ""
    lines: list[RenderableType] = [
        Text(f"you: {baseline.source} ({read}profile {baseline.framework}); {place}", style="bold")
    ]
    lines += [Text(baseline.text), comparison_table(rows[0], baseline.row, names=("best", "you"))]
    if baseline.changes:
        lines.append(changes_table("changes that help your run most", baseline.changes))
    notes = [f"note: {note}" for note in baseline.notes]
    notes += [f"unknown setting: {key} = {value}" for key, value in baseline.unknown.items()]
    if baseline.unmodelled:
        notes.append(f"changes speed or memory, and is not modelled: {', '.join(baseline.unmodelled)}")
    if baseline.other:
        notes.append(f"settings without effect on cost: {len(baseline.other)} (`forerun import` lists them)")
    return [*lines, *(Text(note, style="dim") for note in notes)]


def figures(row: Row[Any]) -> list[str]:
    """Return tokens per second and GPU, MFU, step time and memory as text."""
    return [
        f"{row.throughput_per_gpu:,.0f}" if row.throughput_per_gpu >= 100 else f"{row.throughput_per_gpu:.3g}",
        f"{row.mfu:.1%}",
        format_seconds(row.step_time_s),
        f"{row.peak_memory_gib:.1f}{'!' if TIGHT_MARK in row.marks else '?' if MAY_NOT_FIT_MARK in row.marks else ''}",
    ]


def marks_of_all(rows: Sequence[Row[Any]]) -> list[str]:
    """Return the common marks of several rows, which are printed once."""
    return [mark for mark in rows[0].marks if len(rows) > 1 and all(mark in row.marks for row in rows)]


def _strategy(row: Row[Any], letters: Mapping[str, str], shared: Sequence[str]) -> Text:
    """Return the words of a strategy not common to all rows, its variants and the letters of its marks."""
    text = Text(distinct_words(row, shared))
    if row.variants and not shared:
        text.append(f" (+{len(row.variants)})", style="dim")
    if marks := [letters[mark] for mark in row.marks if mark in letters]:
        text.append(f" [{','.join(marks)}]", style="yellow")
    return text


def counts(board: Leaderboard) -> list[Text]:
    """Return the number of candidates, rejected ones by reason, and the defaults."""
    space = board.space
    slower = space.rejected.get(SLOWER, 0)
    scored = f"{space.legal - slower:,} scored (compute alone makes the others slower), " if slower else ""
    lines = [
        f"{format_whole(space.size)} candidates: {space.legal:,} legal, {scored}{space.feasible:,} feasible; "
        f"{board.elapsed_s:.2f} s {board.workers}, {board.candidates_per_s:,.0f} candidates/s"
    ]
    if space.rejected:
        lines.append(
            "rejected: " + ", ".join(f"{reason} {format_whole(number)}" for reason, number in space.rejected.items())
        )
    if board.defaults:
        lines.append("defaults used: " + "; ".join(board.defaults))
    lines += [f"note: {note}" for note in board.remarks]
    return [Text(line, style="dim") for line in lines]
