"""The chooser of runs as a sampler of Optuna, for user studies."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from forerun.search.files.chosen_sampler import ChosenSampler
from forerun.search.files.studies import STRATEGY
from forerun.search.tune.axes import Value, axis_values, choices_of
from forerun.search.tune.choice import Candidate, Chooser, PredictedRow, RunCost, RunOutcome
from forerun.spaces.errors import RequestError

OUTCOME = "outcome"
"""User attribute of a trial: "oom", set by an objective that ran out of memory."""


class ForerunSampler(ChosenSampler):
    """Sampler that starts with predicted step times and learns from measured ones.

    The objective is the measured seconds of a step, to be minimized. Parameters are the axes of the strategies
    (``choices``) in the terms of the glossary. A pruned trial counts with the median of its intermediate values; a
    failed trial is not repeated, and raises the OOM risk of similar strategies if its user attribute ``outcome`` is
    "oom".

    Parameters
    ----------
    rows
        Rows of a leaderboard among which to choose, or candidates.
    training_s
        Duration of the training in s; the study stops when no run is worth its cost. None: the study does not stop.
    cost
        Cost of a run.
    seed
        Seed for parameters that are not an axis of a strategy.

    Raises
    ------
    RequestError
        No row, or the study does not minimize a single value.

    Examples
    --------
    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> rows = [Candidate(key=text, strategy=text, step_s=s) for text, s in (("tp2 dp4", 1.0), ("dp8", 1.1))]
    >>> sampler = ForerunSampler(rows)
    >>> study = optuna.create_study(sampler=sampler)
    >>> study.optimize(lambda trial: {"tp2 dp4": 1.4, "dp8": 1.0}[sampler.suggest(trial).strategy], n_trials=2)
    >>> study.best_trial.user_attrs["strategy"]
    'dp8'
    """

    def __init__(
        self,
        rows: Sequence[PredictedRow | Candidate],
        *,
        training_s: float | None = None,
        cost: RunCost | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        options = [row if isinstance(row, Candidate) else Candidate.of_row(row) for row in rows]
        self._chooser = Chooser(options, training_s=training_s, cost=cost)
        values = axis_values([one.strategy for one in options])
        self._values = {one.key: choices for one, choices in zip(options, values, strict=True)}

    @property
    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Choices of every axis."""
        return choices_of(list(self._values.values()))

    def suggest(self, trial: Trial) -> Candidate:
        """Suggest all axes of a trial.

        Parameters
        ----------
        trial
            Trial of a study with this sampler.

        Returns
        -------
        Candidate
            The strategy to run.
        """
        for name, values in self.choices.items():
            trial.suggest_categorical(name, values)
        key = self._key_of(trial.params)
        stored = trial.study._storage.get_trial_user_attrs(trial._trial_id)
        return self._chooser[key or stored[STRATEGY]]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Choose the strategy of a trial; the study stops after it if no further run is worth its cost."""
        if study.directions != [StudyDirection.MINIMIZE]:
            raise RequestError("forerun's sampler minimizes one value, the seconds of a step")
        outcomes = self._outcomes(study, trial.number)
        choice = self._chooser.next_run(outcomes)
        best = self._chooser.best(outcomes) or self._chooser.candidates[0]
        key = best.key if choice is None else choice.candidate.key
        study._storage.set_trial_user_attr(trial._trial_id, STRATEGY, key)
        if choice is None and study._thread_local.in_optimize_loop:
            study.stop()

    def chosen(self, study: Study, trial: FrozenTrial) -> Mapping[str, Value]:
        """Return the axes of the strategy of a trial."""
        attributes = study._storage.get_trial_user_attrs(trial._trial_id)
        return self._values.get(attributes.get(STRATEGY, ""), {})

    def _outcomes(self, study: Study, number: int) -> list[RunOutcome]:
        """Return the results of earlier trials of the study; a running trial counts with its expected result."""
        outcomes, running = dict[str, RunOutcome](), list[str]()
        for trial in study.get_trials(deepcopy=False):
            key = self._key_of(trial.params) or trial.user_attrs.get(STRATEGY)
            if trial.number == number or key not in self._values:
                continue
            if trial.state == TrialState.RUNNING:
                running.append(key)
            elif trial.state.is_finished() and (key not in outcomes or outcomes[key].step_s is None):
                outcomes[key] = _outcome(key, trial)
        over = list(outcomes.values())
        return over + [self._chooser.as_expected(key, over) for key in dict.fromkeys(running) if key not in outcomes]

    def _key_of(self, parameters: dict[str, Any]) -> str | None:
        """Return the unique candidate with some parameters; None if no or several candidates have them."""
        named = {name: value for name, value in parameters.items() if name in next(iter(self._values.values()))}
        keys = [key for key, values in self._values.items() if all(values[n] == v for n, v in named.items())]
        return keys[0] if named and len(keys) == 1 else None


def _outcome(key: str, trial: FrozenTrial) -> RunOutcome:
    """Return the result of a finished trial."""
    if trial.state == TrialState.COMPLETE and trial.value is not None and trial.value > 0:
        return RunOutcome(key=key, status="ok", step_s=trial.value)
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return RunOutcome(key=key, status="stopped", step_s=median(trial.intermediate_values.values()))
    return RunOutcome(key=key, status="oom" if trial.user_attrs.get(OUTCOME) == "oom" else "failed")
