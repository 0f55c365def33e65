"""Predicted against measured step times as one small SVG, without a plotting library."""

import math
from collections.abc import Sequence

from forerun.search.measured.validate import Predictions

SIDE, MARGIN, LEGEND = 640, 50, 190
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#000000")
"""Paul Tol's bright scheme: told apart by colour-blind readers. Tables beyond these share them with another mark."""


def scatter(predictions: Predictions, rows: Sequence[int]) -> str:
    """Return a plot of the given rows, one colour per table; lines at equality and at 25 % either side."""
    values = [(predictions.runs[row].step_time_s or 0.0, float(predictions.step_time_s[row])) for row in rows]
    low = math.floor(math.log10(min(map(min, values))))
    high = math.ceil(math.log10(max(map(max, values))))
    scale = SIDE / (high - low)

    def place(measured: float, predicted: float) -> tuple[float, float]:
        x = MARGIN + (math.log10(measured) - low) * scale
        return x, MARGIN + SIDE - (math.log10(predicted) - low) * scale

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIDE + 2 * MARGIN + LEGEND}" height="{SIDE + 2 * MARGIN}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>',
    ]
    for decade in range(low, high + 1):
        x, y = place(10.0**decade, 10.0**decade)
        label = f"{10.0**decade:g} s"
        parts.append(f'<text x="{x:.0f}" y="{MARGIN + SIDE + 18}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.0f}" text-anchor="end">{label}</text>')
    for factor, dash in ((1.0, ""), (1.25, ' stroke-dasharray="4"'), (0.8, ' stroke-dasharray="4"')):
        first, last = 10.0**low * max(1.0, 1 / factor), 10.0**high * min(1.0, 1 / factor)
        (x1, y1), (x2, y2) = place(first, first * factor), place(last, last * factor)
        parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#999"{dash}/>')
    names = sorted({predictions.runs[row].file for row in rows})
    for index, name in enumerate(names):
        marks = "".join(
            "M{:.1f} {:.1f}h0".format(*place(*value))
            for row, value in zip(rows, values, strict=True)
            if predictions.runs[row].file == name
        )
        style = f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="{4 if index < len(COLOURS) else 6}"'
        cap = "round" if index < len(COLOURS) else "square"
        parts.append(f'<path d="{marks}" {style} stroke-linecap="{cap}" stroke-opacity="0.6"/>')
        y = MARGIN + 16 * index
        parts.append(f'<path d="M{SIDE + MARGIN + 16} {y}h0" {style} stroke-linecap="{cap}"/>')
        parts.append(f'<text x="{SIDE + MARGIN + 26}" y="{y + 4}">{name}</text>')
    parts.append(f'<text x="{MARGIN + SIDE / 2}" y="{MARGIN + SIDE + 38}" text-anchor="middle">measured step</text>')
    parts.append(f'<text x="{MARGIN}" y="{MARGIN - 12}">predicted step; dashed: 25 % either side</text></svg>')
    return "\n".join(parts) + "\n"
