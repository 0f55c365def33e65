"""The page of a tuning: its runs in order, predicted against measured, and errors of the catalogue."""

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.figures.markup import Safe, column, joined, scrolled, table, tag
from forerun.search.figures.still_page import section, still_page
from forerun.search.report.bars import plain_bar
from forerun.spaces.units import format_seconds

COLUMNS = ("run", "row", "predicted", "measured", "off", "GiB predicted", "GiB measured", "OOM risk", "GPU-hours")
"""Figures of a run in the leaderboard, followed by its strategy."""


def tune_html(document: Mapping[str, Any], sentences: Sequence[str]) -> str:
    """Return the result of a tuning as a self-contained page without script.

    Parameters
    ----------
    document
        Result of a tuning as plain data (``result.json``).
    sentences
        The result in sentences.
    """
    request, runs = document["request"], document["runs"]
    content = [
        section("answer", "Answer", tag("ul", *(tag("li", text.strip()) for text in sentences))),
        section("runs", "Runs in order", *(_story(run) for run in runs)) if runs else None,
        section("steps", "Predicted and measured steps", _steps(runs)) if runs else None,
        section("leaderboard", "Leaderboard", _table(document)) if document["leaderboard"] else None,
        _learned(document["catalogue"]["moved"]),
    ]
    asked = (
        f"{request['model_name']} on {request['cluster_name']} with {request['framework']}: global batch "
        f"{request['global_batch']}, {request['seq_len']} tokens, {request['precision']}"
    )
    return still_page(title="Tuning", subtitle=asked, content=[one for one in content if one is not None])


def _story(run: Mapping[str, Any]) -> Safe:
    """Describe the reason, the strategy and the end of a run."""
    ended = f"{run['status']}: {run['text']}" if run.get("text") else run["status"]
    if run.get("measured_over_predicted"):
        off = run["measured_over_predicted"] - 1
        ended = f"{format_seconds(run['step_s'])} a step, {off:+.1%} against the prediction ({ended})"
    facts = [
        tag("p", tag("code", run["strategy"])),
        tag("p", f"Chosen because: {run['reason']}. {ended}"),
        tag("p", "Log: ", tag("code", run["log"]), class_="hint"),
    ]
    return joined([tag("h3", f"Run {run['number']:02}"), *facts])


def _steps(runs: Sequence[Mapping[str, Any]]) -> Safe:
    """Draw predicted and measured steps of the runs on one scale."""
    longest = max(max(run["predicted_s"], run.get("step_s") or 0.0) for run in runs)
    lines = []
    for run in runs:
        pairs = [("predicted", run["predicted_s"]), ("measured", run.get("step_s"))]
        for name, seconds in pairs:
            if seconds is not None:
                label = f"run {run['number']:02} {name}: {format_seconds(seconds)}"
                lines.append(tag("li", tag("span", label), plain_bar(seconds / longest)))
    return tag("ol", *lines, class_="bars")


def _table(document: Mapping[str, Any]) -> Safe:
    """Return the runs as a table."""
    lines = [
        tag(
            "tr",
            *(tag("td", cells[name], class_="n") for name in COLUMNS),
            tag("td", tag("code", cells["strategy"])),
        )
        for cells in run_cells(document)
    ]
    return scrolled(table([*(column(name) for name in COLUMNS), "strategy"], lines), "runs")


def run_cells(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the cells of all runs by column: measured runs, fastest first, then the others in their order."""
    place = {number: row for row, number in enumerate(document["leaderboard"])}
    return [_cells(run) for run in sorted(document["runs"], key=lambda run: place.get(run["number"], len(place)))]


def _cells(run: Mapping[str, Any]) -> dict[str, str]:
    ratio, peak = run.get("measured_over_predicted"), run.get("peak_gib")
    return {
        "run": f"{run['number']:02}",
        "row": str(run["rank"]),
        "predicted": format_seconds(run["predicted_s"]),
        "measured": format_seconds(run["step_s"]) if ratio else run["status"],
        "off": f"{ratio - 1:+.1%}" if ratio else "",
        "GiB predicted": f"{run['predicted_peak_gib']:.1f}",
        "GiB measured": f"{peak:.1f}" if peak else "",
        "OOM risk": f"{run['risk']:.1%}",
        "GPU-hours": f"{run.get('gpu_hours', 0.0):.3g}",
        "strategy": run["strategy"],
    }


def _learned(moved: Sequence[Mapping[str, Any]]) -> Safe | None:
    """Return the constants changed by the runs; None without a change."""
    if not moved:
        return None
    lines = [tag("tr", tag("th", one["what"], scope="row"), tag("td", f"x {one['factor']:.2f}")) for one in moved]
    return section("learned", "Constants that the runs moved", table(("constant", "against the catalogue"), lines))
