"""Accuracy of the defaults on measured runs: all tables of a folder, as a dated result.

    python benchmarks/accuracy/run.py DIR [--fast] [--table NAME ...] [--worst N] [--out FOLDER]

DIR holds CSV files of the schema in docs/measured-runs.md. benchmarks/results/ gets YYYY-MM-DD-accuracy.md (targets,
tables, cross-validation, worst rows), .json (all figures), and for tables that the project may carry .csv
(predictions). With --fast only the table is printed. Takes 18 minutes of one core; half a minute with --fast, or
where --folds names an earlier .json, whose cross-validation is taken as it is.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import page
import targets
from cross_validate import cross_validate, from_json
from page import cell
from rich.console import Console

from forerun.search.cli.console import fits
from forerun.search.measured.validate import Metrics, Predictions, load_runs, metrics_of, predict, summarise
from forerun.search.measured.validate.report import figures_tables, worst_rows, worst_table

RESULTS = Path(__file__).resolve().parent.parent / "results"
WIDE = 200


def main() -> int:
    """Run the benchmark."""
    args = _arguments()
    files = sorted(path for path in args.folder.glob("*.csv") if not args.table or path.stem in args.table)
    if not files:
        sys.exit(f"no tables of runs in {args.folder}")
    start = time.perf_counter()
    runs = load_runs(files)
    loaded = time.perf_counter()
    predictions = predict(runs.runs)
    scored = time.perf_counter()
    summary = summarise(runs, predictions)
    console = Console(width=WIDE)
    for table in figures_tables(summary, lambda table: fits(table, console)):
        console.print(table)
    print(dense_line(predictions))
    if args.worst:
        console.print(worst_table(predictions, worst_rows(predictions, args.worst)))
    print(f"mapped {len(runs.runs)} rows in {loaded - start:.1f} s, predicted them in {scored - loaded:.1f} s")
    if args.fast:
        return 0
    print("\n".join(targets.markdown(targets.reached(predictions))))
    earlier = json.loads(args.folds.read_text(encoding="utf-8")) if args.folds else None
    folds = cross_validate(predictions) if earlier is None else from_json(earlier["cross_validation"])
    of_commit = "" if earlier is None else str(earlier["commit"])
    written = page.write(args.out, runs, predictions, summary, folds, time.perf_counter() - start, of_commit)
    print(f"wrote {written}, .json and .csv")
    return 0


def dense_line(predictions: Predictions) -> str:
    """Return the figures of all dense models whose recompute is stated, without tables of unknown or tiny hardware."""
    m: Metrics = metrics_of(predictions, [row for row, run in enumerate(predictions.runs) if targets.dense(run)])
    order = f"tau {cell(m.kendall_tau, 2)}, pairs >25% {cell(m.wide_pair_order_pct)} %, >5% {cell(m.pair_order_pct)} %"
    memory = f"memory {cell(m.memory_median_ape_pct)} %"
    verdicts = f"OOM {cell(m.oom_recall_pct)} / {cell(m.oom_specificity_pct)} %"
    return (
        f"dense with recompute stated, not {', '.join(targets.LOW_TRUST)}: {m.rows} rows, "
        f"median {cell(m.median_ape_pct)} %, {order}, regret {cell(m.regret1_pct)} %, {memory}, {verdicts}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fast", action="store_true", help="print the table; no cross-validation, write nothing")
    parser.add_argument("--table", nargs="+", help="only these tables of the folder (file names without .csv)")
    parser.add_argument("--worst", type=int, default=0, help="also list the N rows predicted worst")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--folds", type=Path, metavar="FILE.json", help="take the cross-validation of an earlier result"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
