"""The sampler that knows the problem: legal local steps from the best strategies found so far.

A beam holds the best strategies, a few of each family (all that differ in nothing but their layers per stage). Each is
asked for its neighbours, nearest first: one layer moved between two stages (first away from the stage with the fullest
memory), one axis by one choice, then both at once. Where the whole neighbourhood of the beam is known, some members
are kicked by several random steps. Strategies with virtual stages have no layers to move: they are only starts.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from forerun.search.samplers.contract import Evaluation, Sampler
from forerun.spaces.strategies import Placement, Recompute, Schedule, Split, Strategy
from forerun.spaces.strategies.staged_space import StagedSpace

BEAM = 12
"""Strategies whose neighbours are looked at: wide enough for several degrees and recompute choices at once."""
FAMILY = 3
"""Members of one family in the beam: strategies whose slowest stage is the same tie, and would fill it."""
KICK = 4
"""Random steps of a kick at most."""
KICKS = 40
"""Batches of kicks that bring nothing new before the sampler says that it has nothing more to ask."""
KINDS: Mapping[str, Callable[[int], int]] = {
    "schedule": Schedule,
    "recompute": Recompute,
    "placement": Placement,
    "sp": bool,
}


class LocalSampler(Sampler):
    """Beam search over legal local steps."""

    name = "local"

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def begin(self, space: StagedSpace, starts: Sequence[Strategy], objectives: int) -> None:
        """Start with an empty beam and the starts to ask for."""
        self._space, self._starts = space, list(starts)
        self._known: dict[Strategy, Evaluation | None] = {}
        self._beam: list[Strategy] = []
        self._walks: dict[Strategy, Iterator[Strategy]] = {}
        self._asked: list[Strategy] = []
        self._barren = 0

    def ask(self, count: int) -> list[Strategy | None]:
        """Return starts, then neighbours of the beam, then kicks; nothing where kicks bring nothing new."""
        batch: dict[Strategy, None] = {}
        while self._starts and len(batch) < count:
            batch[self._starts.pop(0)] = None
        share = max(1, count // max(1, min(len(self._beam), 4)))
        for strategy in self._beam:
            room = min(share, count - len(batch))
            batch |= dict.fromkeys(itertools.islice(self._fresh(strategy, batch), room))
        if not batch:
            batch = self._kicks(count)
            self._barren += 1
            if not batch or self._barren > KICKS:
                return []
        self._asked = list(batch)
        return list(self._asked)

    def tell(self, evaluations: Sequence[Evaluation | None]) -> None:
        """Take the best into the beam."""
        self._known.update(zip(self._asked, evaluations, strict=True))
        found = [s for s, e in zip(self._asked, evaluations, strict=True) if e is not None and self._movable(s)]
        families: Counter[Strategy] = Counter()
        beam: list[Strategy] = []
        for strategy in sorted({*self._beam, *found}, key=self._order):
            family = dataclasses.replace(strategy, layers_per_stage=None, split=Split.EVEN)
            families[family] += 1
            if families[family] <= FAMILY and len(beam) < BEAM:
                beam.append(strategy)
        if beam and (not self._beam or beam[0] != self._beam[0]):
            self._barren = 0
        self._beam = beam

    def _movable(self, strategy: Strategy) -> bool:
        return self._space.reach == 0 or strategy.vpp == 1

    def _order(self, strategy: Strategy) -> tuple[float | str, ...]:
        evaluation = self._known[strategy]
        assert evaluation is not None  # only what was evaluated is ever in the beam
        return (*evaluation.order, str(strategy))

    def _fresh(self, strategy: Strategy, batch: dict[Strategy, None]) -> Iterator[Strategy]:
        """Go on with the neighbours of a strategy where the last batch stopped."""
        if strategy not in self._walks:
            evaluation = self._known[strategy]
            self._walks[strategy] = self._neighbours(strategy, -1 if evaluation is None else evaluation.stage)
        for neighbour in self._walks[strategy]:
            if neighbour not in self._known and neighbour not in batch:
                yield neighbour

    def _neighbours(self, strategy: Strategy, fullest: int) -> Iterator[Strategy]:
        """Yield neighbours: one step, then two steps of which one changes an axis."""
        likely = 4 * strategy.pp  # from and to the ends and the fullest stage
        turns = list(self.turns(strategy))
        yield from itertools.islice(self.shifts(strategy, fullest), likely)
        yield from turns
        for turned in turns:
            yield from itertools.islice(self.shifts(turned, fullest), likely)
        yield from itertools.islice(self.shifts(strategy, fullest), likely, None)
        for turned in turns:
            yield from self.turns(turned)

    def shifts(self, strategy: Strategy, fullest: int) -> Iterator[Strategy]:
        """Yield strategies with one layer on another stage, from and to the ends and the fullest stage first."""
        layers = self._space.explicit(strategy)
        if layers is None or self._space.reach == 0:
            return
        last = len(layers) - 1
        ends = {0, last, fullest}
        pairs = [(i, j) for i in range(len(layers)) for j in range(len(layers)) if i != j]
        pairs.sort(key=lambda pair: (pair[0] != fullest, -len(ends & set(pair)), abs(pair[0] - pair[1]), pair))
        for giver, taker in pairs:
            if layers[giver] > 1:
                yield self._moved(strategy, layers, giver, taker)

    def _moved(self, strategy: Strategy, layers: Sequence[int], giver: int, taker: int) -> Strategy:
        moved = list(layers)
        moved[giver] -= 1
        moved[taker] += 1
        return self._space.canonical(dataclasses.replace(strategy, layers_per_stage=tuple(moved), split=Split.EVEN))

    def turns(self, strategy: Strategy) -> Iterator[Strategy]:
        """Yield strategies with one axis at its next choice; devices stay, so that dp follows the other degrees."""
        choices = self._space.flat.choices
        for axis in ("recompute", "mbs", "zero", "sp", "placement", "schedule"):
            for value in _beside(choices[axis], int(getattr(strategy, axis))):
                if axis == "schedule" and value in (Schedule.INTERLEAVED, Schedule.ZB_V):
                    continue  # virtual stages: another space, which the starts cover
                kind = KINDS.get(axis, int)
                changed: Any = {axis: kind(value)}
                yield dataclasses.replace(strategy, **changed)
        for axis in ("tp", "pp", "cp"):
            for value in _beside(choices[axis], getattr(strategy, axis)):
                yield from self._resized(strategy, axis, value)

    def _resized(self, strategy: Strategy, axis: str, value: int) -> Iterator[Strategy]:
        """Yield the strategy with another degree: dp makes up for it, or the other of tp and pp."""
        gpus = strategy.devices
        degrees = {"tp": strategy.tp, "pp": strategy.pp, "cp": strategy.cp} | {axis: value}
        variants = [(degrees["tp"], degrees["pp"], degrees["cp"])]
        if axis == "tp" and strategy.tp * strategy.pp % value == 0:
            variants.append((value, strategy.tp * strategy.pp // value, strategy.cp))
        for tp, pp, cp in variants:
            dp, rest = divmod(gpus, tp * pp * cp)
            if rest or not dp:
                continue
            if pp == strategy.pp:
                yield dataclasses.replace(strategy, dp=dp, tp=tp, cp=cp)
                continue
            resized = dataclasses.replace(strategy, dp=dp, tp=tp, pp=pp, cp=cp, layers_per_stage=None)
            for split in self._space.flat.choices["split"]:
                yield dataclasses.replace(resized, split=Split(split))
            if self._space.reach and pp > 1 and resized.vpp == 1:
                even = _even(self._space.layers, pp)
                yield self._space.canonical(dataclasses.replace(resized, split=Split.EVEN, layers_per_stage=even))

    def _kicks(self, count: int) -> dict[Strategy, None]:
        """Return strategies some random steps away from the beam, none of them known."""
        batch: dict[Strategy, None] = {}
        for _ in range(8 * count):
            if not self._beam or len(batch) >= count:
                break
            strategy = self._beam[int(self._random.integers(len(self._beam)))]
            for _ in range(int(self._random.integers(2, KICK + 1))):
                strategy = self._step(strategy)
            if strategy not in self._known:
                batch[strategy] = None
        return batch

    def _step(self, strategy: Strategy) -> Strategy:
        """Return the strategy a random step away."""
        layers = self._space.explicit(strategy)
        if layers is not None and self._space.reach and self._random.random() < 0.7:
            giver, taker = (int(stage) for stage in self._random.choice(len(layers), size=2, replace=False))
            return self._moved(strategy, layers, giver, taker) if layers[giver] > 1 else strategy
        turns = list(self.turns(strategy))
        return turns[int(self._random.integers(len(turns)))] if turns else strategy


def _beside(choices: Sequence[int], value: int) -> list[int]:
    """Return the choices before and after a value, and both neighbours where it is none of them."""
    return [other for other in choices if other != value and _rank(choices, other, value) == 1]


def _rank(choices: Sequence[int], other: int, value: int) -> int:
    low, high = sorted((other, value))
    return sum(low < choice < high for choice in choices) + 1


def _even(layers: int, pp: int) -> tuple[int, ...]:
    return tuple((stage + 1) * layers // pp - stage * layers // pp for stage in range(pp))
