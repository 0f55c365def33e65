"""The document of ``improve`` on the terminal."""

from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from forerun.search.cli.console import say
from forerun.search.cli.tables import listing
from forerun.spaces.units import format_bytes, format_seconds

_SHOWN = 12
_BUCKETS = {
    "from": "first", "to": "last", "gradients": "gradients", "bytes": "bytes", "pieces": "pieces",
    "full at": "ready_s", "sent at": "sent_s",
}  # fmt: skip
_TABLES = {
    "changes": (
        "Changes, each on top of those above", {"change": "name", "to": "what", "saves": "gain_s", "step": "step_s"},
    ),
    "buckets": ("Buckets, in the order of sending", _BUCKETS),
    "run_what_if": (
        "What if, on the replayed run", {"change": "name", "to": "what", "step": "step_s", "saves": "gain_s"},
    ),
    "what_if": (
        "What if, per pass over the batch",
        {"change": "name", "to": "what", "plan as it is": "default_s", "best plan for it": "best_s"},
    ),
    "strategies": ("Other strategies", {"change": "name", "to": "what", "saves": "saves_s"}),
}  # fmt: skip


def print_improvement(console: Console, document: dict[str, Any]) -> None:
    """Print head, changes, buckets, questions and other strategies."""
    say(console, *_headline(document))
    if not document["changes"]:
        say(console, Text("No change of buckets, fusions or pieces makes it faster by more than 0.01 %"))
    tables: list[RenderableType] = [
        listing(title, document[key], columns, most=_SHOWN if key == "buckets" else None)
        for key, (title, columns) in _TABLES.items()
        if document[key]
    ]
    say(console, *tables, *(Text(note, style="dim") for note in document["notes"]))


def _headline(document: dict[str, Any]) -> list[Text]:
    default_s, gain = document["default_step_time_s"], document["gain"]
    lines = [
        Text(
            f"{document['step']}: {format_seconds(default_s)} a step, {format_seconds(document['best_step_time_s'])} "
            f"with the changes ({abs(gain):.1%} {'less' if gain >= 0 else 'more'}); "
            f"{format_seconds(document['free_messages_step_time_s'])} if messages took no time",
            style="bold",
        ),
        Text(
            f"{document['operators']} operators, {document['operators_with_gradients']} with gradients, "
            f"{format_bytes(document['gradient_bytes'])} exchanged a step"
        ),
    ]
    if (measured_s := document["measured_step_time_s"]) is not None:
        off = default_s / measured_s - 1
        lines.append(Text(f"the run took {format_seconds(measured_s)} a step; this model of it differs by {off:+.1%}"))
    return lines
