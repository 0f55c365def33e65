"""Documents of operator graphs on the terminal: one split, and the limits of families of splits."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from forerun.search.board.rows import Row
from forerun.search.cli.bars import Brush
from forerun.search.cli.console import brush_of, open_console, say
from forerun.search.cli.details import headline, memory_stack, memory_table
from forerun.search.cli.tables import Columns, Line, listing
from forerun.search.order.objectives import OBJECTIVES
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.opgraph.split import Split
from forerun.spaces.units import format_count, format_seconds

_TRANSFERS: Columns = {
    "|phase": "phase", "|kind": "kind", ">transfers": lambda one: f"{one['transfers']:,}",
    ">elements": lambda one: f"{one['elements']:,}",
}  # fmt: skip
_DOUBLED = "change in throughput with twice the bandwidth, compute or batch, or full bisection"


def print_explained(setting: Setting[GraphContext], row: Row[Split], document: dict[str, Any]) -> None:
    """Print one split: speed, phases, bottlenecks, memory and helpful changes."""
    console = open_console()
    brush = brush_of(console)
    parts = {name: value for name, value in row.breakdown_s.items() if value > 0}
    lines: list[RenderableType] = [
        Text(f"{setting.context.model.name}: {row.name}", "bold"),
        *headline(row)[1:],
        Text(row.graph.batch_norm),
        _shares("phases", document["phases_s"], row.step_time_s, brush),
        _shares("parts of the step", parts, row.step_time_s, brush),
    ]
    if row.graph.hidden_s > 0:
        hidden = format_seconds(row.graph.hidden_s)
        lines.append(Text(f"overlapped by the backward pass: {hidden} of gradient exchange", "dim"))
    lines += [memory_table(row, brush, console), memory_stack(row, brush, min(60, console.width - 24))]
    lines.append(_bottlenecks(document["bottlenecks"], row))
    if document["changes"]:
        columns: Columns = {"change": "words", ">throughput": lambda one: _gain(one["gain"])}
        lines.append(listing("what a change would bring", document["changes"], columns))
    say(console, *lines, *(Text(line, style="dim") for line in setting.remarks()))


def print_facts(row: Row[Any], tree: Mapping[str, Any] | None) -> None:
    """Print batch and bottlenecks of a row of an operator graph, and the transfers of its tree."""
    console, facts = open_console(), row.graph
    say(console, Text(f"global batch {facts.global_batch}; {facts.batch_norm}"))
    if facts.bottlenecks:
        say(console, _bottlenecks([one.to_json() for one in facts.bottlenecks], row))
    if tree is not None:
        title = "inferred communication of one microbatch, and of the weights"
        say(console, listing(title, tree["communication"], _TRANSFERS))


def _shares(caption: str, parts: Mapping[str, float], total: float, brush: Brush) -> RenderableType:
    lines = [{"part": part, "part_s": seconds} for part, seconds in parts.items()]
    columns: Columns = {
        "|part": "part", "time": "part_s", ">share": lambda one: f"{one['part_s'] / total:.1%}",
        "|": lambda one: brush.stroke("compute", round(20 * one["part_s"] / total)) if total > 0 else "",
    }  # fmt: skip
    return listing(caption, lines, columns)


def _bottlenecks(bottlenecks: Sequence[Line], row: Row[Any]) -> RenderableType:
    def share(one: Line) -> str:
        return "-" if one["seconds"] is None else f"{one['seconds'] / row.step_time_s:.1%}"

    names = {"|class": lambda one: one["class"] + ("*" if one["also_inference"] else "")}
    return listing("bottlenecks (* also in inference)", bottlenecks, {**names, ">share": share, "here": "words"})


def _gain(gain: float | None) -> str:
    return "does not fit" if gain is None else f"{gain:+.1%}"


def print_limits(setting: Setting[GraphContext], document: dict[str, Any]) -> None:
    """Print the limit of every family of splits, helpful changes, and its curve."""
    families, context, counts = document["limits"], setting.context, setting.gpus or ()
    devices = "" if not counts else f", {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} GPUs"
    unit = context.model.sample
    useful: Columns = {
        "|family": "family", "useful GPUs": "largest_useful_gpus",
        f">{unit}s/s": lambda one: format_count(max(point["samples_per_s"] for point in one["curve"])),
        "limit reached": "stops", "hard limit": "law",
    }  # fmt: skip
    gains = {
        f">{'full bisection' if what == 'bisection' else what}": lambda one, what=what: _gain(one["doubling"][what])
        for what in families[0]["doubling"]
    }
    head = (
        f"{context.model.name} on {context.cluster.name}{devices}, global batch {setting.request.global_batch}, "
        f"{context.precision}, {context.profile.name}: {OBJECTIVES[setting.objective].title_in(unit)}"
    )
    say(
        open_console(),
        Text(head, style="bold"),
        listing("scaling limits of each family of splits", families, useful),
        listing(_DOUBLED, families, {"|family": "family", **gains}),
        *(_curve(family, unit) for family in families),
        *(Text(f"{name}: fits on none of these numbers of GPUs; {why}")
          for name, why in document["never_feasible"].items()),
        *(Text(line, style="dim") for line in setting.remarks()),
    )  # fmt: skip


def _curve(family: Line, unit: str) -> RenderableType:
    def gpus(point: Line) -> str:
        return f"{point['gpus']}{' <' if point['gpus'] == family['largest_useful_gpus'] else ''}"

    columns: Columns = {
        ">GPUs": gpus, "batch": "global_batch", f"{unit}s/s": "samples_per_s", "efficiency": "efficiency",
        "step": "step_time_s", "GiB": "peak_memory_gib", "split": "strategy", "bottleneck": "bottleneck",
    }  # fmt: skip
    return listing(family["family"], family["curve"], columns)
