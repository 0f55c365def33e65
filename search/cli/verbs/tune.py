"""``forerun tune``: short measured runs of the best rows of a search on the user's cluster."""

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from forerun.search.cli.arguments import request_of
from forerun.search.cli.flags.declaration import JSON, Declared, Flag, Group, Many
from forerun.search.cli.flags.kinds import PATH, POSITIVE, SWITCH, WHOLE
from forerun.search.cli.flags.shared import MODEL, SET, SLURM_FLAGS, TRAINING, WORKER_FLAGS, workers_of

if TYPE_CHECKING:
    from forerun.search.tune.folder import TuneFolder
    from forerun.search.tune.tuning import TuningRequest

EPILOG = """\
examples:
  forerun tune llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 8192 \\
      --launcher slurm --runs 4 --out night
  forerun tune llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 8192 --launcher local \\
      --trainer "train.py --tp {tp} --pp {pp} --mbs {mbs} --steps {steps}" --out night
  forerun tune llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 8192 \\
      --launcher command "pdsh -w node[1-{nodes}] bash {folder}/launch.sh" --gpu-hours 20 --yes --out night
  forerun tune llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 8192 --launcher dry --out night

Launchers: local (torchrun on this machine), slurm (sbatch), ray [ADDRESS] (an actor on each node of a Ray cluster; with
slurm and ray several runs at once where nodes are idle), command TEMPLATE (shell text with {folder}, {nodes}, {gpus},
{name} and {steps}, which ends when the training ends), dry (writes folders and waits for logs that you drop into them).

Every run trains some steps on mock data. What is going to run, where and for how long is shown before each launch.
After a crash --resume continues with the same flags; nothing is launched twice. DIR gets runs.csv and calibration.yaml
(for later searches), runs/NN (launch files and logs), best (launch files of the fastest), result.json and report.html,
tune.json and journal.jsonl (the state), and study.log, an Optuna study: `optuna-dashboard DIR/study.log`."""


FLAGS: Declared = (
    MODEL,
    TRAINING,
    Group(
        "space",
        (
            Flag("--gpus", "number of GPUs, or a range of numbers", metavar="N|LO..HI", required=True),
            SET,
            Flag("--space", "YAML that restricts axes: `axes: {tp: [1, 2, 4]}`", PATH, "FILE"),
        ),
    ),
    Group(
        "runs",
        (
            Flag(
                "--launcher",
                "local, slurm, ray [ADDRESS], command TEMPLATE, or dry; see below",
                metavar="NAME",
                many=Many.SOME,
                required=True,
            ),
            Flag(
                "--trainer",
                "your script and its arguments, in place of the framework's; with fields like {tp} it gets these alone",
                metavar="FILE",
            ),
            Flag("--format", "format of the launch files (default: the framework's own)", metavar="F"),
            Flag("--steps", "steps of a run (default 20)", WHOLE, "N", default=20),
            Flag(
                "--log-pattern",
                "regular expression with a group step_s or step_ms, for logs that no framework writes",
                metavar="REGEX",
            ),
            Flag(
                "--measured", "step time of your present run (9.3, 210ms), or its log, to compare with", metavar="LOG"
            ),
        ),
    ),
    Group(
        "limits",
        (
            Flag("--runs", "most runs (default 4)", WHOLE, "N", default=4),
            Flag("--gpu-hours", "most GPU-hours of all runs together", POSITIVE, "H", unit="GPU-hours"),
            Flag("--until", "when the last run must be over, like 07:00 or 2026-12-01T07:00", metavar="TIME"),
            Flag("--yes", "launch without asking", SWITCH),
            Flag(
                "--on-interrupt",
                "runs under way at Ctrl-C or SIGTERM: end them (default), or leave them to --resume",
                choices=("cancel", "leave"),
                default="cancel",
            ),
        ),
    ),
    Flag("--out", "folder of the runs", PATH, "DIR", required=True),
    Flag("--resume", "continue the tuning in DIR, or begin it if DIR is empty", SWITCH),
    SLURM_FLAGS,
    WORKER_FLAGS,
    JSON,
)


def run(args: argparse.Namespace) -> int:
    """Search, run, and print what was measured; 1 where no run ended well."""
    from forerun.search.answer.searches import search_request
    from forerun.search.cli.progress import Walk
    from forerun.search.cli.tune_view import Terminal, print_summary
    from forerun.search.files.documents import dump_json
    from forerun.search.request.interrupts import EndedEarly
    from forerun.search.tune.tuning import tune

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


def _tuning(args: argparse.Namespace) -> "TuningRequest":
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
