"""``forerun sweep``: many searches as one job."""

import argparse
import sys

from forerun.search.cli.arguments import workers_of
from forerun.search.files.documents import dump_json
from forerun.search.request.interrupts import EndedEarly
from forerun.search.sweep import read_plan, run_sweep


def run(args: argparse.Namespace) -> int:
    """Run the missing searches and print the leaderboard across all searches."""
    from forerun.search.cli.sweep_view import SweepView, print_sweep

    workers, plan = workers_of(args), read_plan(args.plan, calibration=args.calibration, profile=args.profile)
    stop: EndedEarly | None = None
    with SweepView(sys.stderr) as view:
        try:
            result = run_sweep(plan, args.out, resume=args.resume, workers=workers, watch=view)
        except EndedEarly as interrupted:
            stop, result = interrupted, interrupted.found
    if stop is not None and not result.document["searches"]:
        print(f"forerun: {result.remarks[-1]}", file=sys.stderr)
        raise stop
    if args.json:
        print(dump_json(result.document))
    else:
        print_sweep(result, show=args.show)
    for search in result.document["searches"]:
        if search["status"] == "failed":
            print(f"forerun: search {search['search']} failed: {search['message']}", file=sys.stderr)
    if stop is not None:
        raise stop
    print(f"forerun: wrote {args.out}", file=sys.stderr)
    return exit_code(result.counts)


def exit_code(counts: dict[str, int]) -> int:
    """Return 1 if a search failed, else 0 if one has rows, else 3, or 2 if all were impossible."""
    if counts["failed"]:
        return 1
    if counts["done"]:
        return 0
    return 3 if counts["infeasible"] else 2
