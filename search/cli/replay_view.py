"""The analysis of traces on the terminal."""

from collections.abc import Sequence
from math import isnan

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.search.cli.console import say
from forerun.simulator.replay import Analysis
from forerun.simulator.replay.gaps import Gap
from forerun.simulator.replay.summary import critical_shares
from forerun.spaces.units import format_bytes, format_rate, format_seconds

_RANKS_SHOWN = 16
_MESSAGES_SHOWN = 5
_WORTH = 0.005
"""Share of a step from which a wait is worth a name."""
_STRANGERS_NOTE = "most messages are unmatched: are these ranks of one run, profiled over the same steps?"
_BROKEN_NOTE = "exchanges still end before they start: the time stamps of these traces contradict each other"


def print_replay(console: Console, analysis: Analysis, *, link_bytes_per_s: float | None, top: int) -> None:
    """Print head, ranks, critical path, stragglers, overlap and links."""
    say(console, *_headline(analysis), _ranks(analysis), _path(analysis, top), *_stragglers(analysis))
    if analysis.overlaps:
        say(console, _overlaps(analysis))
    if analysis.links:
        say(console, _links(analysis, link_bytes_per_s))
    if analysis.slow_messages:
        say(console, _slow_messages(analysis, top))


def print_gaps(console: Console, gaps: Sequence[Gap]) -> None:
    """Print the longest gaps between computations."""
    shown = table("\nLongest gaps of what computes", "between", "rank", "step", "at", "gap")
    for gap in gaps:
        words = f"{gap.behind[:34]} and {gap.before[:34]}"
        shown.add_row(words, str(gap.rank), str(gap.step), format_seconds(gap.at_s), format_seconds(gap.seconds))
    say(console, shown if gaps else Text("\nNo gaps: what computes never stands still"))


def _headline(analysis: Analysis) -> list[Text]:
    result, graph = analysis.replay, analysis.replay.graph
    ranks, steps = len(graph.traces), len(result.measured_s)
    lines = [
        Text(
            f"{ranks} rank{'s' * (ranks > 1)}, {steps} step{'s' * (steps > 1)}: {format_seconds(result.step_s)} a step "
            f"measured, {format_seconds(result.replayed_step_s)} replayed ({result.error:+.1%})",
            style="bold",
        )
    ]
    if not all(trace.marked for trace in graph.traces):
        lines.append(Text("no step is marked (ProfilerStep): the whole trace, start-up included, counts as one step"))
    if analysis.averaged is not None:
        lines.append(
            Text(
                f"replayed with mean operator times: {format_seconds(analysis.averaged.replayed_step_s)} "
                f"({analysis.averaged.error:+.1%})"
                + (f", with each rank's speed in each step {analysis.paced.error:+.1%}" if analysis.paced else "")
                + "; what is left is variation within steps"
            )
        )
    world = max(graph.traces[0].world, len(graph.traces))
    if world > len(graph.traces):
        lines.append(Text(f"traces of {len(graph.traces)} of {world} ranks: waits for the other ranks are unknown"))
    lines.append(Text(f"{len(graph.matching.exchanges)} messages matched across ranks"))
    if graph.matching.unmatched:
        lines[-1].append(f", {graph.matching.unmatched} unmatched, which keep their measured time")
    if graph.matching.unmatched > len(graph.matching.exchanges):
        lines.append(Text(_STRANGERS_NOTE, style="yellow"))
    clocks = graph.clocks
    if clocks.hosts > 1:
        lines.append(
            Text(
                f"clocks of {clocks.hosts} hosts: offsets up to {format_seconds(abs(clocks.offset_s).max())} and "
                f"drifts up to {abs(clocks.drift).max() * 1e6:.1f} ppm removed; ends of messages then agree within "
                f"{format_seconds(clocks.residual_s)}"
            )
        )
    if clocks.broken:
        lines.append(Text(f"{clocks.broken} {_BROKEN_NOTE}", style="yellow"))
    if clocks.unlinked:
        lines.append(
            Text(f"{clocks.unlinked} hosts exchange no message with the first: clocks uncorrected", style="yellow")
        )
    return lines


