"""Predictions of measured runs with a calibration."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forerun.search.measured.calibrate.document import Calibration
from forerun.search.measured.profiling import read_profile
from forerun.search.measured.validate import MeasuredRun, Predictions
from forerun.simulator.calibration import Posterior
from forerun.simulator.calibration.belief import LEVEL
from forerun.simulator.calibration.constants import software_of
from forerun.simulator.scoring import table_for
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, by_context


def calibrated_runs(runs: Sequence[MeasuredRun], calibration: Calibration) -> tuple[MeasuredRun, ...]:
    """Return runs with their contexts calibrated; runs of other machines are unchanged.

    Raises:
        RequestError: no run is of the calibration's machine.
    """
    known: dict[int, Context] = {}
    for run in runs:
        if id(run.context) not in known:
            own = (run.context.cluster.device.name, software_of(run.context).name)
            ours = own == (calibration.machine.device, calibration.machine.framework)
            known[id(run.context)] = calibration.applied(run.context)[0] if ours else run.context
    if not any(context.correction for context in known.values()):
        machine = calibration.machine
        raise RequestError(f"no run is on {machine.device} with {machine.framework}, which {calibration.source} is of")
    return tuple(dataclasses.replace(run, context=known[id(run.context)]) for run in runs)


def profiled_runs(runs: Sequence[MeasuredRun], path: Path) -> tuple[MeasuredRun, ...]:
    """Return runs with the measurements of a profile of their device; other runs are unchanged.

    Raises:
        RequestError: the file is not a profile, or no run is of its device.
    """
    profile, known = read_profile(path), dict[int, Context]()
    for run in runs:
        if id(run.context) not in known:
            ours = run.context.cluster.device.name == profile.device
            known[id(run.context)] = profile.applied(run.context)[0] if ours else run.context
    if all(context.cluster.device.name != profile.device for context in known.values()):
        raise RequestError(f"no run is on {profile.device}, which {path.name} is a profile of")
    return tuple(dataclasses.replace(run, context=known[id(run.context)]) for run in runs)


def coverage(predictions: Predictions, calibration: Calibration) -> dict[str, float]:
    """Return the numbers of predicted and of fitted steps, and the share of other steps within their interval in per
    cent (omitted without any).
    """
    fitted = {cells["run_id"] for cells in calibration.runs}
    lines = [
        row
        for row, run in enumerate(predictions.runs)
        if run.context.correction is not None and run.outcome == "ok" and run.step_time_s and predictions.predicted[row]
    ]
    inside: list[bool] = []
    count = 0
    for rows in by_context(predictions.runs, lines):
        context = predictions.runs[rows[0]].context
        posterior = context.correction
        assert isinstance(posterior, Posterior)
        belief = posterior.believe([(context, table_for(context, [predictions.runs[row].strategy for row in rows]))])
        low_s, high_s = belief.interval_s(LEVEL)
        count += len(rows)
        for place, row in enumerate(rows):
            if predictions.runs[row].run_id not in fitted:
                inside.append(bool(low_s[place] <= (predictions.runs[row].step_time_s or 0.0) <= high_s[place]))
    figures = {"runs": float(count), "fitted": float(count - len(inside))}
    return {**figures, "within_interval_pct": 100 * float(np.mean(inside))} if inside else figures
