"""Accuracy on published data-parallel scaling tables; writes a page with a table per source and cross-validation.

    python benchmarks/scaling.py DIR [--out FILE.md] [--rows FILE.csv]

DIR holds dp_dlperf.csv, dp_scaling.csv, dp_lambda_tf.csv and paradl.csv, or some of them. *Efficiency* is throughput
per GPU over that of one GPU, whose measured step is given; *absolute* is throughput with nothing given, where the
catalogue describes model and device. Rows of several GPUs without a row of one cannot be compared and are counted.
"""

import argparse
import csv
import datetime
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from scaling_predict import Case, Constants, cases, read

GRID = {
    "jitter": (0.01, 0.02, 0.03, 0.04),
    "blocked_share": (0.0, 0.5, 1.0),
    "ddp_rendezvous_s": (0.0, 0.01, 0.02),
    "horovod_rendezvous_s": (0.01, 0.02, 0.03, 0.04),
}
"""What cross-validation fits again for every part that it leaves out."""


def median_error(found: Iterable[Case], constants: Constants) -> float:
    """Return the median absolute error of the efficiency."""
    return statistics.median(abs(case.error(constants)) for case in found)


def fitted(found: Sequence[Case]) -> Constants:
    """Return the constants with the smallest median error, every table counting the same."""
    tables = [[case for case in found if case.file == name] for name in sorted({case.file for case in found})]

    def loss(constants: Constants) -> float:
        return statistics.mean(median_error(table, constants) for table in tables)

    choices = [Constants(**dict(zip(GRID, values, strict=True))) for values in itertools.product(*GRID.values())]
    return min(choices, key=loss)


def held_out(found: Sequence[Case], part: Callable[[Case], str]) -> list[list[str]]:
    """Return one line per part: its error with constants fitted to all others."""
    lines = []
    for name in sorted({part(case) for case in found}):
        inside = [case for case in found if part(case) == name]
        others = [case for case in found if part(case) != name]
        if not others:
            continue
        constants = fitted(others)
        rendezvous_text = f"{1e3 * constants.ddp_rendezvous_s:g} and {1e3 * constants.horovod_rendezvous_s:g} ms"
        words = f"{constants.jitter:g}, {constants.blocked_share:g}, {rendezvous_text}"
        lines.append([name, f"{len(inside)}", percent(median_error(inside, constants)), words])
    return lines


def summary(found: Sequence[Case], part: Callable[[Case], str], constants: Constants) -> list[list[str]]:
    """Return one line per part: rows, errors of the efficiency and of the throughput."""
    lines = []
    for name in sorted({part(case) for case in found}):
        inside = [case for case in found if part(case) == name]
        errors = sorted(abs(case.error(constants)) for case in inside)
        bias = statistics.median(case.error(constants) for case in inside)
        cells = [name, f"{len(inside)}", percent(statistics.median(errors)), f"{100 * bias:+.1f} %"]
        cells.append(percent(errors[int(0.9 * len(errors))]))
        for measure in (Case.blind_error, Case.absolute):
            known = [abs(error) for case in inside if (error := measure(case, constants)) is not None]
            cells.append(f"{percent(statistics.median(known))} ({len(known)})" if known else "-")
        lines.append(cells)
    return lines


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.1f} %"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)]


def kind(case: Case) -> str:
    """Return the table and how its rows exchange gradients."""
    return f"{case.file}, {'parameter server' if case.server else 'all-reduce'}"


def all_rows(found: Sequence[Case], constants: Constants) -> list[list[str]]:
    """Return medians and means over all rows, also without those that are `suspect`."""
    odd = suspect(found)
    lines = []
    for name, measure, part in (
        ("efficiency, one GPU's step given", Case.error, found),
        ("throughput, nothing given", Case.absolute, found),
        ("the same without suspect rows", Case.absolute, [case for case in found if case not in odd]),
    ):
        errors = [abs(error) for case in part if (error := measure(case, constants)) is not None]
        lines.append([name, f"{len(errors)}", percent(statistics.median(errors)), percent(statistics.mean(errors))])
    return lines


def suspect(found: Sequence[Case]) -> list[Case]:
    """Return rows in fp16 that run at less than half the rate of the same machine, software and model in fp32."""
    rates = {
        (case.hardware, case.framework, case.model, case.gpus): case.one_rate
        for case in found
        if case.precision.lower() == "fp32"
    }
    return [
        case
        for case in found
        if case.precision.lower() == "fp16"
        and case.one_rate < rates.get((case.hardware, case.framework, case.model, case.gpus), 0.0) / 2
    ]


