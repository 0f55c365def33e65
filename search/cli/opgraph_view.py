"""Answers about operator graphs on the terminal."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.search.cli.console import brush_of, open_console, say
from forerun.search.opgraph import Bottleneck, Doubling, FamilyLimits, GraphBoard, GraphRow, GraphSetting, Limits
from forerun.search.opgraph.limits import efficiency
from forerun.search.opgraph.request import OBJECTIVES
from forerun.search.opgraph.rows import phases
from forerun.search.opgraph.tree import GraphTree
from forerun.spaces.units import format_count, format_seconds

NUMBERS = ("GPUs", "batch", "step", "GiB")


def print_board(board: GraphBoard) -> None:
    """Print a leaderboard, the best of every family, and the counts."""
    console = open_console()
    setting = board.setting
    say(console, title(setting), _rows_table(setting, board.rows, "best splits"))
    say(console, _rows_table(setting, board.families, "best of every family"))
    rejected = ", ".join(f"{reason} {count:,}" for reason, count in sorted(board.rejected.items()))
    say(
        console,
        Text(
            f"{board.size:,} candidates, {board.legal:,} legal, {board.feasible:,} fit"
            + (f"; not: {rejected}" if rejected else "")
            + f"; {board.elapsed_s:.1f} s",
            style="dim",
        ),
    )
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def title(setting: GraphSetting) -> Text:
    """Return what was asked in one line."""
    counts, context = setting.counts or (), setting.context
    devices = "" if not counts else f", {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} GPUs"
    return Text(
        f"{context.model.name} on {context.cluster.name}{devices}, global batch {setting.request.global_batch}, "
        f"{context.precision}, {context.profile.name}: {OBJECTIVES[setting.objective]}",
        style="bold",
    )


def _table(caption: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=caption, title_justify="left")


def _rows_table(setting: GraphSetting, rows: Sequence[GraphRow], caption: str) -> Table:
    sample = setting.context.model.sample
    table = _table(caption)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("split", overflow="fold", min_width=16)
    for name in ("GPUs", f"{sample}s/s", "per GPU", "step", "GiB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held up by", overflow="fold")
    for row in rows:
        table.add_row(
            str(row.rank),
            Text(str(row.split)),
            str(row.gpus),
            f"{row.samples_per_s:,.0f}" if row.samples_per_s >= 100 else f"{row.samples_per_s:.2f}",
            f"{row.samples_per_s_per_gpu:,.1f}",
            format_seconds(row.step_time_s),
            f"{row.peak_memory_gib:.1f}",
            Text(row.bottleneck),
        )
    return table


def print_row(setting: GraphSetting, row: GraphRow, found: Sequence[Bottleneck], changes: Sequence[Doubling]) -> None:
    """Print one split: what it reaches, its phases, what holds it up, its memory, what would help."""
    console = open_console()
    brush = brush_of(console)
    sample = setting.context.model.sample
    fits = "" if row.fits else ": does not fit"
    say(
        console,
        Text(f"{setting.context.model.name}: {row.text}", style="bold"),
        Text(
            f"{row.gpus} GPUs, global batch {row.global_batch}: step {format_seconds(row.step_time_s)}, "
            f"{row.samples_per_s:,.1f} {sample}s/s, {row.samples_per_s_per_gpu:,.1f} per GPU"
        ),
        Text(f"peak memory {row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f} GiB{fits}"),
        *(
            Text(f"{row.cost['cost_usd_per_hour']:,.2f} USD an hour, {usd:,.2f} per million {sample}s")
            for usd in [row.cost.get("cost_usd_per_million_samples")]
            if usd is not None
        ),
        Text(row.to_json()["batch_norm"]),
    )
    parts = {name: value for name, value in row.breakdown_s.items() if value > 0}
    say(console, _parts(console, "phases", phases(row), row.step_time_s))
    say(console, _parts(console, "parts of the step", parts, row.step_time_s))
    if row.hidden_s > 0:
        say(
            console, Text(f"hidden under the backward pass: {format_seconds(row.hidden_s)} of gradient exchange", "dim")
        )
    memory = _table("memory of the fullest device")
    memory.add_column("part", min_width=20)
    memory.add_column("GiB", justify="right")
    for name, gib in row.memory_gib.items():
        memory.add_row(name, f"{gib:.2f}")
    say(console, memory, brush.bar(row.memory_gib, min(60, console.width - 4), full=row.memory_limit_gib))
    say(console, _bottleneck_table(found, row))
    if changes:
        say(console, _doubling_table(changes))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def print_tree(setting: GraphSetting, answer: GraphTree) -> None:
    """Print a strategy tree: what it reaches, its parts, its communication and its timeline."""
    from forerun.simulator.events import timeline_text

    console = open_console()
    row, tree, sample = answer.row, answer.tree, setting.context.model.sample
    fits = "" if row["fits"] else ": does not fit"
    say(
        console,
        Text(f"{setting.context.model.name}: {row['strategy']}", style="bold"),
        Text(
            f"{row['gpus']} GPUs, global batch {row['global_batch']}: step {format_seconds(row['step_time_s'])}, "
            f"{row['samples_per_s']:,.1f} {sample}s/s, {row['samples_per_s_per_gpu']:,.1f} per GPU"
        ),
        Text(f"peak memory {row['peak_memory_gib']:.1f} of {row['memory_limit_gib']:.1f} GiB{fits}"),
    )
    parts = {name: value for name, value in row["breakdown_s"].items() if value > 0}
    say(console, _parts(console, "parts of the step", parts, row["step_time_s"]))
    table = _table("inferred communication of one microbatch, and of the weights")
    for name in ("phase", "kind", "transfers", "elements"):
        table.add_column(name, justify="right" if name in ("transfers", "elements") else "left", no_wrap=True)
    for one in tree["communication"]:
        table.add_row(one["phase"], one["kind"], f"{one['transfers']:,}", f"{one['elements']:,}")
    say(console, table, Text(timeline_text(answer.events, console.width)))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def _parts(console: Console, caption: str, parts: dict[str, float], total: float) -> Table:
    table = _table(caption)
    table.add_column("part", no_wrap=True)
    for name in ("time", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", width=20)
    brush = brush_of(console)
    for name, seconds in parts.items():
        bar = brush.stroke("compute", round(20 * seconds / total)) if total > 0 else Text("")
        table.add_row(Text(name), format_seconds(seconds), f"{seconds / total:.1%}", bar)
    return table


def _bottleneck_table(found: Sequence[Bottleneck], row: GraphRow) -> Table:
    table = _table("what holds it up (* also in inference)")
    table.add_column("class", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("here", overflow="fold")
    for one in found:
        share = "-" if one.seconds is None else f"{one.seconds / row.step_time_s:.1%}"
        table.add_row(Text(one.name + ("*" if one.inference else "")), share, Text(one.words))
    return table


def _doubling_table(changes: Sequence[Doubling]) -> Table:
    table = _table("what a change would bring")
    table.add_column("change", overflow="fold")
    table.add_column("throughput", justify="right", no_wrap=True)
    for change in changes:
        table.add_row(Text(change.words), _gain(change))
    return table


def _gain(change: Doubling) -> str:
    return "does not fit" if change.gain is None else f"{change.gain:+.1%}"


def print_limits(limits: Limits) -> None:
    """Print how far every family goes, what would help, and its curve."""
    console = open_console()
    setting = limits.setting
    say(console, title(setting), _useful_table(limits), _help_table(limits))
    for family in limits.families:
        say(console, _curve_table(setting, family))
    for name, why in limits.never.items():
        say(console, Text(f"{name}: fits on none of these numbers of GPUs; {why}"))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def _useful_table(limits: Limits) -> Table:
    table = _table("how far each way of splitting goes")
    table.add_column("family", no_wrap=True)
    table.add_column("useful GPUs", justify="right")
    table.add_column(f"{limits.setting.context.model.sample}s/s", justify="right", no_wrap=True)
    table.add_column("what ends it", overflow="fold")
    table.add_column("law", overflow="fold")
    for family in limits.families:
        table.add_row(
            family.family,
            str(family.useful_gpus),
            format_count(family.best.samples_per_s),
            Text(family.stops),
            Text(family.law),
        )
    return table


def _help_table(limits: Limits) -> Table:
    table = _table("throughput with twice the ...")
    table.add_column("family", no_wrap=True)
    names = [change.what for change in limits.families[0].changes]
    for name in names:
        table.add_column("full bisection" if name == "bisection" else name, justify="right", no_wrap=True)
    for family in limits.families:
        table.add_row(family.family, *(_gain(change) for change in family.changes))
    return table


def _curve_table(setting: GraphSetting, family: FamilyLimits) -> Table:
    table = _table(family.family)
    for name in ("GPUs", "batch", f"{setting.context.model.sample}s/s", "efficiency", "step", "GiB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("split", overflow="fold")
    table.add_column("held up by", overflow="fold")
    for row in family.curve:
        useful = " <" if row.gpus == family.useful_gpus else ""
        table.add_row(
            f"{row.gpus}{useful}",
            str(row.global_batch),
            f"{row.samples_per_s:,.1f}",
            f"{efficiency(family.curve[0], row):.0%}",
            format_seconds(row.step_time_s),
            f"{row.peak_memory_gib:.1f}",
            Text(str(row.split)),
            Text(row.bottleneck),
        )
    return table


def print_oracle(oracle: Mapping[str, float], row: GraphRow) -> None:
    """Print what ParaDL's formulas say of the same split."""
    text = (
        f"ParaDL's formulas: step {format_seconds(oracle['step_time_s'])} "
        f"({oracle['step_time_s'] / row.step_time_s - 1:+.0%}), computation {format_seconds(oracle['compute_s'])}, "
        f"communication {format_seconds(oracle['communication_s'])}, {oracle['memory_gib']:.1f} GiB"
    )
    say(open_console(), Text(text))
