"""Choice of the runs to measure next among the best rows of a search, and the table for their results."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from forerun.search.board.requested import NextRun, NextRuns
from forerun.search.board.rows import Row
from forerun.search.formats.contract import Files
from forerun.search.formats.launch_of import launch_of
from forerun.search.measured.validate.columns import OPTIONAL, REQUIRED
from forerun.search.request.setting import Setting
from forerun.search.tune.candidates import candidates_among
from forerun.search.tune.choice import Chooser, RunOutcome
from forerun.search.tune.informative import informative
from forerun.simulator import score
from forerun.simulator.calibration import Posterior, nothing_measured
from forerun.simulator.calibration.residual import features_of
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.files import csv_text
from forerun.spaces.strategies import Context, StrategyTable, table_of

COLUMNS = (*REQUIRED, *OPTIONAL)
"""Columns of a table of runs."""
RULES = ("regret", "accuracy")
"""Aims of measuring: the choice of the best strategy, or small errors of all strategies."""
_SAME = 1e-3
"""Distance below which features are equal: files have six digits."""


def next_runs(context: Context, rows: Sequence[Row], count: int, *, rule: str = "regret") -> NextRuns:
    """Choose the runs to measure next among some rows.

    Parameters
    ----------
    context
        Training, cluster and software of the rows; may be calibrated.
    rows
        Rows of a leaderboard. Rows with different numbers of devices are compared by device time.
    count
        Number of runs.
    rule
        Aim of measuring (``RULES``).

    Returns
    -------
    NextRuns
        Runs, most useful first, each chosen as if the earlier runs had been measured as predicted.

    Raises
    ------
    RequestError
        No such rule, or fewer rows than requested runs remain.
    """
    if rule not in RULES:
        raise unknown("reason to measure", rule, RULES)
    posterior = context.correction
    if not isinstance(posterior, Posterior):
        posterior = nothing_measured()
    table = table_of([row.strategy for row in rows])
    believed = posterior.believe([(context, table)]).costing(np.array([float(row.gpus) for row in rows]))
    known = _measured_rows(posterior, context, table)
    if count > len(rows) - len(known):
        raise RequestError(
            f"{len(rows)} strategies fit and {len(known)} of them are measured, so that at most "
            f"{len(rows) - len(known)} can be proposed, but got --measure-next {count}"
        )
    chosen = informative(believed, count, known) if rule == "accuracy" else _improving(context, rows, count, known)
    return NextRuns(
        rule=rule,
        regret=believed.expected_regret(),
        runs=tuple(NextRun(row=rows[row], gain=gain) for row, gain in chosen),
        measured=len(known),
    )


def _improving(context: Context, rows: Sequence[Row], count: int, known: Mapping[int, bool]) -> list[tuple[int, float]]:
    """Choose runs by ``Chooser``; return positions and gains.

    ``known``: measured rows -> whether their time is known.
    """
    candidates = candidates_among(context, rows, by_place=True)
    chooser = Chooser(candidates)
    outcomes = [
        RunOutcome(key=str(row), status="ok" if timed else "failed", step_s=candidates[row].step_s if timed else None)
        for row, timed in known.items()
    ]
    chosen: list[tuple[int, float]] = []
    while len(chosen) < count:
        choice, done = chooser.next_run(outcomes), {one.key for one in outcomes}
        key = next(one.key for one in candidates if one.key not in done) if choice is None else choice.candidate.key
        chosen.append((int(key), 0.0 if choice is None else choice.gain))
        outcomes.append(chooser.as_expected(key, outcomes))
    return chosen


def _measured_rows(posterior: Posterior, context: Context, table: StrategyTable) -> dict[int, bool]:
    """Return the rows that were measured, and whether their step time was measured.

    A row counts as measured if axes and kernels agree; runs that ran out of memory have no other features.
    """
    time_s: Mapping[str, Floats] = score(context, table).time_s
    predicted, known = features_of(context, table, time_s), dict[int, bool]()
    for evidence, timed in ((posterior.evidence, True), (posterior.held and posterior.held.evidence, False)):
        if not evidence:
            continue
        features = evidence.features
        same = np.abs(predicted.numbers[:, None, :] - features.numbers[None, :, :]).max(axis=2) < _SAME
        same &= (predicted.words[:, None, :] == features.words[None, :, :]).all(axis=2)
        if timed:
            same &= np.abs(predicted.parts[:, None, :] - features.parts[None, :, :]).max(axis=2) < _SAME
        known = {int(row): timed for row in np.flatnonzero(same.any(axis=1))} | known
    return known


def launches(
    setting: Setting, proposals: NextRuns, format_name: str | None = None, *, folder: Path | None = None
) -> list[tuple[Path, Files]]:
    """Return the launch files of every run with their folder, ``NUMBER-FORMAT`` below ``folder``.

    The format is the first one of the request's framework that can express the run, else forerun's.

    Raises:
        RequestError: the requested format is unknown or cannot express a run.
    """
    context, written = setting.context, []
    for number, run in enumerate(proposals.runs, start=1):
        place = (folder or Path()) / f"{number:02}"
        name = f"{context.model.name} run {number}"
        item, files = launch_of(context, run.row.strategy, name=name, format_name=format_name, folder=place)
        written.append((Path(f"{place}-{item}"), files))
    return written


def results_table(setting: Setting, proposals: NextRuns) -> str:
    """Return the CSV into which the measured step times of the runs go, ready for ``forerun calibrate``."""
    return csv_text(
        COLUMNS, [run_cells(setting, run.row, number) for number, run in enumerate(proposals.runs, start=1)]
    )


def run_cells(setting: Setting, row: Row, number: int) -> dict[str, str]:
    """Return the cells of an unmeasured run; ``step_time_s`` is blank."""
    request, context, strategy = setting.request, setting.context, row.strategy
    return {
        "run_id": f"{_plain(context.model.name)}-{_plain(row.name)}-{number:02}",
        "source": "forerun search --measure-next",
        "device": context.cluster.device.name,
        "cluster": _where(request.cluster),
        "gpus": str(strategy.devices),
        "model": _where(request.model),
        "seq_len": str(context.workload.seq_len),
        "precision": context.workload.precision,
        "framework": f"profile:{context.framework.name}",
        "strategy": row.name,
        **{axis: str(getattr(strategy, axis)) for axis in ("dp", "tp", "pp")},
        "micro_batch": str(strategy.mbs),
        "global_batch": str(context.workload.global_batch),
        "outcome": "ok",
        "group": f"{context.model.name}|{context.workload.seq_len}|{context.workload.global_batch}",
    }


def _where(name: str) -> str:
    """Return a catalogue name unchanged, or the full path of a file."""
    path = Path(name)
    return str(path.resolve()) if path.exists() else name


def _plain(text: str) -> str:
    return "".join(char if char.isalnum() else "." for char in text).strip(".")
