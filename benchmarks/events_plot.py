"""Curves of time and memory as one SVG: a panel for each thing that grows, both axes logarithmic."""

import math
from collections.abc import Sequence
from html import escape

Curve = tuple[str, str, Sequence[int], Sequence[float], Sequence[int]]
"""What grows, which simulation, its sizes, seconds and bytes."""

_WIDTH, _HEIGHT, _EDGE = 330, 190, 56
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377")


def picture(curves: Sequence[Curve]) -> str:
    """Return the picture: seconds in the upper row of panels, megabytes in the lower."""
    titles = list(dict.fromkeys(title for title, *_ in curves))
    width, height = len(titles) * (_WIDTH + _EDGE) + _EDGE, 2 * (_HEIGHT + _EDGE) + _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for column, title in enumerate(titles):
        own = [curve for curve in curves if curve[0] == title]
        for row, unit in enumerate(("seconds", "MB")):
            left, top = _EDGE + column * (_WIDTH + _EDGE), 30 + row * (_HEIGHT + _EDGE)
            lines = [
                (name, sizes, seconds if unit == "seconds" else [held / 1e6 for held in bytes_])
                for _, name, sizes, seconds, bytes_ in own
            ]
            parts += _panel(left, top, title, unit, lines)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    left: int, top: int, title: str, unit: str, lines: Sequence[tuple[str, Sequence[int], Sequence[float]]]
) -> list[str]:
    """Return one panel; ticks stand at the sizes and at powers of ten."""
    sizes = sorted({size for _, each, _ in lines for size in each})
    values = [value for _, _, each in lines for value in each]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    first, last = math.log(sizes[0]), math.log(sizes[-1])

    def place(size: float, value: float) -> tuple[float, float]:
        across = (math.log(size) - first) / ((last - first) or 1.0)
        up = (math.log10(value) - low) / ((high - low) or 1)
        return left + across * _WIDTH, top + (1 - up) * _HEIGHT

    parts = [
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{left}" y="{top - 8}">{escape(unit)} against {escape(title)}</text>',
    ]
    for size in sizes:
        x, _ = place(size, 10.0**low)
        parts.append(f'<text x="{x:.1f}" y="{top + _HEIGHT + 14}" text-anchor="middle">{size:,}</text>')
    for power in range(low, high + 1):
        _, y = place(sizes[0], 10.0**power)
        parts.append(f'<path d="M{left},{y:.1f}h{_WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for number, (name, each, found) in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [place(size, value) for size, value in zip(each, found, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        y = top + 16 + 14 * number
        parts.append(f'<text x="{left + 8}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return parts
