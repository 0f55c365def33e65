"""The first screen of the page: the first and a safer strategy as cards, each with its launch commands."""

from collections.abc import Sequence

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import TIGHT_MARK, Row
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.figures.plane import number
from forerun.search.order.first_row import SAFER
from forerun.search.report.bars import step_bar
from forerun.search.report.labels import command
from forerun.simulator.costs.power import SITE
from forerun.simulator.memory.risk import RISKY
from forerun.spaces.units import format_count, format_seconds

RUN = "run"
"""Folder of the search in the commands."""
BEST = {"throughput": "Fastest", "cost": "Cheapest", "gpus": "Fewest GPUs", "headroom": "Most free memory"}
"""Title of the first card by objective."""
STARTS = {"slurm.sbatch": "sbatch launch/slurm.sbatch", "launch.sh": "bash launch/launch.sh"}


def cards(board: Leaderboard, launches: Sequence[str]) -> Safe:
    """Return the card of the first row, and the card of a safer row if there is one.

    Parameters
    ----------
    board
        A leaderboard with rows.
    launches
        Launch files of its first rows as text, empty for a row without one.
    """
    first, other = board.rows[0], safer(board.rows)
    best = BEST.get(str(board.request["objective"]), "First")
    if other is first:
        title = best if first.facts is not None else f"{best}, and as safe as any row"
        return tag("div", _card(title, board, first, launches), class_="cards")
    slower = other.gpus * other.step_time_s / (first.gpus * first.step_time_s) - 1
    return tag(
        "div",
        _card(best, board, first, launches),
        _card(f"Safer, {slower:+.1%} GPU time", board, other, launches),
        class_="cards",
    )


def safer(rows: Sequence[Row]) -> Row:
    """Return the best row whose OOM risk is small, or the row of least risk if the first row's risk is small."""
    small = next((row for row in rows if row.oom_risk <= RISKY), rows[0])
    if small is not rows[0]:
        return small
    least = min(row.oom_risk for row in rows)
    return next(row for row in rows if row.oom_risk <= least + SAFER)


def _card(title: str, board: Leaderboard, row: Row, launches: Sequence[str]) -> Safe:
    place = board.rows.index(row)
    name = " ".join(filter(None, (row.name, row.precision)))
    tiles = [tag("div", tag("dt", term), tag("dd", value)) for term, value in figures(board, row)]
    warnings = [mark for mark in row.marks if mark != TIGHT_MARK]
    return tag(
        "article",
        tag("h3", title, tag("small", f"rank {row.rank}")),
        tag("p", tag("code", name), _copy(name, "strategy"), class_="winner"),
        tag("dl", *tiles),
        step_bar(row.breakdown_s, row.step_time_s),
        tag("p", f"Check before launching: {'; '.join(warnings)}.", class_="warn") if warnings else None,
        _launch(board, row, launches[place] if place < len(launches) else ""),
        class_="card",
    )


def figures(board: Leaderboard, row: Row) -> list[tuple[str, str]]:
    """Return the figures of a row as names and texts."""
    facts = [
        (f"{row.unit}s/s per GPU", number(row.throughput_per_gpu)),
        (f"{row.unit}s/s in all", number(row.throughput)),
        ("step", format_seconds(row.step_time_s)),
        *([(f"{row.interval_level:.0%} of measured steps", row.range_text)] if row.interval_level else []),
        ("MFU", f"{row.mfu:.1%}"),
        ("peak memory", f"{row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f} GiB"),
        *_measured_peaks(row),
        *([("OOM risk", f"{row.oom_risk:.0%}")] if row.facts is None else []),
    ]
    if len(board.request["gpu_counts"]) > 1:
        facts.insert(0, ("GPUs", f"{row.gpus:,}"))
    if row.usd_per_million is not None:
        facts.append(("cost", f"{number(row.usd_per_million)} USD/M{row.short_unit}"))
    if row.train_days is not None:
        cost = "" if row.train_cost_usd is None else f", {format_count(row.train_cost_usd)} USD"
        hours = f", {format_count(row.train_gpu_hours or 0.0)} GPU-hours"
        facts.append(("whole training", f"{number(row.train_days)} days{hours}{cost}"))
    if row.train_mwh is not None:
        site = f"{number(SITE * row.train_mwh)} with hosts and cooling"
        facts.append(("energy of the GPUs", f"{number(row.train_mwh)} MWh, {site}"))
    return facts


def _measured_peaks(row: Row) -> list[tuple[str, str]]:
    """Return the interval of measured peaks."""
    low, high = row.peak_memory_low_gib, row.peak_memory_high_gib
    return [] if low is None or high is None else [(f"{row.interval_level:.0%} of peaks", f"{low:.0f}..{high:.0f} GiB")]


def _launch(board: Leaderboard, row: Row, files: str) -> Safe | None:
    """Return the commands that launch a row, and its launch files, folded; None without a launch file."""
    if not files:
        return None
    heads = [line.removeprefix("# ") for line in files.splitlines() if line.startswith("# ")]
    form = heads[0].split(":")[0]
    lines = [
        f"forerun export {RUN} --rank {row.rank} --format {form} --out launch",
        *[start for file, start in STARTS.items() if f"{form}: {file}" in heads][:1],
    ]
    search = " ".join(command(board).replace("\\\n", "").split())
    copied = "\n".join([f"{search} --out {RUN}", *lines])
    text = "\n".join([f"forerun search ... --out {RUN}", *lines])
    shown = joined(
        [tag("h4", "Launch", _copy(copied, "commands, the whole search included")), tag("pre", text, class_="launch")]
    )
    return joined(
        [
            shown,
            tag("details", tag("summary", "Launch files"), tag("pre", files), id="launch" if row.rank == 1 else None),
        ]
    )


def _copy(text: str, what: str) -> Safe:
    """Return a button that copies a text; hidden until the script runs."""
    return tag(
        "button", "Copy", type="button", class_="copy", data_copy=text, aria_label=f"Copy the {what}", hidden=True
    )
