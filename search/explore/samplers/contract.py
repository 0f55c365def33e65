"""The contract of samplers.

The driver calls, in this order: ``begin`` once with the space and strategies to start from; ``earlier`` once; then
alternately ``ask`` for a batch and ``tell`` with its evaluations, in the same order; ``close`` at the end. A sampler
may ask for known strategies (the driver looks them up) and for illegal ones (their result is None). An empty batch ends
the exploration. The same seed and the same answers give the same batches.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from forerun.simulator.score_table import ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.staged_space import StagedSpace


class StorageFailedError(RequestError):
    """The storage of a study fails during an exploration; earlier scores remain valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of one strategy.

    Attributes
    ----------
    keys
        Ranking keys, lower is better, most important first.
    excess
        Peak memory over the limit of the device, minus 1; above zero the strategy does not fit.
    stage
        Stage with that peak.
    scores, row
        Times and memory: a table, and its row.
    """

    keys: tuple[float, ...]
    excess: float
    stage: int
    scores: ScoreTable = field(compare=False, repr=False)
    row: int = field(compare=False)

    @property
    def fits(self) -> bool:
        """Whether the strategy fits into memory."""
        return self.excess <= 0

    @property
    def value(self) -> float:
        """The most important key."""
        return self.keys[0]

    @property
    def order(self) -> tuple[float, ...]:
        """Sort key of evaluations: feasible ones by keys, then others by excess."""
        return (0.0, *self.keys) if self.fits else (1.0, self.excess, *self.keys)


def ranked(strategies: Iterable[Strategy], order: Callable[[Strategy], tuple[float, ...]]) -> list[Strategy]:
    """Return strategies by their order, ties by their text, which is slower to build than to compare."""
    groups = (list(group) for _, group in itertools.groupby(sorted(strategies, key=order), key=order))
    return [one for group in groups for one in (sorted(group, key=str) if len(group) > 1 else group)]


class Sampler(ABC):
    """A chooser of strategies to evaluate; ``name``: its name for users."""

    name: str

    @abstractmethod
    def begin(self, space: StagedSpace, starts: Sequence[Strategy]) -> None:
        """Start with the space; ``starts``: strategies to ask for first, best first. They are canonical and legal."""

    def earlier(self) -> Sequence[Strategy]:
        """Return the best strategies of a continued run, which are scored first and not passed to ``tell``."""
        return ()

    @abstractmethod
    def ask(self, count: int) -> list[Strategy | None]:
        """Return at most ``count`` strategies to evaluate; None for a nonexistent one."""

    @abstractmethod
    def tell(self, strategies: Sequence[Strategy | None], evaluations: Sequence[Evaluation | None]) -> None:
        """Receive the evaluations of a batch; None for illegal or nonexistent strategies."""

    def close(self) -> None:  # noqa: B027  (most samplers hold nothing)
        """Write results to keep."""
