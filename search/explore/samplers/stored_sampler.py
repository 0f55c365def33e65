"""A sampler whose legal strategies are kept as trials of an Optuna study, visible in optuna-dashboard."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

from forerun.search.explore.samplers.contract import Evaluation, Sampler, StorageFailedError
from forerun.search.explore.samplers.step_objective import excess_gib, facts_of, parameters_of
from forerun.search.files.studies import MEMORY, STRATEGY, constraints_of, finished, open_storage, quiet, reason
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy, parse_strategy
from forerun.spaces.strategies.staged_space import StagedSpace

STUDY = "forerun"
"""Prefix of study names, followed by a hash of request and space, so that one storage serves many requests."""
METRIC = "ranking_key"
"""Name of the trial values: for throughput, seconds of a step with the price of failed starts and preferences."""
EARLIER = 24
"""Best strategies of a continued study from which the sampler starts."""


class StoredSampler(Sampler):
    """Sampler that records its strategies in a study.

    Parameters
    ----------
    inner
        Sampler that chooses strategies.
    storage
        File (journal) or RDB URL.

    Raises
    ------
    RequestError
        The storage fails, at any time.
    """

    def __init__(self, inner: Sampler, storage: str) -> None:
        self.name, self._inner, self._named = inner.name, inner, storage
        self._storage = open_storage(storage)

    def begin(self, space: StagedSpace, starts: Sequence[Strategy]) -> None:
        """Open the study, and add its best strategies to the starts."""
        import optuna

        self._space = space
        try:
            with quiet():
                self._study = optuna.create_study(
                    storage=self._storage,
                    study_name=study_name(space),
                    load_if_exists=True,
                )
                self._study.set_metric_names([METRIC])
                for name, value in _job(space).items():
                    self._study.set_user_attr(name, value)
                self._earlier = self._best()
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(f"the storage refuses the study: {reason(error, self._named)}") from None
        self._inner.begin(space, tuple(dict.fromkeys((*starts, *self._earlier))))

    def _best(self) -> list[Strategy]:
        """Return the best feasible strategies of the study.

        Raises
        ------
        RequestError
            The value of a trial is not a finite number.
        """
        fitting = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.values is None:
                continue
            if [isinstance(one, int | float) and isfinite(one) for one in trial.values] != [True]:
                raise RequestError(
                    f"trial {trial.number} of the storage has the values {trial.values!r:.60}, but a trial has one "
                    "finite number; is it torn? name another storage"
                )
            if trial.user_attrs.get(STRATEGY) and constraints_of(trial).get(MEMORY, 1.0) <= 0:
                fitting.append((trial.values[0], trial.number, str(trial.user_attrs[STRATEGY])))
        return list(dict.fromkeys(parse_strategy(text) for _, _, text in sorted(fitting)))[:EARLIER]

    def earlier(self) -> Sequence[Strategy]:
        """Return the best strategies of the study so far."""
        return self._earlier

    def ask(self, count: int) -> list[Strategy | None]:
        """Return the choice of the inner sampler."""
        return self._inner.ask(count)

    def tell(self, strategies: Sequence[Strategy | None], evaluations: Sequence[Evaluation | None]) -> None:
        """Store the trials."""
        self._inner.tell(strategies, evaluations)
        with self._kept(), quiet():
            for strategy, evaluation in zip(strategies, evaluations, strict=True):
                if strategy is not None and evaluation is not None:
                    self._study.add_trial(self._trial(strategy, evaluation))

    def _trial(self, strategy: Strategy, evaluation: Evaluation) -> Any:
        """Return the trial of a legal strategy."""
        import optuna

        parameters = parameters_of(self._space, strategy)
        distributions = {
            name: optuna.distributions.IntDistribution(choices[0], choices[-1])
            if isinstance(choices, range)
            else optuna.distributions.CategoricalDistribution(choices)
            for name, (_, choices) in parameters.items()
        }
        return finished(
            facts=facts_of(self._space.context, strategy, evaluation),
            constraints={MEMORY: excess_gib(self._space.context, evaluation)},
            value=evaluation.value,
            params={name: value for name, (value, _) in parameters.items()},
            distributions=distributions,
        )

    def close(self) -> None:
        """Close the sampler."""
        self._inner.close()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Name the storage in its errors.

        Raises
        ------
        StorageFailedError
            The storage fails.
        """
        import optuna

        try:
            yield
        except (OSError, optuna.exceptions.StorageInternalError) as error:
            raise StorageFailedError(f"the storage of the study fails: {reason(error, self._named)}") from None


def _job(space: StagedSpace) -> dict[str, Any]:
    """Return the training of a space as attributes of its study."""
    context, work = space.context, space.context.workload
    return {
        "model": context.model.name,
        "cluster": context.cluster.name,
        "framework": context.framework.name,
        "global_batch": work.global_batch,
        "seq_len": work.seq_len,
        "precision": work.precision,
    }


def study_name(space: StagedSpace) -> str:
    """Return the name of the study of a space: trials of other spaces are not comparable."""
    context = space.context
    free = (space.reach, space.recompute, space.halves, *((space.offload,) if space.offload else ()))
    asked = repr((sorted(space.flat.choices.items()), *free))
    facts = repr((context.model, context.cluster, context.workload, context.framework))
    return f"{STUDY}-{context.model.name}-{hashlib.sha256((asked + facts).encode()).hexdigest()[:12]}"
