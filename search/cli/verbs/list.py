"""``forerun list``: entries of the catalogue."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.search.catalogue.lists import LISTS
from forerun.search.files.documents import SCHEMA, dump_json
from forerun.spaces.units import format_count

if TYPE_CHECKING:
    from rich.table import Table


SHORT = 16
"""Most characters of an unfolded cell."""
COUNTED = 10**6
"""Smallest whole number shown with a suffix."""


def run(args: argparse.Namespace) -> int:
    """List and print."""
    entries: list[dict[str, Any]] = LISTS[args.kind]()
    if args.json:
        print(dump_json({"schema": SCHEMA, args.kind: entries}))
        return 0
    from forerun.search.cli.console import fits, open_wide_console, say

    console = open_wide_console()
    table = _table(entries)
    if not fits(table, console):  # `forerun show` has the title; broken into words it would hide the other columns
        table = _table([{name: value for name, value in entry.items() if name != "title"} for entry in entries])
    say(console, table)
    return 0


def _table(entries: Sequence[Mapping[str, Any]]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in entries[0]:
        number = all(isinstance(entry[name], int | float | None) for entry in entries)
        short = max(len(_cell(entry[name])) for entry in entries) <= SHORT
        table.add_column(_heading(name), justify="right" if number else "left", overflow="fold", no_wrap=short)
    table.columns[0].no_wrap = True
    for entry in entries:
        table.add_row(*(Text(_cell(value)) for value in entry.values()))
    return table


def _heading(name: str) -> str:
    """Return the heading of a field name: ``network_gb_per_s`` is ``network GB/s``."""
    for field, unit in (("gb_per_s", "GB/s"), ("gib", "GiB"), ("tflops", "TFLOP/s")):
        name = name.replace(field, unit)
    return name.replace("_", " ")


def _cell(value: Any) -> str:
    """Return a value as text for a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and value >= COUNTED:
        return format_count(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
