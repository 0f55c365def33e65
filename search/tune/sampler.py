"""The chooser of runs as a sampler of Optuna, for studies of a user's own."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from forerun.search.tune.axes import Value, axis_values
from forerun.search.tune.choice import Candidate, Chooser, PredictedRow, RunCost, RunOutcome
from forerun.spaces.errors import RequestError

STRATEGY, OUTCOME = "strategy", "outcome"
"""User attributes of a trial: its strategy, set by the sampler; "oom", set by an objective that ran out of memory."""


class ForerunSampler(BaseSampler):
    """Sampler that starts from predicted step times and learns from measured ones.

    The objective is the measured seconds of a step, to be minimized. Parameters are the axes of the strategies
    (``choices``) in the field's words. A pruned trial counts with the median of its intermediate values; a failed one
    is not run again, and raises the OOM risk of similar strategies where its user attribute ``outcome`` is "oom".

    Parameters
    ----------
    rows
        Rows of a leaderboard among which to choose, or candidates.
    training_s
        Seconds that the training is going to take; the study stops when no run is worth its cost. None: it does not.
    cost
        Cost of a run.
    seed
        Seed for parameters that are no axis of a strategy.

    Raises
    ------
    RequestError
        No row, or the study is not one that minimizes a single value.

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
        options = [row if isinstance(row, Candidate) else Candidate.of_row(row) for row in rows]
        self._chooser = Chooser(options, training_s=training_s, cost=cost)
        values = axis_values([one.strategy for one in options])
        self._values = {one.key: choices for one, choices in zip(options, values, strict=True)}
        self._random = RandomSampler(seed=seed)

    @property
    def choices(self) -> dict[str, tuple[Value, ...]]:
        """Choices of every axis."""
        columns = [list(values.items()) for values in self._values.values()]
        return {items[0][0]: tuple(dict.fromkeys(value for _, value in items)) for items in zip(*columns, strict=True)}

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
        """Choose the strategy of a trial; the study stops after it where no further run is worth its cost."""
        if study.directions != [StudyDirection.MINIMIZE]:
            raise RequestError("forerun's sampler minimizes one value, the seconds of a step")
        outcomes = self._outcomes(study, trial.number)
        choice = self._chooser.next_run(outcomes)
        best = self._chooser.best(outcomes) or self._chooser.candidates[0]
        key = best.key if choice is None else choice.candidate.key
        study._storage.set_trial_user_attr(trial._trial_id, STRATEGY, key)
        if choice is None and study._thread_local.in_optimize_loop:
            study.stop()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Leave all parameters to ``sample_independent``."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Sample no parameter together with others."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the choice of the trial's strategy; at random where the distribution does not have it."""
        attributes = study._storage.get_trial_user_attrs(trial._trial_id)
        values = self._values.get(attributes.get(STRATEGY, ""), {})
        if param_name in values:
            try:
                if param_distribution._contains(param_distribution.to_internal_repr(values[param_name])):
                    return values[param_name]
            except ValueError:  # not among the choices
                pass
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _outcomes(self, study: Study, number: int) -> list[RunOutcome]:
        """Return the results of earlier trials of the study; a running one counts as if it came out as expected."""
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
        """Return the only candidate with some parameters; None where several or none have them."""
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
