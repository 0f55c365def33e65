"""Do the constants that saw whole runs hold for runs they did not see? Each is refitted with a part left out.

``run.py`` prints it. Families of constants (``constants.py``) are refitted
without one model size, one number of GPUs, one device or one table of results at a time, and judged on what was left
out. "same rows, fitted" is the error of the left-out rows when they take part in the fit: what leaving out costs is
the difference to that, and not to the error of the rows that were kept, which may simply be easier.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import refit
from constants import Constant
from families import FAMILIES, PARTS, Family
from refit import Problem, Rows

from forerun.search.measured.validate import MeasuredRun, Predictions, metrics_of

SMALLEST_PART = 8
"""Fewer rows are not left out: their error says little."""
CONTEXTS = 24
"""Of a table with more models and batches only so many take part where tables weigh the same (time)."""
ALLOWED = 4.0 / 3.0
"""Held-out errors may exceed those on fitted rows by a third."""
SMALL_PCT = 1.0
"""Points of error within which a ratio is not held against a family: a third of 3 % is noise."""

LABELLED = ("aleph_alpha_layouts", "hf_ultrascale")
"""Tables whose out-of-memory labels are complete; elsewhere only measured peaks count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part left out. Errors in per cent (median), tau and pairs of groups; None where there are none."""

    by: str
    part: str
    rows: int
    factors: dict[str, float]
    fitted_pct: float | None
    held_out_pct: float | None
    same_rows_fitted_pct: float | None
    fitted_tau: float | None
    held_out_tau: float | None
    fitted_pairs_pct: float | None
    held_out_pairs_pct: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A family: present values and those refitted on all rows, the error with either, and every fold.

    ``pooled``: by what was left out -> median error of all rows when left out, and whether that stays within
    ``ALLOWED`` of the error when fitted.
    """

    title: str
    constants: list[dict[str, Any]]
    rows: int
    present_pct: float | None
    fitted_pct: float | None
    folds: list[Fold]
    pooled: dict[str, dict[str, Any]]


