"""The runs of a tuning as trials of an Optuna study, for optuna-dashboard and for continuation by other samplers.

The journal of the folder is authoritative for finished runs; a driver updates the study from it at its start, so that a
kill between both leaves no trial open.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, Trial, TrialState

from forerun.search.files.journal import storage
from forerun.search.files.studies import MEMORY, open_storage, predicted_facts, quiet, record
from forerun.search.formats.logs.read import WARM_UP
from forerun.search.tune.axes import axis_values, choices_of
from forerun.search.tune.candidates import TuningCandidates
from forerun.search.tune.run import RunResult, RunState
from forerun.spaces.units import format_seconds

NAME, METRIC = "forerun tune", "step_time_s"
"""Names of the study, and of its value."""
RUN, GPUS = "run", "gpus"
"""Attributes of a trial: number of its run, and its devices."""
SLOWER, LEAST_STEPS = 0.15, 5
"""A run is clearly slower if its median step exceeds the best by this share, after at least so many steps without
warm-up; medians of five steps vary by a few per cent."""


class SlowerThanBest(BasePruner):
    """Pruner that ends a trial whose median step is clearly slower, per device, than the best complete one."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Decide if a trial ends early."""
        return bool(self.reason(study, trial))

    def reason(self, study: optuna.Study, trial: FrozenTrial) -> str:
        """Return the reason to end a trial; empty: it should continue."""
        steps = [seconds for _, seconds in sorted(trial.intermediate_values.items())][WARM_UP:]
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(steps) < LEAST_STEPS or not complete:
            return ""
        gpus = trial.user_attrs[GPUS]
        best_s = min(one.values[0] * one.user_attrs[GPUS] for one in complete) / gpus
        seconds = statistics.median(steps)
        if seconds <= (1 + SLOWER) * best_s:
            return ""
        return f"a step takes {format_seconds(seconds)}, {seconds / best_s - 1:.0%} longer than in the best run"


class StudyTrials:
    """Record of the runs as trials in a journal file.

    Parameters
    ----------
    path
        The file of the study; created if missing.
    candidates
        Launchable strategies, whose axes are the parameters.

    Raises
    ------
    StorageError
        The file cannot be written.
    """

    def __init__(self, path: Path, candidates: TuningCandidates) -> None:
        self._path, self._candidates = path, candidates
        self._pruner = SlowerThanBest()
        self._parameters = dict(zip(candidates.rows, axis_values(list(candidates.rows)), strict=True))
        axes = choices_of(list(self._parameters.values()))
        self._choices = {axis: sorted(axes[axis], key=lambda value: (str(type(value)), value)) for axis in axes}
        with self._kept():
            self._study = optuna.create_study(
                study_name=NAME,
                storage=open_storage(str(path)),
                direction="minimize",
                sampler=optuna.samplers.RandomSampler(seed=0),
                pruner=self._pruner,
                load_if_exists=True,
            )
            self._study.set_metric_names([METRIC])

    def trial_of(self, state: RunState) -> FrozenTrial | None:
        """Return the trial of a run, begun if it is new; None if its strategy is no candidate any more."""
        trials = {trial.user_attrs.get(RUN): trial for trial in self._study.get_trials(deepcopy=False)}
        trial = trials.get(state.run.number)
        if trial is None and state.run.strategy not in self._candidates.rows:
            return None
        with self._kept():
            if trial is None:
                self._enqueue(state)
            elif trial.state == TrialState.WAITING:
                self._study.ask()
            elif trial.state == TrialState.RUNNING and len(trial.params) < len(self._choices):
                begun = Trial(self._study, trial._trial_id)
                for axis, choices in self._choices.items():
                    begun.suggest_categorical(axis, choices)
            else:
                return trial
        return self.trial_of(state)

    def _enqueue(self, state: RunState) -> None:
        """Add the trial of a run, which the next ``ask`` of the study begins."""
        row, run = self._candidates.rows[state.run.strategy], state.run
        work = self._candidates.setting.context.workload
        predicted = predicted_facts(
            strategy=run.strategy,
            gpus=run.gpus,
            step_s=run.predicted_s,
            tokens=work.global_batch * work.seq_len,
            mfu=row.mfu,
            peak_gib=run.predicted_peak_gib,
            oom_risk=run.risk,
        )
        facts = {RUN: run.number, "reason": run.reason, **predicted, "log": str(state.log)}
        self._study.enqueue_trial(self._parameters[run.strategy], user_attrs=facts)

    def stepped(self, state: RunState, steps: Sequence[float]) -> str:
        """Report the seconds of steps, and return the reason to end a clearly slower run."""
        trial = self.trial_of(state)
        if trial is None or trial.state.is_finished():
            return ""
        with self._kept():
            mine = Trial(self._study, trial._trial_id)
            for number, seconds in enumerate(steps):
                if number not in trial.intermediate_values:
                    mine.report(seconds, number)
            return self._pruner.reason(self._study, self._study.trials[trial.number])

    def ended(self, state: RunState) -> None:
        """End the trial of a run: complete, pruned or failed."""
        trial, result = self.trial_of(state), state.result
        if trial is None or result is None or trial.state.is_finished():
            return
        with self._kept():
            mine = Trial(self._study, trial._trial_id)
            limit_gib = self._candidates.rows[state.run.strategy].memory_limit_gib
            peak_gib = state.run.predicted_peak_gib if result.peak_gib is None else result.peak_gib
            excess = 1.0 if result.status == "oom" else min(peak_gib - limit_gib, 0.0)
            record(mine, self._facts(state, result), {MEMORY: excess})
            if not result.measured or result.step_s is None:
                self._study.tell(trial.number, state=TrialState.FAIL)
            elif result.status == "stopped":
                self._study.tell(trial.number, state=TrialState.PRUNED)
            else:
                self._study.tell(trial.number, result.step_s)

    def _facts(self, state: RunState, result: RunResult) -> dict[str, Any]:
        """Return the measurements of a run as attributes."""
        facts: dict[str, Any] = {"outcome": result.status, "text": result.text, "seconds": result.seconds}
        if result.peak_gib is not None:
            facts["measured_peak_gib"] = result.peak_gib
        if result.measured and result.step_s is not None:
            work, row = self._candidates.setting.context.workload, self._candidates.rows[state.run.strategy]
            facts["measured_tokens_per_s"] = work.global_batch * work.seq_len / result.step_s
            facts["measured_mfu"] = row.mfu * row.step_time_s / result.step_s
        return facts

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Silence Optuna, and name the file in errors of the disk."""
        with quiet(), storage(self._path, kept="; continue with --resume"):
            yield
