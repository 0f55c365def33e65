"""``forerun compare``: two strategies side by side."""

import argparse

from forerun.search.answer.explain.comparison import compare_strategies
from forerun.search.cli.arguments import single_request
from forerun.search.files.documents import SCHEMA, dump_json, versions
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError


def run(args: argparse.Namespace) -> int:
    """Predict both strategies and print them with their differences."""
    if len(args.strategy) != 2:
        raise RequestError(f"compare takes two strategies, but got {len(args.strategy)}; name --strategy twice")
    setting = resolve(single_request(args, graphs=True))
    comparison = compare_strategies(setting, *args.strategy)
    first, second = comparison.first, comparison.second
    if args.json:
        document = {"schema": SCHEMA, "request": setting.document(), **comparison.to_json(), "versions": versions()}
        print(dump_json(document))
        return 0
    from rich.text import Text

    from forerun.search.cli.console import open_console, say
    from forerun.search.cli.details import comparison_table

    console = open_console()
    say(console, Text(f"A  {first.name}"), Text(f"B  {second.name}"))
    say(console, comparison_table(first, second), Text(comparison.text))
    if first.evidence is not None:
        say(console, Text(f"80% ranges: {first.evidence.source}"))
    for name, row in (("A", first), ("B", second)):
        say(console, *(Text(f"! {name}: {mark}", style="yellow") for mark in row.marks))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))
    return 0
