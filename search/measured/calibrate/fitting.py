"""Fit of a calibration to rows of measured runs, with its figures."""

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np

from forerun.search.files.documents import cost_model_version
from forerun.search.files.release import VERSION
from forerun.search.measured.calibrate.checking import profiled_runs
from forerun.search.measured.calibrate.document import MOST_RUNS, Calibration, read_runs
from forerun.search.measured.calibrate.machine import machine_of, measured_of, memory_runs_of, told_of_memory, usable
from forerun.search.measured.validate import MeasuredRun, RunSet, load_runs
from forerun.search.measured.validate.columns import OPTIONAL, REQUIRED
from forerun.simulator.calibration import Fit, MemoryFit, fit, fit_memory
from forerun.simulator.calibration.belief import LEVEL, quantile
from forerun.simulator.calibration.constants import software_of
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.reading import digest_of

ODD = 0.35
"""Weight below which a run counts as contradicting the others and is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration, its fit, and its runs in order; ``skipped``: unused rows by reason."""

    calibration: Calibration
    fit: Fit
    runs: tuple[MeasuredRun, ...]
    skipped: Mapping[str, int]

    @property
    def odd(self) -> list[tuple[str, float]]:
        """Runs that contradict the others, with measured over predicted time minus 1, each predicted without itself."""
        weights = self.fit.posterior.evidence.weight
        rows = np.flatnonzero(weights < ODD)
        return [(self.runs[row].run_id, float(np.expm1(self.fit.left_out.error[row]))) for row in rows]


def calibrate_files(
    files: Sequence[Path],
    *,
    earlier: Path | None = None,
    where: Sequence[str] = (),
    source: str = "calibration",
    profile: Path | None = None,
    turned: Callable[[int, int], None] | None = None,
) -> Calibrated:
    """Fit the runs of some tables, and those of an ``earlier`` calibration; ``where``: COLUMN=VALUE conditions on rows.

    ``profile``: file of ``forerun profile``; constants are fitted on top of it. ``turned`` is called with the finished
    and the most rounds of the fit.

    Raises:
        RequestError: a file cannot be read, no row can be used, or the rows are of several machines.
    """
    old = () if earlier is None else read_runs(earlier)
    run_sets = [load_runs(files, graphs=True)] if files else []
    if old:
        run_sets.insert(0, _as_runs(old))
    runs = _chosen([run for part in run_sets for run in part.runs], where)
    made: dict[str, object] = {"files": {path.name: digest_of(path)[:16] for path in files}}
    if profile is not None:
        runs, made["profile"] = list(profiled_runs(runs, profile)), digest_of(profile)[:16]
    return calibrate_runs(runs, skipped=_skipped(run_sets), source=source, made=made, turned=turned)


def calibrate_runs(
    runs: Sequence[MeasuredRun],
    *,
    skipped: Mapping[str, int] | None = None,
    source: str = "calibration",
    made: Mapping[str, object] | None = None,
    turned: Callable[[int, int], None] | None = None,
) -> Calibrated:
    """Fit runs of one machine; each run_id must be unique.

    Raises:
        RequestError: no run can be used, there are too many runs, or runs of several machines.
    """
    chosen, memory_runs = usable(runs), told_of_memory(runs)
    machine, used = machine_of([*chosen, *memory_runs]), {id(run) for run in (*chosen, *memory_runs)}
    every = [run for run in runs if id(run) in used]
    names = [run.run_id for run in every]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"run {twice!r} is in the calibration already; name each run differently")
    if len(every) > MOST_RUNS:
        raise RequestError(f"a calibration takes at most {MOST_RUNS} runs, but there are {len(every)}; use --where")
    if not chosen:
        raise RequestError("no row has a step time and outcome ok: calibration needs at least one run that ran")
    result, memory = fit(measured_of(chosen), turned=turned), fit_memory(memory_runs_of(memory_runs))
    calibration = Calibration(
        source=source,
        machine=machine,
        posterior=replace(result.posterior, held=None if memory is None else memory.posterior),
        constants=result.constants,
        error={**figures(result), **({} if memory is None else memory_figures(memory, memory_runs))},
        memory=() if memory is None else memory.factors,
        made={
            "forerun": VERSION,
            "cost_model": cost_model_version(),
            "day": date.today().isoformat(),
            **(made or {}),
        },
        runs=tuple({name: cell for name, cell in run.cells.items() if cell} for run in every),
    )
    return Calibrated(calibration=calibration, fit=result, runs=tuple(chosen), skipped=dict(skipped or {}))


