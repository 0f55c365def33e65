"""``forerun compare``: two strategies side by side."""

import argparse

from forerun.search.cli.arguments import single_request
from forerun.search.cli.flags.declaration import JSON, Declared, Flag, Many
from forerun.search.cli.flags.shared import GPUS_OF_STRATEGY, TRAINED

EPILOG = """\
example:
  forerun compare llama3-70b --cluster dgx-h100 --global-batch 1024 --seq-len 8192 \\
      --strategy "tp4 pp4 dp32 mbs1 zero1 sp" --strategy "tp8 pp2 dp32 mbs1 zero1 sp\""""


FLAGS: Declared = (
    *TRAINED,
    GPUS_OF_STRATEGY,
    Flag("--strategy", "a strategy; name two of them", metavar="TEXT", many=Many.REPEATED, required=True),
    JSON,
)


def run(args: argparse.Namespace) -> int:
    """Predict both and print them with their differences."""
    from dataclasses import replace

    from forerun.search.answer.explain.why import against, trust
    from forerun.search.answer.intervals import certain
    from forerun.search.board.rows import rows_of
    from forerun.search.files.documents import SCHEMA, dump_json, versions
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import legal_strategy
    from forerun.spaces.errors import RequestError

    if len(args.strategy) != 2:
        raise RequestError(f"compare takes two strategies, but got {len(args.strategy)}; name --strategy twice")
    setting = resolve(single_request(args, graphs=True))
    strategies = [legal_strategy(setting, text) for text in args.strategy]
    rows = rows_of(setting.context, strategies, usd_per_gpu_hour=setting.usd_per_gpu_hour)
    first, second = certain(setting.context, tuple(replace(row, rank=place) for place, row in enumerate(rows, start=1)))
    text = against(first, second, name="B") + trust(first, second)
    if second.same_as_rank is not None:
        text += " The calibration cannot distinguish the two."
    first, second = replace(first, rank=None), replace(second, rank=None)
    if args.json:
        print(
            dump_json(
                {
                    "schema": SCHEMA,
                    "request": setting.document(),
                    "rows": [first.to_json(), second.to_json()],
                    "difference_s": {p: second.breakdown_s[p] - s for p, s in first.breakdown_s.items()},
                    "difference_gib": {p: second.memory_gib[p] - s for p, s in first.memory_gib.items()},
                    "text": text,
                    "versions": versions(),
                }
            )
        )
        return 0
    from rich.text import Text

    from forerun.search.cli.console import open_console, say
    from forerun.search.cli.details import comparison_table

    console = open_console()
    say(console, Text(f"A  {first.name}"), Text(f"B  {second.name}"))
    say(console, comparison_table(first, second), Text(text))
    if first.evidence is not None:
        say(console, Text(f"80% ranges: {first.evidence.source}"))
    for name, row in (("A", first), ("B", second)):
        say(console, *(Text(f"! {name}: {mark}", style="yellow") for mark in row.marks))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))
    return 0
