"""A curve of throughput against workers on the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.search.cli.console import say
from forerun.search.cli.tables import table_of
from forerun.search.scale.changes import EQUAL, limited_by
from forerun.search.scale.jobs import Jobs
from forerun.search.scale.request import Scaling
from forerun.simulator.modes import CurvePoint
from forerun.spaces.units import format_bytes, format_rate, format_seconds

BAR = 10


def print_scaling(console: Console, scaling: Scaling) -> None:
    """Print head, curve, saturation and defaults."""
    say(console, *_headline(scaling), _table(scaling, ascii_only=console.options.ascii_only), *_verdict(scaling))
    if scaling.defaults:
        say(console, Text(f"defaults used: {'; '.join(scaling.defaults)}", style="dim"))


def print_jobs(console: Console, jobs: Jobs) -> None:
    """Print which nodes every job gets and how fast it runs."""
    rows = (
        (
            job.name,
            str(job.nodes),
            str(job.workers),
            f"{job.speed_up:.2f}",
            f"{job.alone_samples_per_s:,.0f}",
            f"{job.samples_per_s:,.0f}",
        )
        for job in jobs.placed
    )
    columns = ("job", ">nodes", ">workers", ">speed-up", ">samples/s alone", ">beside the others")
    table = table_of(columns, rows, wide=True)
    used = sum(job.nodes for job in jobs.placed)
    goal = "most speed-up in all" if jobs.goal == "total" else "smallest speed-up as large as can be"
    say(console, Text(f"{used} of {jobs.nodes} nodes of {jobs.cluster}: {goal}", style="bold"), table)
    if jobs.defaults:
        say(console, Text(f"defaults used: {'; '.join(jobs.defaults)}", style="dim"))


def _headline(scaling: Scaling) -> list[Text]:
    mode, profile, network = scaling.mode, scaling.profile, scaling.network
    servers = ""
    rates = f"each worker sends {format_rate(network.worker_bytes_per_s)}, "
    if mode.exchange == "parameter-server":
        where = "on workers' nodes" if mode.colocated else "on nodes of their own"
        servers = f", {mode.shards} shard{'s' * (mode.shards > 1)} {where}, {mode.policy}"
        rates += f"a server {format_rate(network.server_bytes_per_s)}, "
    return [
        Text(f"{profile.name}, {mode.name}{servers}, batch {profile.batch:g} per worker", style="bold"),
        Text(
            f"one worker: {format_seconds(profile.step_s)} a step (forward {format_seconds(profile.forward_s)}, "
            f"backward {format_seconds(profile.backward_s)}, update {format_seconds(profile.update_s)}), "
            f"{format_bytes(profile.total_bytes)} of parameters"
        ),
        Text(f"{rates}{format_seconds(network.latency_s)} latency"),
    ]


def _disagreement(point: CurvePoint) -> float:
    """Return the relative difference of the answer that is not shown."""
    gap = point.disagreement or 0.0
    return 1 / (1 + gap) - 1 if point.exact else gap


def _table(scaling: Scaling, *, ascii_only: bool) -> Table:
    curve = scaling.curve
    first = curve.points[0]
    stale, both = first.chosen.staleness is not None, first.disagreement is not None
    columns = [">workers", ">samples/s", ">efficiency", ">step", ">waiting", *([">stale"] if stale else [])]
    columns += [">events" if first.exact else ">analytic"] if both else []
    most, rows = curve.best.chosen.samples_per_s, []
    for point in curve.points:
        found = point.chosen
        cells = [
            f"{point.workers}",
            f"{found.samples_per_s:,.1f}",
            f"{curve.efficiency(point):.0%}",
            format_seconds(found.step_s),
            f"{1 - found.parts_s['compute'] / found.step_s:.0%}",
        ]
        cells += [f"{found.staleness:.1f}"] if stale else []
        cells += [_signed(_disagreement(point))] if both else []
        bar = ("#" if ascii_only else "█") * round((BAR - 6 * stale) * found.samples_per_s / most)
        rows.append((*cells, bar))
    return table_of((*columns, "|"), rows, wide=True)


def _verdict(scaling: Scaling) -> list[Text]:
    curve = scaling.curve
    knee, last = curve.saturation, curve.points[-1]
    lines: list[Text] = []
    if len(curve.points) == 1:
        text = ""
    elif curve.saturated:
        text = (
            f"saturates with {knee.workers}: {knee.chosen.samples_per_s:,.1f} samples/s, 95 % of the best, "
            f"{curve.best.chosen.samples_per_s:,.1f} with {curve.best.workers}"
        )
    else:
        text = f"still growing at {last.workers} workers"
    if text:
        lines.append(Text(text, style="bold"))
    bound = last.chosen.bound_samples_per_s
    if bound != float("inf"):
        lines.append(Text(f"upper bound set by the network: {bound:,.1f} samples/s with {last.workers} workers"))
    worst = last.chosen.staleness_worst
    if worst is not None:
        lines.append(
            Text(f"staleness: updates by others during a worker's step; {worst:.1f} for the slowest of {last.workers}")
        )
    lines.append(_twice(scaling))
    if last.disagreement is not None:
        gap = max(map(_disagreement, curve.points), key=abs)
        both = ("the analytic model", "the event level") if last.exact else ("the event level", "the analytic model")
        lines.append(Text(f"samples/s from {both[0]}; {both[1]} differs by up to {_signed(gap)}", style="dim"))
    return lines


def _twice(scaling: Scaling) -> Text:
    """Say what limits the largest run, and what twice as much of each thing would bring it."""
    found = scaling.changes()
    words = []
    for change in found:
        twice = "" if change.name == EQUAL else "twice the "
        words.append(f"{twice}{change.name} {_signed(change.gain)}")
    limit = limited_by(found)
    first = f"limited by {limit}; " if limit else ""
    return Text(f"{scaling.curve.points[-1].workers} workers: {first}{', '.join(words)}")


def _signed(share: float) -> str:
    """Return a share with its sign; nothing has none."""
    text = f"{share:+.0%}"
    return "0%" if text in ("+0%", "-0%") else text
