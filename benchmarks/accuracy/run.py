"""Accuracy of the defaults on measured runs: all tables of a folder, as a dated result.

    python benchmarks/accuracy/run.py DIR [--fast] [--table NAME ...] [--out FOLDER]

DIR holds CSV files of the schema in docs/measured-runs.md. Without --fast, benchmarks/results/ gets
accuracy-YYYY-MM-DD.md, .csv (predictions), .json (figures) and .html (plots). With --fast only the table is printed.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from forerun.search.validate import Predictions, RunSet, Summary, load_runs, metrics_of, predict, summarise
from forerun.search.validate.metrics import Metrics
from forerun.search.validate.plot import write_plot
from forerun.search.validate.report import counts_table, figures_table, worst_rows, worst_table, write_predictions

RESULTS = Path(__file__).resolve().parent.parent / "results"
WIDE = 200
WORST = 20
LOW_TRUST = ("libai", "mcore_functional_tests")
"""Tables whose GPU type is not stated, or whose models are bound by launch latency."""


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
    console.print(figures_table(summary))
    print(dense_line(predictions))
    if args.worst:
        console.print(worst_table(predictions, worst_rows(predictions, args.worst)))
    print(f"mapped {len(runs.runs)} rows in {loaded - start:.1f} s, predicted them in {scored - loaded:.1f} s")
    if not args.fast:
        console.print(counts_table("skipped rows, by reason", summary.skipped))
        write_results(args.out, runs, predictions, summary)
    return 0


def dense_line(predictions: Predictions) -> str:
    """Return the figures of all dense models whose recompute is stated, without tables of unknown or tiny hardware."""
    rows = [
        row
        for row, run in enumerate(predictions.runs)
        if not run.context.moe and "recompute" not in run.filled and run.file not in LOW_TRUST
    ]
    m = metrics_of(predictions, rows)
    order = (
        f"tau {_cell(m.kendall_tau, 2)}, pairs >25% {_cell(m.wide_pair_order_pct)} %, >5% {_cell(m.pair_order_pct)} %"
    )
    memory = f"memory {_cell(m.memory_median_ape_pct)} %"
    verdicts = f"OOM {_cell(m.oom_recall_pct)} / {_cell(m.oom_specificity_pct)} %"
    return (
        f"dense with recompute stated, not {', '.join(LOW_TRUST)}: {m.rows} rows, "
        f"median {_cell(m.median_ape_pct)} %, {order}, regret {_cell(m.regret1_pct)} %, {memory}, {verdicts}"
    )


def write_results(folder: Path, runs: RunSet, predictions: Predictions, summary: Summary) -> None:
    """Write the dated result: markdown, predictions, figures and plots."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"accuracy-{datetime.date.today().isoformat()}"
    document = {"date": datetime.date.today().isoformat(), "commit": _commit(), "machine": _machine()}
    stem.with_suffix(".json").write_text(json.dumps(document | summary.to_json(), indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(markdown(document, runs, predictions, summary), encoding="utf-8")
    write_predictions(stem.with_suffix(".csv"), predictions)
    write_plot(stem.with_suffix(".html"), predictions)
    print(f"wrote {stem}.md, .csv, .json and .html")


def markdown(document: dict[str, str], runs: RunSet, predictions: Predictions, summary: Summary) -> str:
    """Return the result as a page."""
    heads = ["table", "rows", "MAPE %", "median %", "bias %", "groups", "tau", "pairs >5% %", "pairs >25% %"]
    heads += [
        "regret %",
        "regret max %",
        "regret of 3 %",
        "memory rows",
        "memory median %",
        "OOM recall %",
        "OOM spec. %",
    ]
    lines = [
        f"# Accuracy on measured runs, {document['date']}",
        "",
        f"Commit {document['commit']}; {document['machine']}. Defaults only, nothing tuned per table. "
        f"{summary.overall.rows} measured rows predicted, {len(runs.skipped)} skipped (reasons below).",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *(_line(name, metrics) for name, metrics in summary.parts.items()),
        _line("**all**", summary.overall),
        "",
        "## Skipped rows",
        "",
        *(f"- {count}: {reason}" for reason, count in summary.skipped.items()),
        "",
        "## Filled in",
        "",
        *(f"- {count}: {rule}" for rule, count in summary.filled.items()),
        "",
        "## Predicted worst",
        "",
        "| run | model | strategy | measured s | predicted s | largest parts |",
        "|---|---|---|---|---|---|",
        *(_worst_line(predictions, row) for row in worst_rows(predictions, WORST)),
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, m: Metrics) -> str:
    figures = [m.mape_pct, m.median_ape_pct, m.bias_pct]
    order = [m.pair_order_pct, m.wide_pair_order_pct, m.regret1_pct, m.regret1_max_pct, m.regret3_pct]
    memory = [m.memory_median_ape_pct, m.oom_recall_pct, m.oom_specificity_pct]
    cells = [name, str(m.rows), *map(_cell, figures), str(m.groups or ""), _cell(m.kendall_tau, 2), *map(_cell, order)]
    return "| " + " | ".join([*cells, str(m.memory_rows or ""), *map(_cell, memory)]) + " |"


def _cell(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _worst_line(predictions: Predictions, row: int) -> str:
    run = predictions.runs[row]
    parts = sorted(((float(values[row]), part) for part, values in predictions.time_s.items()), reverse=True)[:3]
    shown = ", ".join(f"{part} {value:.3g}" for value, part in parts)
    times = f"{run.step_time_s:.4g} | {float(predictions.step_time_s[row]):.4g}"
    return f"| {run.run_id} | {run.cells['model']} | {run.strategy} | {times} | {shown} |"


def _commit() -> str:
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def _machine() -> str:
    return f"{platform.machine()}, Python {platform.python_version()}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fast", action="store_true", help="print the table and write nothing")
    parser.add_argument("--table", nargs="+", help="only these tables of the folder (file names without .csv)")
    parser.add_argument("--worst", type=int, default=0, help="also list the N rows predicted worst")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
