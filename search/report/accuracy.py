"""Section of the page on errors of predictions for measured runs of this device and framework."""

from collections.abc import Mapping
from typing import Any

from forerun.search.answer.evidence import entry_of, figures
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.figures.markup import Safe, joined, numbers_line, scrolled, table, tag
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.errors import ForerunError

COLUMNS = (
    ("rows", "runs", "measured steps"),
    ("median_pct", "error of the step", "median of the absolute error of the step time"),
    ("bias_pct", "bias", "median of predicted over measured, less one"),
    ("pairs_pct", "pairs in order", "of runs of one experiment more than 25% apart, those in the right order"),
    ("memory_pct", "error of the memory", "median of the absolute error of the peak memory"),
    ("oom_recall_pct", "out of memory foreseen", "of runs that went out of memory, those predicted not to fit"),
)
"""Figure of an entry, its heading and its meaning."""


def accuracy_section(board: Leaderboard) -> Safe | None:
    """Return the figures for this device and framework, for each alone, and for all runs; None for operator graphs."""
    if board.rows[0].facts is not None:
        return None
    framework = board.request["framework"]
    wanted: list[tuple[str | None, str | None, str]] = []
    for device in _devices(board):
        wanted += [(device, framework, f"{device} with {framework}"), (device, None, device)]
    wanted += [(None, framework, framework), (None, None, "any device and framework")]
    lines, missing = [], []
    for its_device, its_framework, name in wanted:
        entry = entry_of(its_device, its_framework)
        if entry is None:
            missing.append(name)
        else:
            lines.append(_line(name, entry))
    head = ["measured on", *(tag("th", title, scope="col", class_="n", title=meaning) for _, title, meaning in COLUMNS)]
    data = figures()
    caption = f"Predictions with defaults only against published runs, {data['date']}, commit {data['commit']}"
    absent = None
    if missing:
        absent = tag("p", f"No measured runs of {' or of '.join(missing)}: the nearest are below.", class_="warn")
    lead = tag(
        "p",
        "Errors of single runs are larger than the differences between neighbours on the leaderboard; their order is "
        "surer than their times, because both are off in the same direction.",
    )
    return joined([lead, absent, scrolled(table(head, lines, caption=caption), "Accuracy")])


def _devices(board: Leaderboard) -> tuple[str, ...]:
    """Return the device names of the searched cluster; empty if the cluster is unavailable."""
    try:
        cluster = resolve_cluster(str(board.request["cluster"]), groups=True)
    except (ForerunError, KeyError):
        return ()
    clusters = [group.cluster for group in cluster.groups] or [cluster]
    return tuple(dict.fromkeys(one.device.name for one in clusters))


def _line(name: str, entry: Mapping[str, Any]) -> Safe:
    return numbers_line(name, *(_cell(key, entry[key]) for key, _, _ in COLUMNS))


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if key == "rows" else f"{value:+.1f}%" if key == "bias_pct" else f"{value:.1f}%"