def page(found: Sequence[Case], skipped: dict[str, int]) -> str:
    """Return the whole page."""
    constants = Constants()
    head = [
        "rows",
        "efficiency, median error",
        "median bias",
        "90th percentile",
        "efficiency blind",
        "throughput blind",
    ]
    lines = [
        "# Data-parallel scaling: predicted against published",
        "",
        f"{datetime.date.today()}. {len(found)} rows of several GPUs; made by `python benchmarks/scaling.py DIR` from",
        "the tables of DIR (the rows stay there). How rows are read: `benchmarks/scaling_rows.py`; the model:",
        "`benchmarks/scaling_predict.py` on `forerun.simulator.modes` and the collective rules.",
        "",
        "*Efficiency*: throughput per GPU over that of one, whose measured step is given. *Blind*: nothing is given;",
        "in brackets, the rows whose device and model the catalogue describes. Errors are medians of absolute values.",
        "",
        f"Constants, those of the profiles: jitter {constants.jitter:g}, blocked share {constants.blocked_share:g},",
        f"rendezvous of nodes {1e3 * constants.ddp_rendezvous_s:g} ms (DDP) and "
        f"{1e3 * constants.horovod_rendezvous_s:g} ms (Horovod and the like), "
        f"jitter of sentences {constants.token_jitter:g};",
        "ChainerMN (ParaDL) as in its profile. Waiting and exchange are those of `forerun search` and `scale`.",
        "",
        "## All rows together",
        *table(["figure", "rows", "median", "mean"], all_rows(found, constants)),
        "",
        f"Suspect: {len(suspect(found))} rows in fp16 at less than half the rate of the same machine, software and",
        "model in fp32. They are of one network (VGG-16 on A100, TensorFlow 2.3), alike on one GPU and on eight:",
        "it is no exchange; the other networks there are 3 times as fast in fp16 as in fp32, and another build on",
        "that card runs VGG-16 17 times as fast. A kernel was missing there; no cost rule should tell of it.",
        "",
        "## By table",
        *table(["table", *head], summary(found, kind, constants)),
        "",
        "## By source",
        *table(["source", *head], summary(found, lambda case: case.source, constants)),
        "",
        "## By model",
        *table(["model", *head], summary(found, lambda case: case.model, constants)),
        "",
        "## Cross-validation",
        "Jitter, blocked share and rendezvous are fitted again to all rows but one part's, which they then predict.",
        "",
        *table(["table left out", "rows", "median error", "constants"], held_out(found, lambda case: case.file)),
        "",
        *table(["model left out", "rows", "median error", "constants"], held_out(found, lambda case: case.model)),
        "",
        "## By machine",
        *table(["machine", *head], summary(found, lambda case: case.hardware, constants)),
        "",
        "## What it misses",
        "- fp16 without XLA in TensorFlow 1.15 and 2.2 on RTX cards: ResNet-50 and Inception-4 lose up to half on",
        "  eight GPUs, VGG-16 gains; all over the same links, so that it is not the exchange.",
        "- Input pipelines: rows of DLPerf in half precision that a host could not feed (MXNet, TensorFlow 2).",
        "- One machine with RTX 3090 (7662), which exchanges at 0.7 GB/s, a tenth of what others like it reach.",
        "- All-reduces of 2017 on P100 (VGG-16), before NCCL 2.",
        "",
        "## Not compared",
        *(f"- {count} rows: {reason}" for reason, count in sorted(skipped.items())),
        "",
    ]
    return "\n".join(lines)


def write_rows(found: Sequence[Case], path: Path) -> None:
    """Write every row's measured and predicted efficiency."""
    names = ("file", "source", "hardware", "model", "framework", "precision", "gpus", "nodes")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, "efficiency", "predicted_efficiency", "throughput_error"])
        for case in found:
            absolute = case.absolute(Constants())
            cells = [f"{case.efficiency:.4f}", f"{case.predicted(Constants()):.4f}"]
            writer.writerow(
                [*(getattr(case, name) for name in names), *cells, "" if absolute is None else f"{absolute:.4f}"]
            )


def main() -> None:
    """Read, predict, print; write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--rows", type=Path, metavar="FILE")
    args = parser.parse_args()
    skipped: dict[str, int] = {}
    found = cases(read(args.folder), skipped)
    if not found:
        raise SystemExit(f"{args.folder} has no rows to compare; it should hold dp_dlperf.csv and the like")
    text = page(found, skipped)
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")
    if args.rows is not None:
        write_rows(found, args.rows)


if __name__ == "__main__":
    main()
