"""Problem-specific sampler: plans by dynamic programming, then legal local steps from the best strategies.

Classes of degrees (most promising first) are planned stage by stage until no further class can be better; the best
plans are proposed. A beam keeps the best strategies, a few of each class. The neighbours of each are proposed, nearest
first: one layer moved between two stages (first away from the stage with the fullest memory), another recompute of one
stage, an eighth more or less of its tensors on the host, one axis by one choice, then both at once. Once all neighbours
of the beam are known, some members are changed by several random steps (kicks). Strategies with virtual stages are only
starts.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from forerun.search.explore.samplers.contract import Evaluation, Sampler, ranked
from forerun.search.explore.samplers.degree_classes import DegreeClass, degree_classes
from forerun.search.explore.samplers.moves import Moves
from forerun.search.explore.samplers.planner import PlannedStrategy, Planner
from forerun.spaces.strategies import Recompute, Split, Strategy
from forerun.spaces.strategies.staged_space import StagedSpace

BEAM = 12
"""Size of the beam: wide enough for several degrees and recompute choices at once."""
PER_CLASS = 3
"""Most members of one class in the beam: strategies with the same slowest stage tie, and would fill it."""
KICK = 4
"""Most random steps of a kick."""
KICKS = 40
"""Batches of kicks without new strategies after which the sampler ends."""
PLANNED = 512
"""Classes planned before plans are proposed: 2 to 5 s."""
AT_ONCE = 16
"""Plans proposed at once: later ones are seldom the best."""
SLACK = 1.02
"""Factor over the best plan up to which plans are proposed: plans omit a few per cent of a step."""


class LocalSampler(Sampler):
    """Sampler with plans by dynamic programming and beam search over legal local steps."""

    name = "local"

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def begin(self, space: StagedSpace, starts: Sequence[Strategy]) -> None:
        """Start with an empty beam and the starts to ask for."""
        self._space, self._starts, self._moves = space, list(starts), Moves(space)
        self._known: dict[Strategy, Evaluation | None] = {}
        self._beam: list[Strategy] = []
        self._walks: dict[Strategy, Iterator[Strategy]] = {}
        self._plans = _Plans(space)
        self._barren = 0

    def ask(self, count: int) -> list[Strategy | None]:
        """Return starts, then plans, then neighbours of the beam, then kicks; nothing once kicks give nothing new."""
        batch: dict[Strategy, None] = {}
        while self._starts and len(batch) < count:
            batch[self._starts.pop(0)] = None
        if not batch:
            batch = dict.fromkeys(self._plans.next(min(count, AT_ONCE), self._known))
        if not batch:
            batch = self._steps(count)
        if not batch:
            batch = self._kicks(count)
            self._barren += 1
            if not batch or self._barren > KICKS:
                return []
        return list(batch)

    def tell(self, strategies: Sequence[Strategy | None], evaluations: Sequence[Evaluation | None]) -> None:
        """Update the beam with the best strategies."""
        results = {one: result for one, result in zip(strategies, evaluations, strict=True) if one is not None}
        self._known |= results
        movable = [one for one, result in results.items() if result is not None and self._movable(one)]
        taken: Counter[Strategy] = Counter()
        beam: list[Strategy] = []
        for strategy in ranked({*self._beam, *movable}, self._order):
            degree_class = self._degree_class(strategy)
            taken[degree_class] += 1
            if taken[degree_class] <= PER_CLASS and len(beam) < BEAM:
                beam.append(strategy)
        if beam and (not self._beam or beam[0] != self._beam[0]):
            self._barren = 0
        self._beam = beam

    def _degree_class(self, strategy: Strategy) -> Strategy:
        """Return a strategy without its choices per stage."""
        recompute = Recompute.NONE if self._space.recompute else strategy.recompute
        return dataclasses.replace(
            strategy,
            layers_per_stage=None,
            split=Split.EVEN,
            stage_recompute=None,
            stage_offload=None,
            recompute=recompute,
            recompute_layers=0,
        )

    def _movable(self, strategy: Strategy) -> bool:
        return not (self._space.reach or self._space.recompute or self._space.offload) or strategy.vpp == 1

    def _order(self, strategy: Strategy) -> tuple[float, ...]:
        evaluation = self._known[strategy]
        assert evaluation is not None  # the beam has evaluated strategies only
        return evaluation.order

    def _steps(self, count: int) -> dict[Strategy, None]:
        """Return neighbours of the beam, the best member's first."""
        batch: dict[Strategy, None] = {}
        share = max(1, count // max(1, min(len(self._beam), 4)))
        for strategy in self._beam:
            room = min(share, count - len(batch))
            batch |= dict.fromkeys(itertools.islice(self._fresh(strategy, batch), room))
        return batch

    def _fresh(self, strategy: Strategy, batch: dict[Strategy, None]) -> Iterator[Strategy]:
        """Continue with the neighbours of a strategy after the last batch."""
        if strategy not in self._walks:
            evaluation = self._known[strategy]
            self._walks[strategy] = self._neighbours(strategy, -1 if evaluation is None else evaluation.stage)
        for neighbour in self._walks[strategy]:
            if neighbour not in self._known and neighbour not in batch:
                yield neighbour

    def _neighbours(self, strategy: Strategy, fullest: int) -> Iterator[Strategy]:
        """Yield neighbours: one step, then pairs of steps with a change of an axis or of a stage's recompute."""
        likely = 4 * strategy.pp  # moves from and to the ends and the fullest stage
        moves = self._moves
        turns = list(moves.turns(strategy))
        yield from itertools.islice(moves.offloads(strategy, fullest), likely)
        yield from itertools.islice(moves.recomputes(strategy, fullest), likely)
        yield from itertools.islice(moves.shifts(strategy, fullest), likely)
        yield from turns
        for turned in turns:
            yield from itertools.islice(moves.shifts(turned, fullest), likely)
        yield from itertools.islice(moves.shifts(strategy, fullest), likely, None)
        for changed in moves.recomputes(strategy, fullest):
            yield from itertools.islice(moves.shifts(changed, fullest), likely)
        for turned in turns:
            yield from moves.turns(turned)

    def _kicks(self, count: int) -> dict[Strategy, None]:
        """Return strategies some random steps away from the beam, none of them known."""
        batch: dict[Strategy, None] = {}
        for _ in range(8 * count):
            if not self._beam or len(batch) >= count:
                break
            strategy = self._beam[int(self._random.integers(len(self._beam)))]
            for _ in range(int(self._random.integers(2, KICK + 1))):
                strategy = self._moves.random(strategy, self._random)
            if strategy not in self._known:
                batch[strategy] = None
        return batch


class _Plans:
    """Plans of the classes of degrees of a space, for every number of devices, most promising first."""

    def __init__(self, space: StagedSpace) -> None:
        self.planner = Planner(space)
        free = space.reach or space.recompute or space.halves or space.offload
        self._left: list[DegreeClass] | None = None if free else []
        self._pool: list[tuple[float, str, PlannedStrategy]] = []
        self._best: dict[int, float] = {}

    def next(self, count: int, known: dict[Strategy, Evaluation | None]) -> list[Strategy]:
        """Return the plans to propose; empty after the last."""
        if self._left is None:
            self._left = degree_classes(self.planner.space)[::-1]
        while True:
            self._plan()
            taken: list[Strategy] = []
            while self._pool and len(taken) < count:
                seconds, _, plan = self._pool.pop(0)
                if seconds <= SLACK * self._best[plan.strategy.devices] and plan.strategy not in known:
                    taken.append(plan.strategy)
            if taken or not self._left:
                return list(dict.fromkeys(taken))

    def _plan(self) -> None:
        """Plan classes of degrees that may still have the best plan for their devices."""
        assert self._left is not None  # next() fills it
        planned = 0
        while self._left and planned < PLANNED:
            degree_class = self._left.pop()
            gpus = degree_class.strategy.devices
            if degree_class.least_s >= SLACK * self._best.get(gpus, np.inf):
                continue
            planned += 1
            for plan in self.planner.plans(degree_class.strategy):
                seconds = plan.pipeline_s + degree_class.each_p2p_s
                self._best[gpus] = min(seconds, self._best.get(gpus, np.inf))
                self._pool.append((seconds, str(plan.strategy), plan))
        self._pool.sort(key=lambda each: (each[0] / self._best[each[2].strategy.devices], each[1]))
