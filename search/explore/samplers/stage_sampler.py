"""The planner and the local search as a sampler of Optuna, for user studies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from forerun.search.explore.samplers.local_sampler import LocalSampler
from forerun.search.explore.samplers.step_objective import StepObjective, Word, parameters_of, strategy_of
from forerun.search.files.chosen_sampler import ChosenSampler
from forerun.spaces.strategies import Strategy


class StageSampler(ChosenSampler):
    """Sampler that plans stages by dynamic programming, then takes local steps from the best trials.

    The value of a trial is a step in seconds, predicted or measured. A failed trial counts as infeasible. The study
    stops when no strategy is left to try.

    Parameters
    ----------
    objective
        Space and the predictions of its steps.
    starts
        Strategies to begin with, best first.
    seed
        Seed of its random steps.

    Examples
    --------
    >>> import optuna
    >>> from forerun.search import Exploring, Request, resolve
    >>> request = Request(model="llama3-8b", cluster="dgx-a100-40", gpus="16", global_batch=64, seq_len=8192)
    >>> objective = StepObjective(Exploring(per_stage=("layers", "recompute")).space(resolve(request).space()))
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=StageSampler(objective))
    >>> study.optimize(objective, n_trials=5)
    >>> "pp" in study.best_trial.user_attrs["strategy"]
    True
    """

    def __init__(self, objective: StepObjective, *, starts: Sequence[Strategy] = (), seed: int = 0) -> None:
        self._objective, self._space = objective, objective.space
        super().__init__(seed)
        self._inner = LocalSampler(seed)
        self._inner.begin(self._space, starts)
        self._asked: dict[int, dict[str, Word]] = {}
        self._continued = False

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Choose the strategy of a trial; the study stops after the last strategy."""
        if not self._continued:
            self._continued = True
            for earlier in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL)):
                self._learn(earlier, earlier.values)
        while strategies := self._inner.ask(1):
            strategy = strategies[0]
            if strategy is None or self._objective.of(strategy) is None:
                self._inner.tell(strategies, [None])  # breaks a law: no trial
                continue
            parameters = parameters_of(self._space, strategy)
            self._asked[trial.number] = {name: value for name, (value, _) in parameters.items()}
            return
        if study._thread_local.in_optimize_loop:
            study.stop()

    def chosen(self, study: Study, trial: FrozenTrial) -> Mapping[str, Word]:
        """Return the parameters of the strategy of a trial."""
        return self._asked.get(trial.number, {})

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Pass the result of a trial to the sampler."""
        self._asked.pop(trial.number, None)
        self._learn(trial, values)

    def _learn(self, trial: FrozenTrial, values: Sequence[float] | None) -> None:
        strategy = strategy_of(self._space, trial.params)
        if strategy is None:
            return
        evaluation = self._objective.of(strategy)
        if evaluation is not None and values is None:
            evaluation = replace(evaluation, excess=max(evaluation.excess, 1e-12))
        elif evaluation is not None and values is not None:
            evaluation = replace(evaluation, keys=(values[0], *evaluation.keys[1:]))
        self._inner.tell([strategy], [evaluation])