def table(title: str, *columns: str) -> Table:
    """Return an empty table whose first column is text and whose others are figures."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        narrowest = None if number else len(column)
        made.add_column(column, justify="left" if not number else "right", no_wrap=bool(number), min_width=narrowest)
    return made


def _ranks(analysis: Analysis) -> Table:
    head = ("rank", "computing", "exposed comm.", "waiting", "on rank", "host", "idle")
    shown = table("\nTime per step, by rank", *head)
    for place, use in enumerate(analysis.uses[:_RANKS_SHOWN]):
        whole = use.compute_s + use.exposed_s + use.host_s + use.idle_s or 1.0
        values = (use.compute_s, use.exposed_s, use.waiting_s, use.host_s, use.idle_s)
        figures = [f"{format_seconds(value)} {value / whole:3.0%}" for value in values]
        waits = analysis.blame_s[place]
        mostly = str(analysis.uses[int(waits.argmax())].rank) if waits.max() > _WORTH * whole else ""
        shown.add_row(str(use.rank), *figures[:3], mostly, *figures[3:])
    if len(analysis.uses) > _RANKS_SHOWN:
        shown.add_row(f"… {len(analysis.uses) - _RANKS_SHOWN} more (--json)")
    return shown


def _path(analysis: Analysis, top: int) -> Table:
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in critical_shares(analysis).items() if share >= 0.005)
    shown = table(f"\nCritical path: {shares}", "longest parts", "kind", "rank", "count", "per step", "share")
    whole = sum(part.seconds for part in analysis.path) or 1.0
    for part in analysis.path[:top]:
        shown.add_row(
            part.name[:70],
            part.kind,
            str(part.rank),
            str(part.count),
            format_seconds(part.seconds / len(analysis.replay.measured_s)),
            f"{part.seconds / whole:.1%}",
        )
    return shown


def _stragglers(analysis: Analysis) -> list[Text | Table]:
    if len(analysis.uses) < 2:
        return []
    if not analysis.stragglers:
        return [Text("\nNo stragglers: no rank has clearly more work of its own than the others")]
    shown = table("\nStragglers", "rank", "extra work per step", "step longer by", "since")
    for one in analysis.stragglers:
        since = "the first step" if not one.since_step else f"step {one.since_step}, {format_seconds(one.since_s)} in"
        shown.add_row(str(one.rank), format_seconds(one.excess_s), format_seconds(one.caused_s), since)
    return [shown]


def _overlaps(analysis: Analysis) -> Table:
    shown = table("\nSlowdown under communication", "kind", "factor", "kernels compared")
    for one in analysis.overlaps:
        shown.add_row(one.kind, f"{one.factor:.2f}", str(one.kernels))
    return shown


def _slow_messages(analysis: Analysis, top: int) -> Table:
    head = ("message", "ranks", "step", "at", "bytes", "took", "usually")
    shown = table("\nMessages that took more than twice as long as others like them", *head)
    for one in analysis.slow_messages[: min(top, _MESSAGES_SHOWN)]:
        ranks = ",".join(map(str, one.ranks[:6])) + ("…" if len(one.ranks) > 6 else "")
        size = "" if isnan(one.size_bytes) else format_bytes(one.size_bytes)
        times = [format_seconds(value) for value in (one.at_s, one.took_s, one.usual_s)]
        shown.add_row(one.operation, ranks, str(one.step), times[0], size, *times[1:])
    return shown


def _links(analysis: Analysis, link_bytes_per_s: float | None) -> Table:
    head = ("message", "ranks", "count", "bytes", "time", "bandwidth")
    more = ("of link rate",) if link_bytes_per_s else ()
    shown = table("\nMessages, timed from the last rank's arrival", *head, *more)
    for one in analysis.links:
        ranks = ",".join(map(str, one.ranks[:6])) + ("…" if len(one.ranks) > 6 else "")
        reached = one.bandwidth_bytes_per_s
        rate = "unknown size" if isnan(reached) else format_rate(reached)
        share = () if not link_bytes_per_s else ("" if isnan(reached) else f"{reached / link_bytes_per_s:.0%}",)
        size = format_bytes(one.total_bytes)
        shown.add_row(one.operation, ranks, str(one.count), size, format_seconds(one.busy_s), rate, *share)
    return shown
