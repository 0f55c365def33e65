"""Result of a tuning: measured against predicted times, errors of the catalogue, and the launch to use."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.search.board.rows import SECONDS_PER_HOUR
from forerun.search.files.documents import SCHEMA, versions
from forerun.search.tune.loop import Tuner, TuningWatch
from forerun.search.tune.results import calibrate_folder
from forerun.search.tune.run import RunState
from forerun.spaces.files import write_text

BEST = "best"
"""Folder with the launch files of the winner."""
MOVED = 0.05
"""Smallest change of a named constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSummary:
    """The result of a tuning.

    Attributes
    ----------
    states
        All runs in order.
    best
        The fastest measured run by device time; None without a successful run.
    stopped
        Why no further run was launched.
    document
        The result as plain data.
    """

    states: tuple[RunState, ...]
    best: RunState | None
    stopped: str
    document: Mapping[str, Any]


def summarize(tuner: Tuner, baseline_s: float | None = None) -> TuneSummary:
    """Fit the runs, write the winner's launch files, and return the result.

    Parameters
    ----------
    tuner
        Driver that has ended.
    baseline_s
        Measured seconds of a step of the user's current run; None without one.

    Raises
    ------
    RequestError
        A file cannot be written.
    """
    folder, candidates = tuner.folder, tuner.candidates
    states = tuple(folder.states.values())
    measured = [state for state in states if state.result is not None and state.result.measured]
    best = min(measured, key=_device_s, default=None)
    calibrated = calibrate_folder(folder.path)
    constants = [
        {"name": one.constant.name, "what": one.constant.title, "factor": one.constant.factor(one.z)}
        for one in (calibrated.calibration.constants if calibrated is not None else ())
        if one.refused is None and not one.constant.share and abs(math.log(one.constant.factor(one.z))) > MOVED
    ]
    ratios = [_step_s(state) / state.run.predicted_s for state in measured]
    if best is not None:
        row, place = candidates.rows[best.run.strategy], folder.path / BEST
        place.mkdir(exist_ok=True)
        name = f"{candidates.setting.context.model.name} tuned"
        for file, text in candidates.writer.full().files(row.strategy, place, name).items():
            write_text(place / file, text)
    document = {
        "schema": SCHEMA,
        "folder": str(folder.path),
        "request": candidates.board.request,
        "runs": [_entry(state) for state in states],
        "leaderboard": [state.run.number for state in sorted(measured, key=_device_s)],
        "best": None if best is None else {**_entry(best), "launch": str(folder.path / BEST)},
        "catalogue": {"measured_over_predicted": statistics.median(ratios) if ratios else None, "moved": constants},
        "over_row_one": None if best is None else _over_row_one(best, tuner),
        "over_baseline": None if best is None or not baseline_s else baseline_s / _step_s(best) - 1,
        "gpu_hours": folder.spent_gpu_s / SECONDS_PER_HOUR,
        "stopped": tuner.stopped,
        "versions": versions(),
    }
    return TuneSummary(states=states, best=best, stopped=tuner.stopped, document=document)


def sentences(document: Mapping[str, Any]) -> list[str]:
    """Describe the result of a tuning in sentences, for terminal and page."""
    best, catalogue = document["best"], document["catalogue"]
    texts = [f"ended: {document['stopped']}"] if document["stopped"] else []
    texts.append(f"{document['gpu_hours']:.2g} GPU-hours spent")
    if best is None:
        return [*texts, "no run ended well: nothing was measured"]
    ratio = catalogue["measured_over_predicted"]
    texts.append(
        f"steps took {abs(ratio - 1):.1%} {'longer' if ratio > 1 else 'less'} than predicted (median of the runs)"
    )
    texts += [
        f"  {one['what']}: x {one['factor']:.2f} the catalogue's, fitted to the runs" for one in catalogue["moved"]
    ]
    over = document["over_row_one"]
    if best["rank"] == 1:
        against = "row one of the search"
    elif over["gain"] is None:
        against = f"row one of the search was not measured ({over['status']})"
    else:
        known = "as measured" if over["status"] == "measured" else "as expected after the runs"
        against = f"{abs(over['gain']):.1%} {'slower' if over['gain'] < 0 else 'faster'} than row one {known}"
    texts.append(f"fastest: run {best['number']:02}, {best['strategy']}: {against}")
    if document["over_baseline"] is not None:
        texts.append(f"{document['over_baseline']:.1%} faster than your present run")
    return [*texts, f"launch it from {best['launch']}"]


class Approval(TuningWatch):
    """Observer that asks a function for consent, with the description of a run."""

    def __init__(self, approve: Callable[[str], bool]) -> None:
        self._approve = approve

    def approve(self, plan: Sequence[str]) -> bool:
        """Ask for consent."""
        return self._approve("\n".join(plan))


def _step_s(state: RunState) -> float:
    assert state.result is not None and state.result.step_s is not None
    return state.result.step_s


def _device_s(state: RunState) -> float:
    return _step_s(state) * state.run.gpus


def _entry(state: RunState) -> dict[str, Any]:
    """Return a run as plain data."""
    run, result = state.run, state.result
    entry = {**run.to_record(), "folder": str(state.folder), "log": str(state.log)}
    if result is None:
        return {**entry, "status": "under way"}
    entry |= result.to_record()
    ratio = result.step_s / run.predicted_s if result.measured and result.step_s else None
    return {**entry, "measured_over_predicted": ratio, "gpu_hours": state.spent_gpu_s / SECONDS_PER_HOUR}


def _over_row_one(best: RunState, tuner: Tuner) -> dict[str, Any]:
    """Compare the best run with row one of the search per device.

    Row one counts with its measured step, or with its expected one if it never ran.
    """
    first, status = tuner.candidates.first, "expected"
    seconds = tuner.chooser().expected_s(first.name, tuner.outcomes())
    for state in tuner.folder.states.values():
        if state.run.strategy != first.name or state.result is None or state.result.status == "interrupted":
            continue
        if not state.result.measured:
            return {"gain": None, "status": state.result.status}
        seconds, status = _step_s(state), "measured"
    return {"gain": seconds * first.gpus / _device_s(best) - 1, "status": status}
