"""Notes on the evidence for the first row's prediction, and on measurements that narrow its range."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.search.answer.evidence import counted, evidence_of
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.evidence import NearestRuns
from forerun.search.board.rows import Row
from forerun.search.measured.intervals import busy_share, unchecked_gain
from forerun.search.measured.intervals.cells import GATHERED, kind_of
from forerun.search.measured.intervals.kriging import asked_points, known_errors
from forerun.search.measured.intervals.narrowing import LESS, RUNS, narrowing, range_text
from forerun.search.measured.intervals.parts import special_parts
from forerun.search.measured.intervals.unchecked import REALISED
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import Context

LEANING = 0.5
"""Share of the median error from which a median of signed errors is named as a bias."""
FAR = 2
"""Ratio of searched devices to the largest measured run from which that run's size is named."""
PROFILED = ("NVIDIA", "AMD")
"""Vendors on whose devices ``forerun profile`` runs."""


def checked_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the measured runs nearest to the first row and the errors of their predictions.

    There is no note in a calibrated context. Runs of another framework or device are named above the leaderboard.
    """
    context, row = setting.context, rows[0]
    if context.correction is not None:
        return ()
    evidence = evidence_of(context)
    parts = [_figures(evidence, context, row), _unchecked(context, row)]
    return ("; ".join(filter(None, parts)),) if any(parts) else ()


def narrowing_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on measurements that narrow the first row's range most.

    There is none if its framework was measured on its device.
    """
    context, row = setting.context, rows[0]
    if context.correction is not None or context.cluster.groups or evidence_of(context).near:
        return ()
    kind = kind_of(context, GATHERED if getattr(row.strategy, "zero", 0) == GATHERED else 0)
    busy = busy_share({part: np.array([seconds]) for part, seconds in row.breakdown_s.items()})
    narrowed = narrowing(known_errors("step"), asked_points([kind], np.array([float(row.gpus)]), busy))
    offers = [(narrowed.runs, f"{RUNS} measured runs (--measure-next {RUNS}, then `forerun calibrate`)")]
    if context.cluster.device.vendor in PROFILED:
        offers.append((narrowed.profile, "micro-benchmarks of one node (`forerun profile`)"))
    useful = [f"{name} to about {range_text(half)}" for half, name in sorted(offers) if half < LESS * narrowed.now]
    if not useful:
        return ()
    return (f"the 80% range of {row.range_text} is narrowed most by {'; by '.join(useful)}",)


def _unchecked(context: Context, row: Row) -> str:
    """Name the predicted saving of expert overlap and the measured share of it; empty without a saving."""
    gain = unchecked_gain(context, [row.strategy])[0]
    if not gain:
        return ""
    saving = f"moe-overlap is predicted to save {gain / (1 + gain):.0%}"
    return f"{saving}, and the only measured pair of runs got {REALISED:.0%} of its prediction"


def _figures(evidence: NearestRuns, context: Context, row: Row) -> str:
    """Name the nearest runs and the errors of their predictions; empty without such runs."""
    if not evidence.runs:
        return ""
    entry = evidence.figures
    runs = evidence.text if evidence.near else f"the nearest {counted(entry)}"
    return f"{runs}, {_error(entry)}{_far(entry, row.gpus)}{_without(entry, context)}"


def _error(entry: Mapping[str, Any]) -> str:
    """Return the median error, and the bias if it is a large share of the error."""
    median, bias = entry["median_pct"], entry["bias_pct"]
    if abs(bias) <= LEANING * median:
        return f"median error {median:.1f}%"
    return f"median error {median:.1f}%, bias {bias:+.1f}% (predicted too {'fast' if bias < 0 else 'slow'})"


def _far(entry: Mapping[str, Any], gpus: int) -> str:
    return f"; the largest had {entry['gpus']:,} GPUs" if gpus > FAR * entry["gpus"] else ""


def _without(entry: Mapping[str, Any], context: Context) -> str:
    """Return the parts of the model that no measured run had."""
    lacking = [part for part in special_parts(context.model) if part not in entry["special"]]
    return f"; none with {' or '.join(lacking)}" if lacking else ""
