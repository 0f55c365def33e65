"""Answers about operator graphs on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.search.board.rows import Row
from forerun.search.cli.console import brush_of, open_console, say
from forerun.search.cli.details import headline, memory_stack, memory_table
from forerun.search.cli.tables import table_of
from forerun.search.opgraph.limits import FamilyLimits, Limits, efficiency
from forerun.search.opgraph.what_if import Doubling, phases
from forerun.search.order.objectives import OBJECTIVES
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.bottleneck import Bottleneck
from forerun.spaces.opgraph.split import Split
from forerun.spaces.units import format_count, format_seconds


def title(setting: Setting[GraphContext]) -> Text:
    """Return the request in one line."""
    counts, context = setting.gpus or (), setting.context
    devices = "" if not counts else f", {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} GPUs"
    return Text(
        f"{context.model.name} on {context.cluster.name}{devices}, global batch {setting.request.global_batch}, "
        f"{context.precision}, {context.profile.name}: "
        f"{OBJECTIVES[setting.objective].title_in(context.model.sample)}",
        style="bold",
    )


def print_explained(
    setting: Setting[GraphContext], row: Row[Split], found: Sequence[Bottleneck], changes: Sequence[Doubling]
) -> None:
    """Print one split: speed, phases, bottlenecks, memory and changes that would help."""
    console = open_console()
    brush = brush_of(console)
    say(
        console,
        Text(f"{setting.context.model.name}: {row.name}", "bold"),
        *headline(row)[1:],
        Text(row.graph.batch_norm),
    )
    parts = {name: value for name, value in row.breakdown_s.items() if value > 0}
    say(console, _parts(console, "phases", phases(row), row.step_time_s))
    say(console, _parts(console, "parts of the step", parts, row.step_time_s))
    if row.graph.hidden_s > 0:
        hidden = format_seconds(row.graph.hidden_s)
        say(console, Text(f"overlapped by the backward pass: {hidden} of gradient exchange", "dim"))
    say(console, memory_table(row, brush, console), memory_stack(row, brush, min(60, console.width - 24)))
    say(console, _bottleneck_table(found, row))
    if changes:
        say(console, _doubling_table(changes))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def print_facts(row: Row[Any], tree: Mapping[str, Any] | None) -> None:
    """Print batch and bottlenecks of a row of an operator graph, and the transfers of its tree."""
    console = open_console()
    facts = row.graph
    say(console, Text(f"global batch {facts.global_batch}; {facts.batch_norm}"))
    if facts.bottlenecks:
        say(console, _bottleneck_table(facts.bottlenecks, row))
    if tree is not None:
        table = table_of(
            ("|phase", "|kind", ">transfers", ">elements"),
            (
                (one["phase"], one["kind"], f"{one['transfers']:,}", f"{one['elements']:,}")
                for one in tree["communication"]
            ),
            title="inferred communication of one microbatch, and of the weights",
        )
        say(console, table)


def _parts(console: Console, caption: str, parts: dict[str, float], total: float) -> Table:
    brush = brush_of(console)
    rows = [
        (
            name,
            format_seconds(seconds),
            f"{seconds / total:.1%}",
            brush.stroke("compute", round(20 * seconds / total)) if total > 0 else "",
        )
        for name, seconds in parts.items()
    ]
    return table_of(("|part", ">time", ">share", "|"), rows, title=caption)


def _bottleneck_table(found: Sequence[Bottleneck], row: Row[Any]) -> Table:
    rows = (
        (
            one.name + ("*" if one.inference else ""),
            "-" if one.seconds is None else f"{one.seconds / row.step_time_s:.1%}",
            one.words,
        )
        for one in found
    )
    return table_of(("|class", ">share", "here"), rows, title="bottlenecks (* also in inference)")


def _doubling_table(changes: Sequence[Doubling]) -> Table:
    rows = ((change.words, _gain(change)) for change in changes)
    return table_of(("change", ">throughput"), rows, title="what a change would bring")


def _gain(change: Doubling) -> str:
    return "does not fit" if change.gain is None else f"{change.gain:+.1%}"


def print_limits(limits: Limits) -> None:
    """Print the limit of every family of splits, changes that would help, and its curve."""
    console = open_console()
    setting = limits.setting
    say(console, title(setting), _useful_table(limits), _help_table(limits))
    for family in limits.families:
        say(console, _curve_table(setting, family))
    for name, why in limits.never.items():
        say(console, Text(f"{name}: fits on none of these numbers of GPUs; {why}"))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def _useful_table(limits: Limits) -> Table:
    unit = limits.setting.context.model.sample
    rows = (
        (family.family, str(family.useful_gpus), format_count(family.best.throughput), family.stops, family.law)
        for family in limits.families
    )
    columns = ("|family", ">useful GPUs", f">{unit}s/s", "limit reached", "hard limit")
    return table_of(columns, rows, title="scaling limits of each family of splits")


def _help_table(limits: Limits) -> Table:
    names = (change.what for change in limits.families[0].changes)
    columns = ("|family", *(">full bisection" if name == "bisection" else f">{name}" for name in names))
    rows = ((family.family, *map(_gain, family.changes)) for family in limits.families)
    title = "change in throughput with twice the bandwidth, compute or batch, or full bisection"
    return table_of(columns, rows, title=title)


def _curve_table(setting: Setting[GraphContext], family: FamilyLimits) -> Table:
    rows = (
        (
            f"{row.gpus}{' <' if row.gpus == family.useful_gpus else ''}",
            str(row.graph.global_batch),
            f"{row.throughput:,.1f}",
            f"{efficiency(family.curve[0], row):.0%}",
            format_seconds(row.step_time_s),
            f"{row.peak_memory_gib:.1f}",
            row.name,
            row.graph.bottleneck,
        )
        for row in family.curve
    )
    unit = setting.context.model.sample
    columns = (">GPUs", ">batch", f">{unit}s/s", ">efficiency", ">step", ">GiB", "split", "bottleneck")
    return table_of(columns, rows, title=family.family)
