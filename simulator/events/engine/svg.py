"""Timeline as one SVG without scripts or external resources, for reports and papers."""

from html import escape
from typing import Protocol

from forerun.simulator.events.engine.kinds import COLOURS, KINDS, STREAMS
from forerun.simulator.events.engine.timeline import Timeline

_ROW, _THIN, _LEFT, _TOP = 22, 8, 64, 24
_LEAST = 0.25
"""Width in pixels below which neighbours of one colour are merged."""


class Drawn(Protocol):
    """Data of a picture: the records of a step, its duration, and the occupation of every stream."""

    @property
    def step_time_s(self) -> float:
        """Seconds of the step."""

    @property
    def occupied_s(self) -> tuple[float, ...]:
        """Seconds of occupation of every stream, by its number."""

    @property
    def records(self) -> Timeline:
        """When every task ran."""


def timeline_svg(result: Drawn, width: int = 1200) -> str:
    """Return the picture: compute streams as thick rows, the other used streams as thin rows below them."""
    lines, used = _rows(result)
    offsets, height = [0] * len(lines), _TOP
    for stream in range(len(lines)):
        offsets[stream] = height
        height += (_ROW if stream % len(STREAMS) == 0 else _THIN) if used[stream] else 0
        height += 4 if stream % len(STREAMS) == len(STREAMS) - 1 else 0
    scale = (width - _LEFT - 8) / result.step_time_s if result.step_time_s else 0.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 24}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>one step, {result.step_time_s * 1e3:.4g} ms</title>",
        *_legend(result),
    ]
    for stream, row in enumerate(lines):
        tall = _ROW - 2 if stream % len(STREAMS) == 0 else _THIN - 1
        if used[stream] and stream % len(STREAMS) == 0:
            parts.append(f'<text x="4" y="{offsets[stream] + 14}">stage {stream // len(STREAMS)}</text>')
        for kind, low_s, high_s, name in _merged(row, _LEAST / scale if scale else 0.0):
            parts.append(
                f'<rect x="{_LEFT + low_s * scale:.2f}" y="{offsets[stream]}" width="{(high_s - low_s) * scale:.2f}" '
                f'height="{tall}" fill="{COLOURS[kind]}"><title>{escape(name)}</title></rect>'
            )
    parts.append(f'<text x="{_LEFT}" y="{height + 14}">0</text>')
    end = f"{result.step_time_s * 1e3:.4g} ms"
    parts.append(f'<text x="{width - 8}" y="{height + 14}" text-anchor="end">{end}</text></svg>')
    return "\n".join(parts) + "\n"


def _rows(result: Drawn) -> tuple[list[list[tuple[int, float, float, str]]], list[bool]]:
    """Return (kind, start, end, name) of the tasks of every stream in order of time, and which streams are shown."""
    records = result.records
    lines: list[list[tuple[int, float, float, str]]] = [[] for _ in result.occupied_s]
    for task in records.tasks():
        if task.end_s > task.start_s:
            for stream in records.streams_of(task.number):
                lines[stream].append((records.kind_of(task.number), task.start_s, task.end_s, task.name))
    for row in lines:
        row.sort(key=lambda entry: entry[1])
    return lines, [bool(row) or stream % len(STREAMS) == 0 for stream, row in enumerate(lines)]


def _merged(row: list[tuple[int, float, float, str]], least_s: float) -> list[tuple[int, float, float, str]]:
    """Return a row in which tasks too thin to see are merged into the preceding task of their kind, for small files."""
    merged: list[tuple[int, float, float, str]] = []
    for kind, low_s, high_s, name in row:
        if merged and merged[-1][0] == kind and high_s - low_s < least_s and low_s - merged[-1][2] < least_s:
            merged[-1] = (kind, merged[-1][1], high_s, merged[-1][3])
        else:
            merged.append((kind, low_s, high_s, name))
    return merged


def _legend(result: Drawn) -> list[str]:
    """Return a coloured name for every kind of task that occurs."""
    parts, x = [], _LEFT
    for kind in sorted(result.records.found()):
        parts.append(f'<rect x="{x}" y="6" width="10" height="10" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{x + 14}" y="15">{KINDS[kind]}</text>')
        x += 24 + 7 * len(KINDS[kind])
    return parts
