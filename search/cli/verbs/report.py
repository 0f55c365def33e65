"""``forerun report``: a finished search, or a sweep, as one page that opens without a network."""

import argparse
import sys

from forerun.search.cli.flags.declaration import Declared, Flag
from forerun.search.cli.flags.kinds import OUTPUT, PATH, WHOLE
from forerun.search.cli.flags.shared import FORCE

EPILOG = """\
examples:
  forerun report run
  forerun report run --out report.html
  forerun report sweep
  forerun report sweep --search 12 --out search-12.html

with a folder written by, for example:
  forerun search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192 --top 1000 --out run
  forerun sweep plan.yaml --out sweep

The page shows the rows that the search kept (--top sets how many); that of a sweep has all searches on one page, also
while it is running, and --search makes the whole page of one of them. Nothing is loaded from the network."""


FLAGS: Declared = (
    Flag("folder", "folder that `forerun search --out` or `forerun sweep` wrote", PATH, "RUN", required=True),
    Flag("--search", "of a sweep: only this search, with all its details", WHOLE, "N"),
    Flag("--out", "page to write (default: report.html in the folder)", OUTPUT, "FILE"),
    FORCE,
)


def run(args: argparse.Namespace) -> int:
    """Read, write the page and name it."""
    from forerun.search.board.sweeps import is_sweep, read_sweep
    from forerun.search.report import read_run, report_html
    from forerun.spaces.files import write_text

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