def cross_validate(predictions: Predictions) -> list[Result]:
    """Refit every family that has rows, and leave out each of its parts."""
    known = np.flatnonzero(predictions.predicted)
    results = []
    for family in FAMILIES:
        rows = [int(row) for row in known if family.acts_on(predictions.runs[row])]
        judged = ("ok", "oom") if family.memory else ("ok",)
        rows = [row for row in rows if predictions.runs[row].outcome in judged]
        if family.memory:
            rows = [row for row in rows if _remembered(predictions.runs[row])]
        if not family.memory:
            rows = [row for row in rows if predictions.runs[row].step_time_s]
        if family.even:
            rows = _thinned(predictions, rows)
        if len(rows) < 2 * SMALLEST_PART:
            continue
        one = refit.problem(predictions, rows, family.constants, even=family.even, joint=family.joint or family.memory)
        if one.constants:
            started = time.perf_counter()
            results.append((_memory_result if family.memory else _time_result)(family, one))
            print(f"{family.title}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return results


def _remembered(run: MeasuredRun) -> bool:
    """Whether a run says anything about memory: a peak, or a verdict in a table that has both kinds."""
    return run.peak_memory_bytes is not None or run.file in LABELLED


def _thinned(predictions: Predictions, rows: Sequence[int]) -> list[int]:
    """Return rows of at most ``CONTEXTS`` contexts per table, evenly spread: tables weigh the same anyhow."""
    contexts: dict[str, list[int]] = {}
    for row in rows:
        run = predictions.runs[row]
        kept = contexts.setdefault(run.file, [])
        if id(run.context) not in kept:
            kept.append(id(run.context))
    chosen = {one for kept in contexts.values() for one in kept[:: -(-len(kept) // CONTEXTS)]}
    return [row for row in rows if id(predictions.runs[row].context) in chosen]


def _time_result(family: Family, known: Problem) -> Result:
    """Refit constants of time."""
    base = known.base

    def judged(step_time_s: Any, rows: Rows) -> tuple[float | None, float | None, float | None]:
        m = metrics_of(replace(base, step_time_s=step_time_s), rows)
        return m.median_ape_pct, m.kendall_tau, m.pair_order_pct

    everything = refit.fitted(known, known.rows)
    all_fitted = refit.times(known, everything, known.rows)
    folds: list[Fold] = []
    held: dict[str, Any] = {}
    for by in family.parts:
        left = np.full(len(base.runs), np.nan)
        for part, rows in _parts(known, by):
            kept = np.setdiff1d(known.rows, rows)
            factors = refit.fitted(known, kept)
            step_time_s = refit.times(known, factors, known.rows)
            left[rows] = step_time_s[rows]
            folds.append(_fold(by, part, rows, factors, judged(step_time_s, kept), judged(step_time_s, rows),
                               judged(all_fitted, rows)[0]))  # fmt: skip
        chosen = known.rows[np.isfinite(left[known.rows])]
        if len(chosen):
            held[by] = _pooled(len(chosen), judged(left, chosen)[0], judged(all_fitted, chosen)[0])
    present, fitted = judged(base.step_time_s, known.rows)[0], judged(all_fitted, known.rows)[0]
    return _result(family, known, everything, present, fitted, folds, held)


def _memory_result(family: Family, known: Problem) -> Result:
    """Refit constants of memory on a grid; the error is the share of wrong verdicts plus that of measured peaks."""
    trials = refit.memory_trials(known)
    best = refit.best_memory(trials, known.rows)
    folds: list[Fold] = []
    held: dict[str, Any] = {}
    for by in family.parts:
        losses: list[tuple[int, float, float]] = []
        for part, rows in _parts(known, by):
            kept = np.setdiff1d(known.rows, rows)
            factors, predictions = trials[refit.best_memory(trials, kept)]
            kept_pct, left_pct = (100 * _loss(predictions, chosen) for chosen in (kept, rows))
            same_pct = 100 * _loss(trials[best][1], rows)
            losses.append((len(rows), left_pct, same_pct))
            nothing = (None, None)
            folds.append(_fold(by, part, rows, factors, (kept_pct, *nothing), (left_pct, *nothing), same_pct))
        if losses:
            count, left, same = (np.array(column, dtype=float) for column in zip(*losses, strict=True))
            held[by] = _pooled(int(count.sum()), float(np.average(left, weights=count)),
                               float(np.average(same, weights=count)))  # fmt: skip
    present, fitted = (100 * _loss(trials[trial][1], known.rows) for trial in (0, best))
    return _result(family, known, trials[best][0], present, fitted, folds, held)


def _loss(predictions: Predictions, rows: Rows) -> float:
    return refit.memory_loss(predictions, rows)


def _parts(known: Problem, by: str) -> list[tuple[str, Rows]]:
    """Return the parts that can be left out: large enough, and not everything."""
    found: dict[str, list[int]] = {}
    for row in known.rows:
        found.setdefault(PARTS[by](known.base.runs[row]), []).append(int(row))
    usable = {part: np.array(rows) for part, rows in sorted(found.items()) if len(rows) >= SMALLEST_PART}
    return [(part, rows) for part, rows in usable.items() if len(rows) < len(known.rows)]


def _fold(
    by: str,
    part: str,
    rows: Rows,
    factors: dict[Constant, float],
    fitted: tuple[float | None, float | None, float | None],
    held: tuple[float | None, float | None, float | None],
    same: float | None,
) -> Fold:
    return Fold(
        by=by,
        part=part,
        rows=len(rows),
        factors={constant.name: round(factor, 3) for constant, factor in factors.items()},
        fitted_pct=fitted[0],
        held_out_pct=held[0],
        same_rows_fitted_pct=same,
        fitted_tau=fitted[1],
        held_out_tau=held[1],
        fitted_pairs_pct=fitted[2],
        held_out_pairs_pct=held[2],
    )


def _pooled(rows: int, held: float | None, fitted: float | None) -> dict[str, Any]:
    holds = held is not None and fitted is not None and held <= max(ALLOWED * fitted, fitted + SMALL_PCT)
    return {"rows": rows, "held_out_pct": held, "fitted_pct": fitted, "within_a_third": holds}


def _result(
    family: Family,
    known: Problem,
    factors: dict[Constant, float],
    present: float | None,
    fitted: float | None,
    folds: list[Fold],
    pooled: dict[str, dict[str, Any]],
) -> Result:
    now = refit.present_values(known)
    table = [
        {"name": c.name, "where": c.where, "seen": c.seen, "present": now[c], "refitted": now[c] * factors[c]}
        for c in known.constants
    ]
    return Result(
        title=family.title,
        constants=table,
        rows=len(known.rows),
        present_pct=present,
        fitted_pct=fitted,
        folds=folds,
        pooled=pooled,
    )


def exceeds(fold: Fold) -> bool:
    """Whether the left-out rows have errors more than a third above those of the rows that were kept."""
    held, fitted = fold.held_out_pct, fold.fitted_pct
    return held is not None and fitted is not None and held > max(ALLOWED * fitted, fitted + SMALL_PCT)


def markdown(results: Sequence[Result]) -> list[str]:
    """Return the cross-validation as lines of a page."""
    lines = ["### Constants that saw whole runs", "", "| constant | where | chosen by | now | refitted on all rows |"]
    lines.append("|---|---|---|---|---|")
    for result in results:
        for c in result.constants:
            values = f"{c['present']:.3g} | {c['refitted']:.3g}"
            lines.append(f"| {c['name'].replace('|', ', ').strip('_')} | {c['where']} | {c['seen']} | {values} |")
    lines += ["", "### Errors of rows that were left out, per cent", ""]
    lines += ["| family | rows | now | refitted | left out by | rows | held out | same rows, fitted | within a third |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for result in results:
        for by, pooled in result.pooled.items():
            head = f"| {result.title} | {result.rows} | {_cell(result.present_pct)} | {_cell(result.fitted_pct)} |"
            errors = f"{_cell(pooled['held_out_pct'])} | {_cell(pooled['fitted_pct'])}"
            verdict = "yes" if pooled["within_a_third"] else "**no**"
            lines.append(f"{head} {by} | {pooled['rows']} | {errors} | {verdict} |")
    lines += ["", "### Every fold", ""]
    lines += ["| family | left out | rows | fitted rows | held out | same rows, fitted | tau: fitted, held out |"
              " pairs >5%: fitted, held out | factors |"]  # fmt: skip
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    lines += [_fold_line(result.title, fold) for result in results for fold in result.folds]
    return lines


def _fold_line(title: str, fold: Fold) -> str:
    errors = f"{_cell(fold.fitted_pct)} | {_cell(fold.held_out_pct)} | {_cell(fold.same_rows_fitted_pct)}"
    tau = f"{_cell(fold.fitted_tau, 2)}, {_cell(fold.held_out_tau, 2)}"
    pairs = f"{_cell(fold.fitted_pairs_pct)}, {_cell(fold.held_out_pairs_pct)}"
    moved = ", ".join(f"{factor:.2f}" for factor in fold.factors.values())
    return f"| {title} | {fold.by} {fold.part} | {fold.rows} | {errors} | {tau} | {pairs} | {moved} |"


def _cell(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def to_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the cross-validation as plain data."""
    return [asdict(result) for result in results]


def from_json(results: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Return the cross-validation from plain data; the reverse of ``to_json``."""
    return [Result(**{**result, "folds": [Fold(**fold) for fold in result["folds"]]}) for result in results]
