"""``forerun scale``: throughput of a data-parallel training against the number of workers."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from forerun.search.cli.console import open_console, say
from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.cli.tables import Columns, Line, listing
from forerun.search.files.documents import dump_json
from forerun.search.scale.changes import EQUAL
from forerun.search.scale.jobs import jobs_document, plan_jobs
from forerun.search.scale.request import ScaleRequest, Scaling, scale
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes.events import mode_trace, write_mode_trace
from forerun.spaces.documents import Document
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_rate,
    parse_seconds,
    with_unit,
)

SERVER_SETTINGS = ("bandwidth", "placement", "policy", "window", "barrier", "colocated")
"""Settings of parameter servers in ``--servers``."""


def run(args: argparse.Namespace) -> int:
    """Predict and print."""
    if (document := _jobs_document(args.model)) is not None:
        return _run_jobs(args, document)
    scaling = scale(request_of(args))
    try:
        if args.trace is not None:
            _write_trace(scaling, args.trace)
    finally:  # the answer is printed even if a file cannot be written
        if args.json:
            print(dump_json(scaling.to_json()))
        else:
            print_scaling(open_console(), scaling.to_json())
    return 0


def _jobs_document(model: str) -> "Document | None":
    """Read the jobs file named by MODEL; None for a model."""
    if not model.lower().endswith((".yaml", ".yml", ".json")):
        return None

    return jobs_document(Path(model))


def _run_jobs(args: argparse.Namespace, document: "Document") -> int:
    """Divide nodes among the jobs of a document and print all throughputs."""
    refuse_unserved(args, Answer.JOBS, "is for one model; jobs are described in their file")
    jobs = plan_jobs(document)
    if args.json:
        print(dump_json(jobs.to_json()))
        return 0

    print_jobs(open_console(), jobs.to_json())
    return 0


def _write_trace(scaling: Scaling, path: Path) -> None:
    """Write the timeline of the largest run."""
    import sys

    noise = Disturbance(seed=scaling.request.seed, jitter=scaling.jitter, slow=scaling.request.slow)
    trace = mode_trace(scaling.profile, scaling.mode, scaling.network, noise)
    write_mode_trace(trace, path)
    print(f"forerun: wrote {path}", file=sys.stderr)


def request_of(args: argparse.Namespace) -> ScaleRequest:
    """Return the request of the flags."""
    if args.fidelity == "coarse":  # former name of the analytic model
        args.fidelity = "analytic"
    if args.fidelity not in (None, "analytic", "events", "both"):
        raise unknown("fidelity", args.fidelity, ("analytic", "events", "both"))

    def quantity(parse: Callable[[str | float], float], text: str | None) -> float | None:
        return None if text is None else with_unit(parse, text)

    settings: dict[str, Any] = {
        "shards": args.shards,
        "overlap": not args.no_overlap,
        "backup_workers": args.backup_workers,
    }
    servers = _servers(args.servers or "")
    bandwidth = servers.pop("bandwidth", None)
    if "window" in servers:
        settings["window_bytes"] = with_unit(parse_bytes, servers.pop("window"))
    settings |= servers
    if args.bucket is not None:  # buckets of the user's size, including the first
        settings |= {"bucket_bytes": with_unit(parse_bytes, args.bucket), "first_bucket_bytes": None}
    return ScaleRequest(
        model=args.model,
        cluster=args.cluster,
        workers=args.workers,
        mode=args.mode,
        batch=args.batch,
        seq_len=args.seq_len,
        precision=args.precision,
        framework=args.framework,
        step_time_s=quantity(parse_seconds, args.step_time),
        bandwidth_bytes_per_s=quantity(parse_rate, args.bandwidth),
        server_bandwidth_bytes_per_s=quantity(parse_rate, bandwidth),
        latency_s=quantity(parse_seconds, args.latency),
        slow=dict(args.slow),
        jitter=args.jitter,
        seed=args.seed,
        fidelity=args.fidelity,
        settings=settings,
    )


def _servers(text: str) -> dict[str, Any]:
    """Read the settings of parameter servers by name."""
    settings: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = word.partition("=")
        if name not in SERVER_SETTINGS:
            raise unknown("setting of servers", name, SERVER_SETTINGS)
        if name in settings:
            raise RequestError(f"--servers {name} is given twice")
        if (name == "colocated") == bool(value):
            raise RequestError(f"--servers takes colocated alone and other settings as NAME=VALUE, but got {word}")
        settings[name] = value or True
    return settings


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
    gains = [
        f"{'' if one['change'] == EQUAL else 'twice the '}{one['change']} {_signed(one['gain'])}"
        for one in document["changes"]
    ]
    limit = f"limited by {document['limited_by']}; " if document["limited_by"] else ""
    return Text(f"{document['points'][-1]['workers']} workers: {limit}{', '.join(gains)}")


def _signed(share: float) -> str:
    """Return a share with its sign; zero has none."""
    text = f"{share:+.0%}"
    return "0%" if text in ("+0%", "-0%") else text
