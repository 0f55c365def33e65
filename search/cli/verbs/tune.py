"""``forerun tune``: short measured runs of the best rows of a search on the user's cluster."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.search.cli.arguments import request_of
from forerun.search.cli.flags.declaration import JSON, Declared, Flag, Group, Many
from forerun.search.cli.flags.kinds import PATH, POSITIVE, SWITCH, WHOLE, Unreadable, positive
from forerun.search.cli.flags.shared import MODEL, SET, SLURM_FLAGS, TRAINING, WORKER_FLAGS, workers_of
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.tune.candidates import TuningCandidates
    from forerun.search.tune.folder import TuneFolder
    from forerun.search.tune.launchers import RunLauncher
    from forerun.search.tune.loop import TuningLimits

EPILOG = """\
examples:
  forerun tune llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 8192 \\
      --launcher slurm --runs 4 --out night
  forerun tune llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 8192 --launcher local \\
      --trainer "train.py --tp {tp} --pp {pp} --mbs {mbs} --steps {steps}" --out night
  forerun tune llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 8192 \\
      --launcher command "pdsh -w node[1-{nodes}] bash {folder}/launch.sh" --gpu-hours 20 --yes --out night
  forerun tune llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 8192 --launcher dry --out night

Launchers: local (torchrun on this machine), slurm (sbatch; several runs at once where nodes are idle), command TEMPLATE
(shell text with {folder}, {nodes}, {gpus}, {name} and {steps}, which ends when the training ends), dry (writes folders
and waits for logs that you drop into them).

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
                "local, slurm, command TEMPLATE, or dry; see below",
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
            Flag("--measured", "step time of your present run in seconds, or its log, to compare with", metavar="LOG"),
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
    from forerun.search.request.interrupts import EndedEarly
    from forerun.search.tune.folder import TuneFolder
    from forerun.search.tune.launchers import launcher_named

    launcher, limits, baseline_s = (
        launcher_named(args.launcher, timed=args.time is not None),
        _limits(args),
        _baseline_s(args.measured),
    )
    launcher.check()
    candidates = _candidates(args)
    inputs = {
        **candidates.setting.request.to_json(),
        "launcher": launcher.name,
        "steps": args.steps,
        "trainer": candidates.writer.trainer,
        "launch format": args.format,
    }
    with TuneFolder(args.out, inputs, resume=args.resume) as folder:
        try:
            return _tune(args, folder, candidates, launcher, limits, baseline_s)
        except KeyboardInterrupt as stop:
            left = args.on_interrupt == "leave" and any(one.result is None for one in folder.states.values())
            more = ", runs under way go on" if left else ""
            print(f"forerun: --resume continues{more}", file=sys.stderr)
            raise EndedEarly(folder, stop) from None


def _tune(
    args: argparse.Namespace,
    folder: "TuneFolder",
    candidates: "TuningCandidates",
    launcher: "RunLauncher",
    limits: "TuningLimits",
    baseline_s: float | None,
) -> int:
    """Run the loop in an open folder and print its result."""
    from forerun.search.board.folder import write_folder
    from forerun.search.cli.tune_view import Terminal, print_summary
    from forerun.search.files.documents import dump_json
    from forerun.search.report.tune import tune_html
    from forerun.search.tune.folder import SEARCH, STUDY
    from forerun.search.tune.loop import Tuner
    from forerun.search.tune.study import StudyTrials
    from forerun.search.tune.summary import sentences, summarize
    from forerun.spaces.files import write_text

    (folder.path / SEARCH).mkdir(exist_ok=True)
    write_folder(folder.path / SEARCH, candidates.board)
    tuner = Tuner(
        folder=folder,
        candidates=candidates,
        launcher=launcher,
        limits=limits,
        watch=Terminal(limits, yes=args.yes),
        trials=StudyTrials(folder.path / STUDY, candidates),
        pattern=args.log_pattern,
    )
    tuner.run(args.on_interrupt)
    summary = summarize(folder, candidates, tuner.chooser(), tuner.outcomes(), tuner.stopped, baseline_s)
    write_text(folder.path / "result.json", dump_json(summary.document) + "\n")
    write_text(folder.path / "report.html", tune_html(summary.document, sentences(summary.document)))
    if args.json:
        print(dump_json(summary.document))
    else:
        print_summary(summary)
    print(f"forerun: wrote {folder.path}", file=sys.stderr)
    return 0 if summary.best is not None else 1


def _candidates(args: argparse.Namespace) -> "TuningCandidates":
    """Search, and return the rows that can be launched."""
    from forerun.search.answer.searches import search_request
    from forerun.search.cli.progress import Walk
    from forerun.search.formats.job import Job
    from forerun.search.formats.table import format_named
    from forerun.search.request.choices import choices_of
    from forerun.search.request.kinds import kind_named
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import of_transformer
    from forerun.search.tune.candidates import candidates_of
    from forerun.search.tune.launch_files import LaunchWriter, trainer_text
    from forerun.search.tune.proposals import CANDIDATES

    if args.format is not None:
        format_named(args.format)
    overrides = choices_of(args.space, args.set, kind_named(args.model).check)
    request = request_of(args, top=CANDIDATES, all_variants=True, overrides=overrides)
    setting = of_transformer(resolve(request))
    walk = Walk()
    board = search_request(
        setting, progress=walk.advance, started=walk.started, sampling=walk.sampling, workers=workers_of(args)
    )
    writer = LaunchWriter(
        context=setting.context,
        steps=args.steps,
        trainer=trainer_text(args.trainer),
        format_name=args.format,
        job=Job(**{name: getattr(args, name) for name in ("partition", "account", "time", "container")}),
    )
    return candidates_of(setting, board, writer)


def _limits(args: argparse.Namespace) -> "TuningLimits":
    from forerun.search.tune.loop import TuningLimits
    from forerun.search.tune.until import parse_until

    return TuningLimits(
        runs=args.runs, gpu_hours=args.gpu_hours, until_s=None if args.until is None else parse_until(args.until)
    )


def _baseline_s(text: str | None) -> float | None:
    """Return the step time of the user's present run, from a number of seconds or a log."""
    from forerun.search.formats.logs import read_log
    from forerun.spaces.reading import read_text

    if text is None:
        return None
    try:
        return positive(text)
    except Unreadable:
        seconds = read_log(read_text(Path(text))).step_s
    if seconds is None:
        raise RequestError(f"--measured {text} has no step times")
    return seconds
