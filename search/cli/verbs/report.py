"""``forerun report``: a finished search as one page that opens without a network."""

import argparse
import sys
from pathlib import Path

from forerun.search.cli.parser import OutputFile, Parser, add_force

EPILOG = """\
examples:
  forerun report run
  forerun report run -o report.html

with a folder written by, for example:
  forerun search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192 --top 1000 --out run

The page shows the rows that the search kept (--top sets how many). It loads nothing from the network."""


def add_arguments(parser: Parser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder that `forerun search --out` wrote")
    parser.add_argument(
        "-o", "--out", action=OutputFile, metavar="FILE", help="page to write (default: report.html in the folder)"
    )
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """Read, write the page and name it."""
    from forerun.search.report import read_run, write_report

    path = args.folder / "report.html" if args.out is None else args.out
    write_report(path, read_run(args.folder))
    print(f"forerun: wrote {path}", file=sys.stderr)
    return 0
