"""Base of Optuna samplers that choose a strategy for each trial and derive its parameters."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial


class ChosenSampler(BaseSampler):
    """Sampler whose parameters come from a chosen strategy, or are random if it has none.

    Parameters
    ----------
    seed
        Seed of random parameters.
    """

    def __init__(self, seed: int) -> None:
        self._random = RandomSampler(seed=seed)

    @abstractmethod
    def chosen(self, study: Study, trial: FrozenTrial) -> Mapping[str, Any]:
        """Return the parameters of the strategy of a trial."""

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
        """Return the choice of the trial's strategy, or a random one if the distribution lacks it."""
        values = self.chosen(study, trial)
        if param_name in values:
            try:
                if param_distribution._contains(param_distribution.to_internal_repr(values[param_name])):
                    return values[param_name]
            except ValueError:  # not among the choices
                pass
        return self._random.sample_independent(study, trial, param_name, param_distribution)
