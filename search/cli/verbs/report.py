"""``forerun report``: a finished search, or a sweep, as one page that opens without a network."""

import argparse
import sys

from forerun.search.board.sweeps import is_sweep, read_sweep
from forerun.spaces.files import write_text


def run(args: argparse.Namespace) -> int:
    """Read, write the page and name it."""
    from forerun.search.report import read_run, report_html

    if args.search is None and is_sweep(args.folder):
        from forerun.search.cli.progress import show_progress
        from forerun.search.report.sweep import sweep_html

        text = sweep_html(read_sweep(args.folder), show_progress)
    else:
        text = report_html(read_run(args.folder, args.search))
    name = "report.html" if args.search is None else f"search-{args.search}.html"
    path = args.folder / name if args.out is None else args.out
    write_text(path, text)
    print(f"forerun: wrote {path}", file=sys.stderr)
    return 0
