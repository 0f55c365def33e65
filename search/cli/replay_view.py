"""The document of ``replay`` on the terminal."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from forerun.search.cli.console import say
from forerun.search.cli.tables import Columns, Line, listing
from forerun.spaces.units import format_bytes, format_rate, format_seconds

_RANKS_SHOWN, _MESSAGES_SHOWN, _PEERS_SHOWN = 16, 5, 6
_WORTH = 0.005
"""Share of a step from which a wait is named."""
_LEAST_DIFFERENCE = 0.001
"""Share of a step below which two runs count as equal for an operator."""
_STRANGERS_NOTE = "most messages are unmatched: are these ranks of one run, profiled over the same steps?"
_BROKEN_NOTE = "exchanges still end before they start: the time stamps of these traces contradict each other"
_OPERATORS = {
    "name": "name", "kind": "kind", "phase": "phase", "count": "count", "mean": "mean_s", "least": "least_s",
    "most": "most_s", "per step": "step_s",
}  # fmt: skip


def print_replay(console: Console, document: dict[str, Any], *, top: int) -> None:
    """Print head, ranks, critical path, stragglers, overlap, links and operators."""
    say(console, *_headline(document), *_run(document, top), *_messages(document, top), *_operators(document, top))


def _headline(document: dict[str, Any]) -> list[Text]:
    ranks, steps = len(document["traces"]), document["steps"]
    lines = [
        Text(
            f"{ranks} rank{'s' * (ranks > 1)}, {steps} step{'s' * (steps > 1)}: "
            f"{format_seconds(document['step_time_s'])} a step measured, "
            f"{format_seconds(document['replayed_step_time_s'])} replayed ({document['replay_error']:+.1%})",
            style="bold",
        )
    ]
    if not document["steps_marked"]:
        lines.append(Text("no step is marked (ProfilerStep): the whole trace, start-up included, counts as one step"))
    if (averaged := document["averaged_replay_error"]) is not None:
        paced = document["paced_replay_error"]
        each = "" if paced is None else f", with each rank's speed in each step {paced:+.1%}"
        lines.append(
            Text(
                f"replayed with mean operator times: {format_seconds(document['step_time_s'] * (1 + averaged))} "
                f"({averaged:+.1%}){each}; the remaining error is variation within steps"
            )
        )
    if document["world"] > ranks:
        lines.append(Text(f"traces of {ranks} of {document['world']} ranks: waits for the other ranks are unknown"))
    matched, unmatched = document["exchanges"], document["unmatched_messages"]
    kept = f", {unmatched} unmatched, which keep their measured time" if unmatched else ""
    lines.append(Text(f"{matched} messages matched across ranks{kept}"))
    lines += [Text(_STRANGERS_NOTE, style="yellow")] if unmatched > matched else []
    return [*lines, *_clocks(document["clocks"])]


def _clocks(clocks: dict[str, Any]) -> list[Text]:
    lines = []
    if clocks["hosts"] > 1:
        lines.append(
            Text(
                f"clocks of {clocks['hosts']} hosts: offsets up to {format_seconds(_largest(clocks['offset_s']))} and "
                f"drifts up to {_largest(clocks['drift']) * 1e6:.1f} ppm removed; ends of messages then agree within "
                f"{format_seconds(clocks['residual_s'])}"
            )
        )
    if clocks["broken_laws"]:
        lines.append(Text(f"{clocks['broken_laws']} {_BROKEN_NOTE}", style="yellow"))
    if hosts := clocks["hosts_unlinked"]:
        lines.append(Text(f"{hosts} hosts exchange no message with the first: clocks uncorrected", style="yellow"))
    return lines


def _largest(values: Sequence[float]) -> float:
    return max(map(abs, values))


def _run(document: dict[str, Any], top: int) -> list[RenderableType]:
    """Return the tables of ranks, of the critical path and of stragglers."""
    ranks: Columns = {
        "rank": "rank", ">computing": partial(_of_step, "compute_s"), ">exposed comm.": partial(_of_step, "exposed_s"),
        ">waiting": partial(_of_step, "waiting_s"), "on rank": _awaited, ">host": partial(_of_step, "host_s"),
        ">idle": partial(_of_step, "idle_s"),
    }  # fmt: skip
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in document["critical_share"].items() if share >= 0.005)
    path: Columns = {
        "longest parts": "name", "kind": "kind", "rank": "rank", "count": "count",
        ">per step": lambda part: format_seconds(part["seconds"] / document["steps"]), "share": "share",
    }  # fmt: skip
    tables: list[RenderableType] = [
        listing("\nTime per step, by rank", document["ranks"], ranks, most=_RANKS_SHOWN),
        listing(f"Critical path: {shares}", document["critical_path"][:top], path),
    ]
    if len(document["ranks"]) < 2:
        return tables
    if not document["stragglers"]:
        return [*tables, Text("No stragglers: no rank has clearly more work of its own than the others\n")]
    since: Columns = {"rank": "rank", "extra work per step": "excess_s", "step longer by": "caused_s", "since": _since}
    return [*tables, listing("Stragglers", document["stragglers"], since)]


def _rank_s(line: Line) -> float:
    return float(line["compute_s"] + line["exposed_s"] + line["host_s"] + line["idle_s"]) or 1.0


def _of_step(key: str, line: Line) -> str:
    return f"{format_seconds(line[key])} {line[key] / _rank_s(line):3.0%}"


def _awaited(line: Line) -> str:
    """Return the rank that a rank waits for most; empty for a short wait."""
    rank, waited_s = max(line["waiting_for_s"].items(), key=lambda item: item[1], default=("", 0.0))
    return rank if waited_s > _WORTH * _rank_s(line) else ""


def _since(line: Line) -> str:
    step = line["since_step"]
    return f"step {step}, {format_seconds(line['since_s'])} in" if step else "the first step"


def _messages(document: dict[str, Any], top: int) -> list[RenderableType]:
    """Return the tables of slowdown by messages, of links, and of slow messages."""
    slowdown: Columns = {"kind": "kind", "factor": "factor", "kernels compared": "kernels"}
    links: Columns = {
        "message": "operation", ">ranks": _ranks, "count": "count", "bytes": "total_bytes", "time": "busy_s",
        ">bandwidth": lambda line: _known(line, "bandwidth_bytes_per_s", format_rate) or "unknown size",
    }  # fmt: skip
    rated = any(line["share_of_link"] is not None for line in document["links"])
    rate: Columns = {">of link rate": lambda line: _known(line, "share_of_link", "{:.0%}".format)} if rated else {}
    slow: Columns = {
        "message": "operation", ">ranks": _ranks, "step": "step", "at": "at_s",
        ">bytes": lambda line: _known(line, "size_bytes", format_bytes), "took": "took_s", "usually": "usual_s",
    }  # fmt: skip
    tables: list[tuple[str, list[Line], Columns]] = [
        ("Slowdown under communication", document["overlap"], slowdown),
        ("Messages, timed from the last rank's arrival", document["links"], {**links, **rate}),
        (
            "Messages that took more than twice as long as others like them",
            document["slow_messages"][: min(top, _MESSAGES_SHOWN)], slow,
        ),
    ]  # fmt: skip
    return [listing(title, lines, columns) for title, lines, columns in tables if lines]


def _ranks(line: Line) -> str:
    return ",".join(map(str, line["ranks"][:_PEERS_SHOWN])) + ("…" if len(line["ranks"]) > _PEERS_SHOWN else "")


def _known(line: Line, key: str, text: Any) -> str:
    return "" if line[key] is None else str(text(line[key]))


def _operators(document: dict[str, Any], top: int) -> list[RenderableType]:
    """Return answers about operators, and the operators with the largest differences between the runs."""
    asked: Columns = {"operators": "name", "changed": "what", "a step": "step_s", "saves": "gain_s"}
    parts: list[RenderableType] = []
    if "found" in document:
        parts.append(listing("Operators", document["found"], _OPERATORS))
    if document["what_if"]:
        parts.append(listing("What if", document["what_if"], asked))
    if "against" in document:
        parts.append(_differences(document, top))
    if "gaps" in document:
        gaps: Columns = {
            "between": lambda line: f"{line['behind'][:34]} and {line['before'][:34]}", "rank": "rank", "step": "step",
            "at": "at_s", "gap": "seconds",
        }  # fmt: skip
        title = "Longest gaps between computations"
        none = Text("No gaps between computations")
        parts.append(listing(title, document["gaps"], gaps) if document["gaps"] else none)
    return parts


def _differences(document: dict[str, Any], top: int) -> RenderableType:
    step_s, other_s = document["step_time_s"], document["against"]["step_time_s"]
    change = f"{format_seconds(other_s)} per step ({step_s / other_s - 1:+.1%})"
    title = f"Against the other run, of {change}: operators per step, mean over ranks"
    lines = [one for one in document["against"]["operators"] if abs(one["difference_s"]) > _LEAST_DIFFERENCE * step_s]
    if not lines:
        return Text(f"{title}\nnone differs by {_LEAST_DIFFERENCE:.1%} of a step or more")
    columns: Columns = {
        "operator": "name", "phase": "phase", "this run": "step_s", "other run": "other_step_s",
        ">difference": lambda line: ("+" if line["difference_s"] > 0 else "-")
        + format_seconds(abs(line["difference_s"])),
    }  # fmt: skip
    return listing(title, lines[:top], columns)
