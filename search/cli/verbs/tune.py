"""``forerun tune``: short measured runs of the best rows of a search on the user's cluster."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from forerun.search.answer.searches import search_request
from forerun.search.cli.arguments import request_of, workers_of
from forerun.search.cli.progress import Walk
from forerun.search.files.documents import dump_json
from forerun.search.formats.job import Job
from forerun.search.report.tune import run_cells
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import kind_named
from forerun.search.tune.candidates import CANDIDATES, TuningCandidates
from forerun.search.tune.folder import TuneFolder
from forerun.search.tune.launchers import RunLauncher, launcher_named
from forerun.search.tune.loop import TuningWatch
from forerun.search.tune.request import TuningLimits, TuningRequest
from forerun.search.tune.run import RunState
from forerun.search.tune.summary import TuneSummary, sentences
from forerun.search.tune.tuning import tune
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

FIGURES = ("run", "row", "predicted", "measured", "off", "GiB measured", "OOM risk")
"""Figures of a run that fit into the width of a terminal."""


def run(args: argparse.Namespace) -> int:
    """Search, run, and print the measurements; return 1 without a successful run."""
    tuning, walk, folders = _tuning(args), Walk(), list["TuneFolder"]()
    search = partial(
        search_request,
        progress=walk.advance,
        started=walk.started,
        sampling=walk.sampling,
        workers=workers_of(args),
    )
    try:
        summary = tune(tuning, search, Terminal(yes=args.yes), opened=folders.append)
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
    from forerun.search.request.choices import choices_of
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


class Terminal(TuningWatch):
    """Terminal output of a tuning: progress on stderr, and consent before every launch unless given for all."""

    def __init__(self, *, yes: bool) -> None:
        self._yes, self._said = yes, dict[int, int]()

    def searched(self, candidates: "TuningCandidates") -> None:
        """Print the number of unlaunchable rows among the best, and the reason of the first one."""
        if candidates.refused:
            rows = len(candidates.rows) + len(candidates.refused)
            name, reason = next(iter(candidates.refused.items()))
            _say(f"{len(candidates.refused)} of the {rows} best rows have no launch script, the first {name}: {reason}")

    def approve(self, plan: Sequence[str]) -> bool:
        """Print the plan of a run, and ask for consent."""
        for text in plan:
            _say(text)
        if self._yes:
            return True
        if not sys.stdin.isatty():
            raise RequestError("nobody can be asked here; add --yes to launch runs as they are shown above")
        print("forerun: launch it? [y]es, [a]ll that follow too, [N]o: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        self._yes = answer in ("a", "all")
        return self._yes or answer in ("y", "yes")

    def launched(self, state: "RunState", launcher: "RunLauncher") -> None:
        """Print the path of the log."""
        _say(f"run {state.run.name}: {state.handle if launcher.name == 'dry' else f'log {state.log}'}")

    def stepped(self, state: "RunState", steps: Sequence[float]) -> None:
        """Print the progress of a run, at most ten times."""
        tenth = 10 * len(steps) // state.run.steps
        if self._said.get(state.run.number) != tenth:
            self._said[state.run.number] = tenth
            _say(f"run {state.run.name}: step {len(steps)} of {state.run.steps}, {format_seconds(steps[-1])}")

    def ended(self, state: "RunState") -> None:
        """Print the outcome of a run."""
        result = state.result
        assert result is not None
        if not result.measured or result.step_s is None:
            _say(f"run {state.run.name}: {result.status}: {result.text}")
            return
        off = result.step_s / state.run.predicted_s - 1
        more = f"; {result.text}" if result.status == "stopped" else ""
        _say(f"run {state.run.name}: {format_seconds(result.step_s)} a step, {off:+.1%} against the prediction{more}")


def print_summary(summary: TuneSummary) -> None:
    """Print the runs, the errors of the predictions, and the launch to use."""
    from rich.text import Text

    from forerun.search.cli.console import open_console, say
    from forerun.search.cli.tables import table_of

    console, document = open_console(), summary.document
    runs = run_cells(document)
    figures = [name for name in FIGURES if any(cells[name] for cells in runs)]
    rows = [[cells[name] for name in (*figures, "strategy")] for cells in runs]
    say(console, table_of([*(f">{name}" for name in figures), "strategy"], rows))
    for text in sentences(document):
        say(console, Text(text))


def _say(text: str) -> None:
    print(f"forerun: {text}", file=sys.stderr, flush=True)
