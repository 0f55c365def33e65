"""``forerun simulate``: one strategy."""

import argparse

from forerun.search.cli.arguments import add_gpus, add_json, add_strategy, add_training, single_request
from forerun.search.cli.parser import Parser

EPILOG = """\
example:
  forerun simulate llama3-70b --cluster dgx-h100 --global-batch 1024 --seq-len 8192 \\
      --strategy "tp4 pp4 dp32 mbs1 zero1 sp recompute=selective"

Degrees of one may be left out. Words: dp tp pp cp ep etp mbs vpp zero sp recompute= schedule= split= placement=
layers= (layers of every pipeline stage)."""


def add_arguments(parser: Parser) -> None:
    """Add the flags of the verb."""
    add_training(parser)
    add_gpus(parser)
    add_strategy(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Predict and print; a strategy that does not fit is an answer and not an error."""
    from forerun.search.api import simulate_setting
    from forerun.search.leaderboard import dump_json
    from forerun.search.request import resolve

    setting = resolve(single_request(args))
    row = simulate_setting(setting, args.strategy)
    if args.json:
        print(dump_json({**row.to_json(), "defaults": setting.defaults, "notes": setting.notes}))
        return 0
    from rich.text import Text

    from forerun.search.cli.console import brush_of, open_console, say
    from forerun.search.cli.details import headline, memory_stack, memory_table, step_table

    console = open_console()
    brush = brush_of(console)
    say(console, *headline(row), step_table(row, brush, console), memory_table(row, brush, console))
    say(console, memory_stack(row, brush, min(60, console.width - 24)))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))
    return 0
