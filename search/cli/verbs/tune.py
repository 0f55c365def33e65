"""``forerun tune``: short measured runs of the best rows of a search on the user's cluster."""

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from forerun.search.answer.searches import search_request
from forerun.search.cli.arguments import request_of, workers_of
from forerun.search.cli.progress import Walk
from forerun.search.files.documents import dump_json
from forerun.search.request.interrupts import EndedEarly
from forerun.search.tune.tuning import TuningRequest, tune

if TYPE_CHECKING:
    from forerun.search.tune.folder import TuneFolder


def run(args: argparse.Namespace) -> int:
    """Search, run, and print the measurements; return 1 without a successful run."""
    from forerun.search.cli.tune_view import Terminal, print_summary

    tuning, walk, folders = _tuning(args), Walk(), list["TuneFolder"]()
    search = partial(
        search_request,
        progress=walk.advance,
        started=walk.started,
        sampling=walk.sampling,
        workers=workers_of(args),
    )
    try:
        summary = tune(tuning, search, Terminal(tuning.limits, yes=args.yes), opened=folders.append)
    except KeyboardInterrupt as stop:
        if not folders:
            raise
        left = args.on_interrupt == "leave" and any(one.result is None for one in folders[0].states.values())
        more = ", runs under way go on" if left else ""
        print(f"forerun: --resume continues{more}", file=sys.stderr)
        raise EndedEarly(folders[0], stop) from None
    if args.json:
        print(dump_json(summary.document))
    else:
        print_summary(summary)
    print(f"forerun: wrote {args.out}", file=sys.stderr)
    return 0 if summary.best is not None else 1


def _tuning(args: argparse.Namespace) -> TuningRequest:
    from forerun.search.formats.job import Job
    from forerun.search.request.choices import choices_of
    from forerun.search.request.kinds import kind_named
    from forerun.search.tune.candidates import CANDIDATES
    from forerun.search.tune.launchers import launcher_named
    from forerun.search.tune.loop import TuningLimits
    from forerun.search.tune.tuning import TuningRequest
    from forerun.search.tune.until import parse_until

    until_s = None if args.until is None else parse_until(args.until)
    overrides = choices_of(args.space, args.set, kind_named(args.model).check)
    return TuningRequest(
        request=request_of(args, top=CANDIDATES, all_variants=True, overrides=overrides),
        launcher=launcher_named(args.launcher, timed=args.time is not None),
        folder=args.out,
        limits=TuningLimits(runs=args.runs, gpu_hours=args.gpu_hours, until_s=until_s),
        steps=args.steps,
        trainer=args.trainer,
        format_name=args.format,
        job=Job(**{name: getattr(args, name) for name in ("partition", "account", "time", "container")}),
        log_pattern=args.log_pattern,
        baseline=args.measured,
        resume=args.resume,
        on_interrupt=args.on_interrupt,
    )
