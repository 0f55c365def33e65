"""The document of ``scale`` on the terminal."""

from typing import Any

from rich.console import Console
from rich.text import Text

from forerun.search.cli.console import say
from forerun.search.cli.tables import Columns, Line, listing
from forerun.search.scale.changes import EQUAL
from forerun.spaces.units import format_bytes, format_rate, format_seconds

BAR = 10
_JOBS: Columns = {
    "job": "name", "nodes": "nodes", "workers": "workers", ">speed-up": lambda job: f"{job['speed_up']:.2f}",
    ">samples/s alone": lambda job: f"{job['alone_samples_per_s']:,.0f}",
    ">with the others": lambda job: f"{job['samples_per_s']:,.0f}",
}  # fmt: skip


def print_scaling(console: Console, document: dict[str, Any]) -> None:
    """Print head, curve, saturation and defaults."""
    columns = _curve(document, ascii_only=console.options.ascii_only)
    say(console, *_headline(document), listing(None, document["points"], columns), *_verdict(document))
    _say_defaults(console, document)


def print_jobs(console: Console, document: dict[str, Any]) -> None:
    """Print the nodes and the throughput of every job."""
    used = sum(job["nodes"] for job in document["jobs"])
    goal = "most speed-up in all" if document["goal"] == "total" else "smallest speed-up as large as can be"
    head = Text(f"{used} of {document['nodes']} nodes of {document['cluster']}: {goal}", style="bold")
    say(console, head, listing(None, document["jobs"], _JOBS))
    _say_defaults(console, document)


def _say_defaults(console: Console, document: dict[str, Any]) -> None:
    if document["defaults"]:
        say(console, Text(f"defaults used: {'; '.join(document['defaults'])}", style="dim"))


def _headline(document: dict[str, Any]) -> list[Text]:
    one, network = document["one_worker"], document["network"]
    servers, rates = "", f"each worker sends {format_rate(network['worker_bytes_per_s'])}, "
    if (shards := document.get("shards")) is not None:
        where = "on workers' nodes" if document["colocated"] else "on nodes of their own"
        servers = f", {shards} shard{'s' * (shards > 1)} {where}, {document['policy']}"
        rates += f"a server {format_rate(network['server_bytes_per_s'])}, "
    batch = f"batch {document['batch_per_worker']:g} per worker"
    times = [format_seconds(one[f"{part}_s"]) for part in ("step_time", "forward", "backward", "update")]
    return [
        Text(f"{document['model']}, {document['mode']}{servers}, {batch}", style="bold"),
        Text(
            f"one worker: {times[0]} a step (forward {times[1]}, backward {times[2]}, update {times[3]}), "
            f"{format_bytes(one['parameter_bytes'])} of parameters"
        ),
        Text(f"{rates}{format_seconds(network['latency_s'])} latency"),
    ]


def _curve(document: dict[str, Any], *, ascii_only: bool) -> Columns:
    first = document["points"][0]
    stale, most = first["staleness"] is not None, document["best"]["samples_per_s"]

    def bar(point: Line) -> str:
        cells: int = round((BAR - 6 * stale) * point["samples_per_s"] / most)
        return cells * ("#" if ascii_only else "█")

    columns: dict[str, Any] = {
        "workers": "workers", "samples/s": "samples_per_s", "efficiency": "efficiency", "step": "step_time_s",
        ">waiting": lambda point: f"{1 - point['breakdown_s']['compute'] / point['step_time_s']:.0%}",
    }  # fmt: skip
    columns |= {">stale": lambda point: f"{point['staleness']:.1f}"} if stale else {}
    if first["disagreement"] is not None:
        other = ">events" if _exact(first) else ">analytic"
        columns[other] = lambda point: _signed(_disagreement(point))
    return {**columns, "|": bar}


def _exact(point: Line) -> bool:
    return bool(point["model"] != "events")


def _disagreement(point: Line) -> float:
    """Return the relative difference of the hidden answer."""
    gap = point["disagreement"] or 0.0
    return float(1 / (1 + gap) - 1 if _exact(point) else gap)


def _verdict(document: dict[str, Any]) -> list[Text]:
    points, saturation, best = document["points"], document["saturation"], document["best"]
    last, lines = points[-1], []
    if len(points) > 1:
        text = f"still growing at {last['workers']} workers"
        if saturation["reached"]:
            text = (
                f"saturates with {saturation['workers']}: {saturation['samples_per_s']:,.1f} samples/s, "
                f"95 % of the best, {best['samples_per_s']:,.1f} with {best['workers']}"
            )
        lines.append(Text(text, style="bold"))
    if (bound := last["network_bound_samples_per_s"]) is not None:
        lines.append(Text(f"upper bound set by the network: {bound:,.1f} samples/s with {last['workers']} workers"))
    if (worst := last["staleness_worst"]) is not None:
        slowest = f"{worst:.1f} for the slowest of {last['workers']}"
        lines.append(Text(f"staleness: updates by others during a worker's step; {slowest}"))
    lines.append(_twice(document))
    if last["disagreement"] is not None:
        gap = max(map(_disagreement, points), key=abs)
        shown, other = ("the analytic model", "the event level")[:: 1 if _exact(last) else -1]
        lines.append(Text(f"samples/s from {shown}; {other} differs by up to {_signed(gap)}", style="dim"))
    return lines


def _twice(document: dict[str, Any]) -> Text:
    """Return the bottleneck of the largest run, and the gain from doubling each resource."""
    words = [
        f"{'' if one['change'] == EQUAL else 'twice the '}{one['change']} {_signed(one['gain'])}"
        for one in document["changes"]
    ]
    limit = f"limited by {document['limited_by']}; " if document["limited_by"] else ""
    return Text(f"{document['points'][-1]['workers']} workers: {limit}{', '.join(words)}")


def _signed(share: float) -> str:
    """Return a share with its sign; zero has none."""
    text = f"{share:+.0%}"
    return "0%" if text in ("+0%", "-0%") else text