def figures(result: Fit) -> dict[str, float]:
    """Return the errors of a fit in per cent: medians of absolute errors of step times, and the share of runs within
    the interval predicted from the others.
    """
    before, after = (np.abs(np.expm1(-error)) for error in (result.before, result.left_out.error))
    return {
        "before_median_pct": 100 * float(np.median(before)),
        "left_out_median_pct": 100 * float(np.median(after)),
        "before_worst_pct": 100 * float(before.max()),
        "left_out_worst_pct": 100 * float(after.max()),
        "left_out_within_interval_pct": 100 * float(result.left_out.inside.mean()),
    }


def memory_figures(result: MemoryFit, runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Return the errors of a fit of memory in per cent: median absolute errors of peaks, the share within the interval
    predicted from other runs, and the share of right verdicts (fits or not).
    """
    figures: dict[str, float] = {"memory_runs": float(len(runs))}
    measured = np.isfinite(result.before)
    if measured.any():
        before, after = (np.abs(np.expm1(-error[measured])) for error in (result.before, result.left_out))
        inside = np.abs(result.left_out) <= quantile(LEVEL) * result.left_out_spread
        figures["memory_before_median_pct"] = 100 * float(np.median(before))
        figures["memory_left_out_median_pct"] = 100 * float(np.median(after))
        figures["memory_left_out_within_interval_pct"] = 100 * float(inside[measured].mean())
    ran = np.array([run.outcome == "ok" for run in runs])
    for name, margin in (("before", result.margin_before), ("left_out", result.margin_left_out)):
        figures[f"memory_{name}_verdict_pct"] = 100 * float(np.mean((margin >= 0) == ran))
    return figures


def _as_runs(rows: Iterable[Mapping[str, str]]) -> RunSet:
    """Map the rows of a calibration in the same way as rows of a file."""
    columns = (*REQUIRED, *OPTIONAL)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "earlier.csv"
        path.write_text(text.getvalue(), encoding="utf-8")
        return load_runs([path], graphs=True)


def _chosen(runs: Sequence[MeasuredRun], where: Sequence[str]) -> list[MeasuredRun]:
    """Return the runs that meet the conditions.

    Devices and frameworks match by the names of cells or of predictions, which messages use (a source may have another
    power limit than its table's device).
    """
    chosen = list(runs)
    for condition in where:
        column, separator, value = condition.partition("=")
        if not separator:
            raise RequestError(f"--where is written COLUMN=VALUE, like device=h100-sxm, but got {condition!r}")
        if runs and column not in runs[0].cells:
            raise unknown("column", column, runs[0].cells)
        values = {run.cells[column] for run in chosen} | {_predicted_as(run, column) for run in chosen}
        named = [run for run in chosen if _predicted_as(run, column) == value]
        chosen = named or [run for run in chosen if run.cells[column] == value]
        if not chosen:
            raise unknown(f"value of {column}", value, values)
    return chosen


def _predicted_as(run: MeasuredRun, column: str) -> str:
    if column == "device":
        return str(run.context.cluster.device.name)
    return str(software_of(run.context).name if column == "framework" else run.cells[column])


def _skipped(run_sets: Sequence[RunSet]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for part in run_sets:
        for row in part.skipped:
            counts[row.reason] = counts.get(row.reason, 0) + 1
        unmeasured = len({id(run) for run in part.runs} - {id(run) for run in _used(part.runs)})
        if unmeasured:
            counts["no step time"] = counts.get("no step time", 0) + unmeasured
    return counts


def _used(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    return [*usable(runs), *told_of_memory(runs)]
