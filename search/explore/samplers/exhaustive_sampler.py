"""All legal candidates, one after the other, for small spaces and for tests that need the best."""

import itertools
from collections.abc import Iterator, Sequence

from forerun.search.explore.samplers.contract import Evaluation, Sampler
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.staged_space import StagedSpace


class ExhaustiveSampler(Sampler):
    """Sampler of every candidate once, in canonical order; starts have no precedence."""

    name = "exhaustive"

    def __init__(self) -> None:
        self._left: Iterator[Strategy] = iter(())

    def begin(self, space: StagedSpace, starts: Sequence[Strategy]) -> None:
        """Start at the first candidate."""
        self._left = space.walk()

    def ask(self, count: int) -> list[Strategy | None]:
        """Return the next candidates."""
        return list(itertools.islice(self._left, count))

    def tell(self, strategies: Sequence[Strategy | None], evaluations: Sequence[Evaluation | None]) -> None:
        """Ignore the results."""
