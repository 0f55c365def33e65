"""The timeline as one offline HTML page: a wide picture, and the tasks of every stage."""

from html import escape

from forerun.simulator.events.engine.svg import timeline_svg
from forerun.simulator.events.step.result import EventResult
from forerun.spaces.units import format_bytes, format_seconds

_PER_PASS = 9
"""Width in pixels of the mean pass of a stage, at which passes can be distinguished."""
_NARROWEST, _WIDEST = 1200, 24_000
_STYLE = (
    "body{font:14px sans-serif;margin:1.5em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin-top:1em}"
    "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "td:last-child,th:last-child{text-align:left}.wide{overflow-x:auto;border:1px solid #ddd}"
)


def timeline_html(result: EventResult) -> str:
    """Return the page, without scripts or external resources."""
    rows = "".join(
        f"<tr><td>{stage}</td><td>{_share(use.busy_s, result)}</td><td>{_share(use.exposed_s, result)}</td>"
        f"<td>{_share(use.idle_s, result)}</td><td>{escape(format_bytes(use.peak_bytes))}</td>"
        f"<td>{escape(use.peak_task)}</td></tr>"
        for stage, use in enumerate(result.stages)
    )
    critical = ", ".join(
        f"{part} {_share(seconds, result)}" for part, seconds in result.critical_s.items() if seconds > 0
    )
    heads = ("stage", "busy", "exposed communication", "idle", "peak of live tensors", "allocated by")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>one step</title>'
        f"<style>{_STYLE}</style></head><body><h1>One step: {escape(format_seconds(result.step_time_s))}</h1>"
        f"<p>bubble {result.bubble_share:.1%} of all stages&rsquo; time; on the critical path: {escape(critical)}</p>"
        f'<div class="wide">{timeline_svg(result, _width(result))}</div>'
        f"<table><thead><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead>"
        f"<tbody>{rows}</tbody></table></body></html>\n"
    )


def _share(seconds: float, result: EventResult) -> str:
    return f"{seconds / result.step_time_s:.1%}" if result.step_time_s else "0.0%"


def _width(result: EventResult) -> int:
    passes = 2 * result.costs.shape.microbatches * result.costs.shape.vpp
    return min(max(_PER_PASS * passes, _NARROWEST), _WIDEST)
