"""``forerun calibrate``: the constants of a machine, fitted to measured runs."""

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.search.cli.progress import show_progress
from forerun.search.measured.calibrate import Calibrated, calibrate_files, write_calibration
from forerun.simulator.calibration import Posterior
from forerun.simulator.calibration.mixture import WIDE
from forerun.spaces.errors import RequestError
from forerun.spaces.locks import held

if TYPE_CHECKING:
    from rich.table import Table


MOST_SHOWN = 8
"""Most listed contradicting runs, and most listed reasons for skipped rows."""


def run(args: argparse.Namespace) -> int:
    """Fit, write and report."""
    if not args.files and not args.append:
        raise RequestError("name at least one table of measured runs, like runs.csv")
    with held(args.out.with_name(f".{args.out.name}.lock"), str(args.out), on_wait=partial(_say_waiting, args.out)):
        return _calibrate(args)


def _say_waiting(out: Path, holder: str) -> None:
    print(f"forerun: waiting for {holder}, which writes {out}", file=sys.stderr)


def _calibrate(args: argparse.Namespace) -> int:
    """Fit the runs of the file and of the tables, and write the file; the caller has the lock of the file."""
    if args.append and not args.out.exists():
        raise RequestError(f"{args.out} is not there yet; leave --append out to begin it")
    if args.out.exists() and not args.append and not args.force:
        raise RequestError(f"{args.out} exists; add --append to keep its runs, or --force to write over it")
    calibrated = calibrate_files(
        args.files,
        earlier=args.out if args.append else None,
        where=args.where,
        source=args.out.name,
        profile=args.profile,
        turned=partial(show_progress, "calibrating"),
    )
    write_calibration(args.out, calibrated.calibration)
    if args.json:
        from forerun.search.files.documents import dump_json

        print(dump_json(_document(calibrated, args.out)))
        return 0
    _print(calibrated, args.out)
    return 0


def _document(calibrated: Calibrated, out: Path) -> dict[str, object]:
    from forerun.search.files.documents import SCHEMA, versions

    calibration = calibrated.calibration
    fitted, mixture = [one for one in calibration.constants if one.refused is None], calibration.posterior.mixture
    return {
        "schema": SCHEMA,
        "file": str(out),
        "device": calibration.machine.device,
        "framework": calibration.machine.framework,
        "runs": len(calibrated.runs),
        "skipped": dict(calibrated.skipped),
        "error": dict(calibration.error),
        "constants": {
            one.constant.name: {
                "kind": "added" if one.constant.share else "factor",
                "value": one.constant.factor(one.z),
                "between": list(one.factors(1.645)),
            }
            for one in fitted
        },
        "not_determined": {one.constant.name: one.refused for one in calibration.constants if one.refused},
        "priors": [
            {"constants": prior.constants, "residual": prior.residual, "noise": prior.noise, "share": float(share)}
            for prior, share in zip(mixture.priors, mixture.shares, strict=True)
        ],
        "memory": {
            one.factor.name: {"value": one.factor.factor(one.z), "between": list(one.between)}
            for one in calibration.memory
            if one.determined
        },
        "disagree": [{"run_id": name, "error": error} for name, error in calibrated.odd],
        "versions": versions(),
    }


def _print(calibrated: Calibrated, out: Path) -> None:
    from rich.text import Text

    from forerun.search.cli.console import open_console, say

    console, calibration = open_console(), calibrated.calibration
    error, machine, runs = calibration.error, calibration.machine, len(calibrated.runs)
    say(
        console,
        Text(
            f"{runs} run{'s' * (runs != 1)} on {machine.device} with {machine.framework}",
            style="bold",
        ),
        Text(
            f"median error {error['before_median_pct']:.1f} % with the catalogue, "
            f"{error['left_out_median_pct']:.1f} % calibrated (each run predicted from the others)"
        ),
        Text(f"worst error  {error['before_worst_pct']:.1f} %, {error['left_out_worst_pct']:.1f} %"),
        Text(f"within the 90 % interval that the others predict: {error['left_out_within_interval_pct']:.0f} %"),
        *map(Text, _believed(calibration.posterior)),
        *map(Text, _memory(calibration.error)),
        "",
        _constants(calibrated),
    )
    lines = [f"kept {one.constant.name}: {one.refused}" for one in calibration.constants if one.refused]
    lines += [
        f"! run {name}: {abs(error):.0%} {'slower' if error > 0 else 'faster'} than the others imply; its weight is low"
        for name, error in calibrated.odd[:MOST_SHOWN]
    ]
    skipped = sorted(calibrated.skipped.items(), key=lambda item: -item[1])[:MOST_SHOWN]
    lines += [f"skipped {count} rows: {reason}" for reason, count in skipped]
    say(console, *(Text(line, style="dim") for line in lines), Text(f"wrote {out}"))


def _believed(posterior: "Posterior") -> list[str]:
    """Return lines on the noise of runs and on the probability that the machine differs from the catalogue."""
    mixture = posterior.mixture
    noise = float(mixture.shares @ posterior.noise) ** 0.5
    wide = sum(
        share for prior, share in zip(mixture.priors, mixture.shares, strict=True) if prior.constants >= WIDE.constants
    )
    return [
        f"runs repeat within {100 * noise:.1f} % (one standard deviation)",
        f"probability that this machine differs from the catalogue as much as other machines do: {100 * wide:.0f} %",
    ]


def _memory(error: "Mapping[str, float]") -> list[str]:
    """Return lines on the accuracy of fitted memory; none without measured memory."""
    if "memory_runs" not in error:
        return []
    lines = []
    if "memory_before_median_pct" in error:
        lines.append(
            f"peak memory  {error['memory_before_median_pct']:.1f} % with the catalogue, "
            f"{error['memory_left_out_median_pct']:.1f} % calibrated; within its interval: "
            f"{error['memory_left_out_within_interval_pct']:.0f} %"
        )
    lines.append(
        f"fits or not  right for {error['memory_before_verdict_pct']:.0f} % of {error['memory_runs']:.0f} runs with "
        f"the catalogue, {error['memory_left_out_verdict_pct']:.0f} % calibrated"
    )
    return lines


def _constants(calibrated: Calibrated) -> "Table":
    from rich.text import Text

    from forerun.search.cli.tables import table_of

    rows: list[tuple[str | Text, ...]] = []
    for one in calibrated.calibration.constants:
        if one.refused is not None:
            continue
        value, (low, high) = one.constant.factor(one.z), one.factors(1.645)
        if one.constant.share:
            cells = (f"{value:+.2f}", f"{low:+.2f} to {high:+.2f}")
        else:
            cells = (f"x {value:.3g}", f"{low:.3g} to {high:.3g}")
        rows.append((one.constant.name, *cells, Text(one.constant.title, style="dim")))
    for part in calibrated.calibration.memory:
        if part.determined:
            low, high = part.between
            cells = (f"x {part.factor.factor(part.z):.3g}", f"{low:.3g} to {high:.3g}")
            rows.append((f"memory: {part.factor.name}", *cells, Text(part.factor.title, style="dim")))
    return table_of(("|constant", ">against the catalogue", ">90 % interval", ""), rows)
