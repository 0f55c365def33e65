"""Colours of the page have contrast, and axes have few ticks."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.figures.plane import ticks
from forerun.search.figures.still_page import page_style
from forerun.search.report.bars import MEMORY_SLOTS, TIME_SLOTS
from forerun.search.report.labels import REASONS
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.simulator.opgraph import PHASES
from forerun.spaces.strategies import RULES

TEXT_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3; figures and controls need 3 (1.4.11)."""


@settings(max_examples=tries(100))
@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_and_inside(low: float, width: float) -> None:
    found = ticks(low, low + width)

    assert 2 <= len(found) <= 8
    assert all(low - 1e-6 * width <= value <= low + width * (1 + 1e-6) for value in found)


def test_every_part_and_reason_has_its_words_and_slot() -> None:
    assert tuple(TIME_SLOTS) == tuple(dict.fromkeys((*TIME_PARTS, *PHASES)))
    assert tuple(part for part in MEMORY_SLOTS if part != "in use") == MEMORY_PARTS
    graph = [part for part in PHASES if part != "tail"]  # drawn as the other collectives
    for slots, parts in ((TIME_SLOTS, TIME_PARTS), (TIME_SLOTS, graph), (MEMORY_SLOTS, MEMORY_PARTS)):
        assert len({slots[part] for part in parts}) == len(parts)
    assert {rule.code for rule in RULES} <= set(REASONS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_read(theme: str) -> None:
    style = page_style()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[("light", "dark").index(theme)]))

    assert len([name for name in colours if re.fullmatch(r"c\d", name)]) == 10
    for name in ("text", "muted", "accent", "warn", *(f"c{slot}" for slot in range(10))):
        assert contrast(colours[name], colours["page"]) >= TEXT_CONTRAST, name
    for name in ("text", "muted", "accent"):
        assert contrast(colours[name], colours["panel"]) >= TEXT_CONTRAST, name
    assert contrast(colours["text"], colours["warn-panel"]) >= TEXT_CONTRAST
    assert contrast(colours["edge"], colours["page"]) >= 3


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2, definition of relative luminance)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
