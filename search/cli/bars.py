"""Bars of text: the parts of a step or of memory in proportion, each part with a separate glyph and colour."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.text import Text

# Shades are work of devices, letters are communication: a bar is readable without colour.
GLYPHS: Mapping[str, tuple[str, str, str]] = {
    "compute": ("█", "#", "green"),
    "recompute": ("▓", "%", "dark_green"),
    "tensor": ("t", "t", "blue"),
    "context": ("c", "c", "cyan"),
    "expert": ("e", "e", "magenta"),
    "pipeline": ("p", "p", "yellow"),
    "bubble": ("░", ".", "red"),
    "data": ("d", "d", "bright_blue"),
    "optimizer": ("o", "o", "bright_magenta"),
    "host": ("h", "h", "bright_red"),
    "forward": ("█", "#", "green"),
    "backward": ("▓", "%", "dark_green"),
    "halo": ("n", "n", "cyan"),
    "collective": ("t", "t", "blue"),
    "tail": ("t", "t", "blue"),
    "p2p": ("p", "p", "yellow"),
    "gradient": ("d", "d", "bright_blue"),
    "straggler wait": ("s", "s", "red"),
    "update": ("o", "o", "bright_magenta"),
    "input": ("i", "i", "bright_red"),
    "in use": ("█", "#", "green"),
    "parameters": ("█", "#", "green"),
    "gradients": ("▓", "%", "dark_green"),
    "activations": ("▒", "=", "blue"),
    "working": ("w", "w", "cyan"),
    "logits": ("l", "l", "magenta"),
    "buffers": ("b", "b", "yellow"),
    "reserve": ("░", ".", "red"),
}
"""Part -> (glyph, glyph for encodings other than Unicode, colour)."""

SHOWN = 0.005
"""Share of a bar from which a part is in its legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brush:
    """Glyphs of one console."""

    ascii_only: bool

    def glyph(self, part: str) -> Text:
        """Return the glyph of a part in its colour."""
        return self.stroke(part, 1)

    def stroke(self, part: str, cells: int) -> Text:
        """Return ``cells`` glyphs of a part."""
        wide, narrow, colour = GLYPHS.get(part, ("?", "?", "white"))
        return Text((narrow if self.ascii_only else wide) * cells, style=colour)

    def bar(self, parts: Mapping[str, float], width: int, *, full: float | None = None) -> Text:
        """Return parts as a bar; ``full`` is the value that fills all ``width`` cells (None: their sum)."""
        text = Text()
        for part, cells in zip(parts, share_cells(list(parts.values()), width, full=full), strict=True):
            text.append_text(self.stroke(part, cells))
        return text

    def legend(self, rows: Iterable[Mapping[str, float]], *, width: int = 1000) -> Text:
        """Return glyph and name of every large enough part of any row, in lines of ``width`` columns."""
        rows = list(rows)
        counted = [
            part for part in (rows[0] if rows else ()) if any(row[part] >= SHOWN * sum(row.values()) for row in rows)
        ]
        text, used = Text(), 0
        for part in counted:
            size = len(part) + 2  # a glyph and its name stay together
            if used + size > width:
                text, used = text.append("\n"), 0
            text.append_text(self.glyph(part)).append(f" {part}  ")
            used += size + 2
        return text


def share_cells(values: list[float], width: int, *, full: float | None = None) -> list[int]:
    """Divide ``width`` cells among values in proportion, by largest remainder; ties go to the earlier value.

    >>> share_cells([6.0, 3.0, 0.9], 10)
    [6, 3, 1]
    """
    total = full or sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [max(value, 0.0) / total * width for value in values]
    cells = [int(share) for share in exact]
    spare = round(min(sum(exact), width)) - sum(cells)
    by_rest = sorted(range(len(values)), key=lambda i: (cells[i] - exact[i], i))
    for i in by_rest[: max(spare, 0)]:
        cells[i] += 1
    return cells
