"""``forerun validate``: accuracy and order of predictions against measured runs."""

import argparse
import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from forerun.search.measured.validate import Predictions, RunSet, Summary, load_runs, predict, summarise
from forerun.search.measured.validate.report import (
    counts_table,
    figures_tables,
    worst_json,
    worst_rows,
    worst_table,
    write_predictions,
)
from forerun.simulator import ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context

if TYPE_CHECKING:
    from forerun.search.board.evidence import NearestRuns


def run(args: argparse.Namespace) -> int:
    """Map the rows, predict them, and report."""
    runs = load_runs(args.files, graphs=True, assumed=True)
    if not runs.runs:
        raise RequestError(_nothing(runs))
    calibration = None
    if args.profile is not None:
        from forerun.search.measured.calibrate import profiled_runs

        runs = replace(runs, runs=profiled_runs(runs.runs, args.profile))
    if args.calibration is not None:
        from forerun.search.measured.calibrate import calibrated_runs, coverage, read_calibration

        calibration = read_calibration(args.calibration)
        calibration.check_profile(args.profile)
        runs = replace(runs, runs=calibrated_runs(runs.runs, calibration))
    predictions = _predicted(args, runs)
    if predictions.stop is not None:
        if not predictions.runs:
            raise predictions.stop
        remark = f"interrupted after {len(predictions.runs):,} of {len(runs.runs):,} runs: figures of those"
        print(f"forerun: {remark}", file=sys.stderr)
    covered = None if calibration is None else coverage(predictions, calibration)
    summary = summarise(runs, predictions, by=args.by, noise=args.noise)
    worst = worst_rows(predictions, args.worst)
    evidence = [_evidence(run.context) for run in predictions.runs]
    shared = Counter(one.level for one in evidence if one is not None)
    try:
        if args.out:
            texts = ["" if one is None else one.source for one in evidence]
            write_predictions(args.out, predictions, texts)
        if args.report:
            from forerun.search.measured.validate.plot import write_plot

            write_plot(args.report, predictions, by=args.by)
    finally:  # figures are printed even if a file cannot be written
        _say(args, summary, predictions, worst, covered, shared)
    if predictions.stop is not None:
        raise predictions.stop
    return 0


def _say(
    args: argparse.Namespace,
    summary: Summary,
    predictions: Predictions,
    worst: list[int],
    covered: "dict[str, float] | None",
    shared: Counter[str],
) -> None:
    """Print the figures as tables or as one JSON document.

    ``shared``: numbers of runs by the properties that they share with the nearest published runs.
    """
    if args.json:
        document = {**summary.to_json(), "evidence": dict(shared)}
        if covered is not None:
            document["calibration"] = covered
        if args.worst:
            document["worst"] = worst_json(predictions, worst)
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        print()
        return
    _print(summary, predictions, worst, shared)
    if covered is not None:
        inside = covered.get("within_interval_pct")
        share = "" if inside is None else f"; {inside:.0f} % of the others are within their 90 % interval"
        print(f"calibrated: {covered['runs']:.0f} runs, {covered['fitted']:.0f} of them fitted{share}")


def _evidence(context: Any) -> "NearestRuns | None":
    """Return the runs behind a prediction's interval; None for operator graphs."""
    from forerun.search.answer.evidence import evidence_of
    from forerun.search.board.evidence import OWN_RUNS

    if context.correction is not None:
        return OWN_RUNS
    return evidence_of(context) if isinstance(context, Context) else None


def _predicted(args: argparse.Namespace, runs: RunSet) -> Predictions:
    """Predict the rows at the requested fidelity."""
    from forerun.search.cli.progress import show_progress

    if args.fidelity != "events":
        if args.contention:
            raise RequestError("--contention needs --fidelity events: closed forms do not simulate single transfers")
        return predict(runs.runs, on_progress=show_progress, partial=True)
    return predict(runs.runs, score=partial(_played, args.contention), on_progress=show_progress, partial=True)


def _played(contention: bool, context: Any, table: Any) -> "ScoreTable":
    from forerun.search.request.kinds import kind_of

    return kind_of(context).event_scores(context, table, contention=contention)


def _print(summary: Summary, predictions: Predictions, worst: list[int], shared: Counter[str]) -> None:
    """Print tables: figures, worst rows, skipped rows, filled blanks and broken laws."""
    from forerun.search.cli.console import fits, open_wide_console

    console = open_wide_console()
    for table in figures_tables(summary, lambda table: fits(table, console)):
        console.print(table)
    if worst:
        console.print(worst_table(predictions, worst))
    notes = (
        ("runs by what the nearest published runs share with them", shared),
        ("skipped rows, by reason", summary.skipped),
        ("defaults used, by rule", summary.filled),
        ("measured although forerun calls it illegal, by law", summary.laws),
        ("could not be scored", summary.errors),
    )
    for title, counts in notes:
        if counts:
            console.print(counts_table(title, counts))


def _nothing(runs: RunSet) -> str:
    """Return the message when no row can be predicted."""
    if not runs.skipped:
        return "no rows below the header; give at least one measured run"
    reasons = Counter(skipped.reason for skipped in runs.skipped).most_common(3)
    shown = "; ".join(f"{reason} ({count})" for reason, count in reasons)
    return f"none of {len(runs.skipped)} rows can be predicted: {shown}; docs/measured-runs.md describes the columns"
