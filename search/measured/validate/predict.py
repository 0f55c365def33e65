"""Predictions for measured runs: runs with a common context are scored in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.measured.validate.runs import MeasuredRun
from forerun.simulator import ScoreTable
from forerun.simulator import score as simulator_score
from forerun.simulator.assignment.memory import cached_bytes, memory_by_stage
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import SplitTable
from forerun.simulator.scoring import table_for
from forerun.spaces.errors import ForerunError
from forerun.spaces.strategies import COLUMNS, RULES, StrategyTable, by_context

Scorer = Callable[[Any, Any], ScoreTable]

Floats = NDArray[np.float64]

KEPT_SHARE = 0.18
"""Cached blocks of an allocator at the time of a reading, as a share of live tensors; they are freed before an
allocation fails. Readings of three sources are 15 to 25 % above live tensors (FlagPerf, DLPerf, BigScience)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions for N runs, in their order. Rows that cannot be scored are NaN and False.

    ``step_time_s``; ``peak_memory_bytes``: peak on the device; ``comparable_memory_bytes``: the peak in the measured
    kind (allocated, reserved or device); ``oom``: the run would not fit. ``time_s``, ``memory_bytes`` (part -> N):
    parts of both. ``laws``: codes of the legality laws that each run breaks (predicted nevertheless, since it ran).
    ``errors``: (context's model, message) of contexts that cannot be scored.
    """

    runs: tuple[MeasuredRun, ...]
    step_time_s: Floats
    peak_memory_bytes: Floats
    comparable_memory_bytes: Floats
    oom: NDArray[np.bool_]
    time_s: Mapping[str, Floats]
    memory_bytes: Mapping[str, Floats]
    laws: tuple[tuple[str, ...], ...]
    errors: Mapping[str, int]
    stop: KeyboardInterrupt | None = None
    """Interruption of a ``partial`` prediction, with the predictions so far."""

    @property
    def predicted(self) -> NDArray[np.bool_]:
        """Runs that have a prediction, shape N."""
        return np.isfinite(self.step_time_s)

    def among(self, rows: Sequence[int]) -> "Predictions":
        """Return the predictions of some rows."""
        place = np.asarray(rows, dtype=np.intp)
        return replace(
            self,
            runs=tuple(self.runs[row] for row in rows),
            step_time_s=self.step_time_s[place],
            peak_memory_bytes=self.peak_memory_bytes[place],
            comparable_memory_bytes=self.comparable_memory_bytes[place],
            oom=self.oom[place],
            time_s={part: values[place] for part, values in self.time_s.items()},
            memory_bytes={part: values[place] for part, values in self.memory_bytes.items()},
            laws=tuple(self.laws[row] for row in rows),
        )


def predict(
    runs: Sequence[MeasuredRun],
    *,
    score: Scorer = simulator_score,
    on_progress: Callable[[str, int, int, str], None] | None = None,
    partial: bool = False,
) -> Predictions:
    """Predict step time and peak memory of every run.

    ``on_progress`` is called with the task, finished runs, all runs, and an empty remark. ``partial``: after Ctrl-C
    return the predictions so far, with the ``stop``.
    """
    count = len(runs)
    step_time_s, peak, comparable = (np.full(count, np.nan) for _ in range(3))
    oom = np.zeros(count, dtype=bool)
    time_s: dict[str, Floats] = {}
    memory_bytes: dict[str, Floats] = {}
    laws: list[tuple[str, ...]] = [()] * count
    errors: dict[str, int] = {}
    done: list[int] = []
    stop: KeyboardInterrupt | None = None
    try:
        for rows in by_context(runs):
            if on_progress is not None:
                on_progress("predicting", len(done), count, "")
            context = runs[rows[0]].context
            strategies = [runs[row].strategy for row in rows]
            table = table_for(context, strategies)
            for row, codes in zip(rows, _broken_laws(context, table), strict=True):
                laws[row] = codes
            try:
                scores = score(context, table)
            except ForerunError as error:
                errors[str(error)] = errors.get(str(error), 0) + len(rows)
                done += rows
                continue
            step_time_s[rows], peak[rows] = scores.step_time_s, scores.peak_memory_bytes
            oom[rows] = scores.peak_memory_bytes > context.cluster.device.memory_bytes
            comparable[rows] = _comparable([runs[row] for row in rows], scores, context)
            for parts, values in ((time_s, scores.time_s), (memory_bytes, scores.memory_bytes)):
                for part, value in values.items():
                    parts.setdefault(part, np.full(count, np.nan))[rows] = value
            done += rows
    except KeyboardInterrupt as interrupt:
        if not partial:
            raise
        stop = interrupt
    predictions = Predictions(
        runs=tuple(runs),
        step_time_s=step_time_s,
        peak_memory_bytes=peak,
        comparable_memory_bytes=comparable,
        oom=oom,
        time_s=time_s,
        memory_bytes=memory_bytes,
        laws=tuple(laws),
        errors=errors,
        stop=stop,
    )
    return predictions if stop is None else predictions.among(sorted(done))


def _comparable(runs: Sequence[MeasuredRun], scores: ScoreTable, context: Any) -> Floats:
    """Return the predicted peak in the kind that each run measured, and on the measured stage.

    Reserved memory includes the blocks kept for communication streams, and excludes the device context and
    communicators. Device memory also includes cached blocks (``KEPT_SHARE``).
    """
    used, allocated = scores.peak_memory_bytes.copy(), scores.allocated_bytes.copy()
    for row, run in enumerate(runs):
        if run.memory_of_first and scores.peak_stage[row] > 0:
            parts = memory_by_stage(context, run.strategy)[0]
            used[row] = sum(parts.values())
            allocated[row] = used[row] - parts["reserve"]
    kind = np.array([run.memory_kind for run in runs])
    if isinstance(context, GraphContext):  # allocator overhead is not modelled for operator graphs
        return np.where(kind == "device", used, allocated)
    profile = context.framework
    outside = profile.context_bytes + profile.communicator_bytes
    for row in np.flatnonzero(kind == "reserved").tolist():
        used[row] += cached_bytes(context, runs[row].strategy)
    chosen = np.where(kind == "allocated", allocated, used - outside)
    kept = np.minimum((1 + KEPT_SHARE) * allocated + outside, context.cluster.device.memory_bytes)
    shown = np.maximum(used, kept)
    return np.where(kind == "device", shown, chosen)


def _broken_laws(context: Any, table: StrategyTable | SplitTable) -> list[tuple[str, ...]]:
    """Return the codes of the laws that each row of a table breaks; illegal splits are not mapped."""
    if not isinstance(table, StrategyTable):
        return [()] * len(table)
    columns = {axis: table.column(axis) for axis in COLUMNS}
    broken: list[list[str]] = [[] for _ in range(len(table))]
    for rule in RULES:
        for row in np.flatnonzero(rule.illegal(columns, context)):
            broken[row].append(rule.code)
    return [tuple(codes) for codes in broken]
