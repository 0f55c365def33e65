"""A sampler that answers every question at random: the measure of all others."""

from collections.abc import Sequence

import numpy as np

from forerun.search.explore.samplers import Evaluation, Sampler
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.staged_space import StagedSpace


class RandomSampler(Sampler):
    """Independent draws; the starts come first."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def begin(self, space: StagedSpace, starts: Sequence[Strategy]) -> None:
        """Keep the starts for the first batches."""
        self._space, self._starts = space, list(starts)

    def ask(self, count: int) -> list[Strategy | None]:
        """Return starts while there are some, then draws."""
        first, self._starts = self._starts[:count], self._starts[count:]
        return [*first, *(self._space.build(self._choose) for _ in range(count - len(first)))]

    def tell(self, strategies: Sequence[Strategy | None], evaluations: Sequence[Evaluation | None]) -> None:
        """Learn nothing."""

    def _choose(self, name: str, choices: Sequence[int]) -> int:
        return choices[int(self._random.integers(len(choices)))]
