"""Local steps between strategies: a layer moved to another stage, another recompute of a stage, another degree.

A step may lead to an illegal strategy, which the driver detects. Steps keep the number of devices: dp follows the other
degrees.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from forerun.spaces.errors import RequestError
from forerun.spaces.schedules.catalogue import schedule_of, virtual
from forerun.spaces.strategies import Placement, Recompute, Schedule, Software, Split, StageRecompute, Strategy
from forerun.spaces.strategies.axes import CHOSEN
from forerun.spaces.strategies.stage_laws import stage_counts
from forerun.spaces.strategies.stage_offload import EIGHTHS, StageOffload
from forerun.spaces.strategies.staged_space import StagedSpace

KINDS: Mapping[str, Callable[[int], int]] = {
    "schedule": Schedule,
    "recompute": Recompute,
    "placement": Placement,
    "sp": bool,
}

Fields = dict[str, Any]
"""Fields of a strategy that a step changes, with their new values."""
Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """All steps within one space. ``fullest`` is the stage with the peak memory of a strategy (-1: not known)."""

    space: StagedSpace
    _turned: dict[Strategy, tuple[Fields, ...]] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """Cache of turns by strategy, since most random steps begin at the same few."""

    def shifts(self, strategy: Strategy, fullest: int) -> Iterator[Strategy]:
        """Yield strategies with one layer moved, first from and to the ends and the fullest stage."""
        layers = self.space.explicit(strategy)
        if layers is None or self.space.reach == 0:
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
        return self.space.canonical(dataclasses.replace(strategy, layers_per_stage=tuple(moved), split=Split.EVEN))

    def recomputes(self, strategy: Strategy, fullest: int) -> Iterator[Strategy]:
        """Yield strategies with one step more or less recompute on one stage: the fullest stage first, then from the
        last stage, which keeps least.
        """
        for changed in self._recomputes(strategy, fullest):
            yield self._recomputing(strategy, changed)

    def _recomputing(self, strategy: Strategy, entries: tuple[StageRecompute, ...]) -> Strategy:
        changed = dataclasses.replace(strategy, stage_recompute=entries, recompute=Recompute.NONE)
        return self.space.canonical(changed)

    def _recomputes(self, strategy: Strategy, fullest: int) -> Iterator[tuple[StageRecompute, ...]]:
        """Yield the recompute settings of all stages after such a step."""
        layers = stage_counts(strategy, self.space.context)
        staged = strategy.pp > 1 and schedule_of(strategy.schedule).whole_stages
        if not self.space.recompute or not staged or layers is None:
            return
        entries = strategy.recompute_entries or (StageRecompute(strategy.recompute),) * strategy.pp
        order = sorted(range(strategy.pp), key=lambda stage: (stage != fullest, -stage))
        kinds, partial = self.space.kinds, self.space.partial
        for stage in order:
            for entry in _other_entries(entries[stage], layers[stage], kinds, partial):
                yield (*entries[:stage], entry, *entries[stage + 1 :])

    def offloads(self, strategy: Strategy, fullest: int) -> Iterator[Strategy]:
        """Yield strategies with an eighth less or more of optimizer states or activations of one stage on the host: the
        fullest stage first, then from the first stage, which keeps most.
        """
        if not self.space.offload or strategy.vpp > 1 or not schedule_of(strategy.schedule).whole_stages:
            return
        entries = strategy.stage_offload or (StageOffload(),) * strategy.pp
        for stage in sorted(range(strategy.pp), key=lambda stage: (stage != fullest, stage)):
            for name, hosted in zip(StageOffload._fields, self.space.hosted, strict=True):
                for eighths in adjacent(hosted, round(getattr(entries[stage], name) * EIGHTHS)):
                    changed = entries[stage]._replace(**{name: eighths / EIGHTHS})
                    changed_entries = (*entries[:stage], changed, *entries[stage + 1 :])
                    yield self.space.canonical(dataclasses.replace(strategy, stage_offload=changed_entries))

    def turns(self, strategy: Strategy) -> Iterator[Strategy]:
        """Yield strategies with one axis at its next choice, with the switches that a search turns on."""
        for fields in self._turns(strategy):
            yield self._turned_by(strategy, fields)

    def halves(self, strategy: Strategy) -> Iterator[Strategy]:
        """Yield strategies with the next tp on the second half of the stages."""
        for fields in self._halves(strategy):
            yield dataclasses.replace(strategy, **fields)

    def _turned_by(self, strategy: Strategy, fields: Fields) -> Strategy:
        turned = dataclasses.replace(strategy, **fields)
        return self.space.canonical(turned) if fields.get("layers_per_stage") else self.space.settled(turned)

    def _turns(self, strategy: Strategy) -> Iterator[Fields]:
        """Yield the changed fields of each move, so that a random walk builds only the chosen strategy."""
        choices = self.space.flat.choices
        for axis in ("recompute", "mbs", "zero", "shard", "sp", "placement", "schedule"):
            for value in adjacent(choices[axis], int(getattr(strategy, axis))):
                if axis == "schedule" and virtual(value):
                    continue  # virtual stages are covered by the starts
                changed: Fields = {axis: KINDS.get(axis, int)(value)}
                alone: Fields = {"stage_recompute": None, "recompute_layers": 0} if axis == "recompute" else {}
                yield from _valid(strategy, changed | alone)
        for value in adjacent(choices["switches"], int(strategy.switches)):
            yield {"software": (strategy.software & ~CHOSEN) | Software(value)}
        for axis in ("tp", "pp", "cp"):
            for value in adjacent(choices[axis], getattr(strategy, axis)):
                yield from self._resized(strategy, axis, value)
        yield from self._halves(strategy)

    def _halves(self, strategy: Strategy) -> Iterator[Fields]:
        if not self.space.halves or strategy.pp == 1 or not schedule_of(strategy.schedule).whole_stages:
            return
        for value in adjacent(self.space.flat.choices["tp"], strategy.second_tp or strategy.tp):
            yield from _valid(strategy, {"second_tp": None if value == strategy.tp else value})

    def _resized(self, strategy: Strategy, axis: str, value: int) -> Iterator[Fields]:
        """Yield the fields changed by another degree, compensated by dp or by the other of tp and pp."""
        gpus = strategy.devices
        degrees = {"tp": strategy.tp, "pp": strategy.pp, "cp": strategy.cp} | {axis: value}
        variants = [(degrees["tp"], degrees["pp"], degrees["cp"])]
        if axis == "tp" and strategy.tp * strategy.pp % value == 0:
            variants.append((value, strategy.tp * strategy.pp // value, strategy.cp))
        for tp, pp, cp in variants:
            dp, rest = divmod(gpus, tp * pp * cp)
            if rest or not dp:
                continue
            second = strategy.second_tp if pp > 1 and strategy.second_tp != tp else None
            fields: Fields = {"dp": dp, "tp": tp, "cp": cp, "second_tp": second}
            if pp == strategy.pp:
                yield from _valid(strategy, fields)
                continue
            fields |= {"pp": pp, "layers_per_stage": None, "stage_recompute": None, "stage_offload": None}
            for resized in _valid(strategy, fields):
                for split in self.space.flat.choices["split"]:
                    yield resized | {"split": Split(split)}
                if self.space.reach and pp > 1 and strategy.vpp == 1:
                    yield resized | {"split": Split.EVEN, "layers_per_stage": _even(self.space.layers, pp)}

    def random(self, strategy: Strategy, random: "np.random.Generator") -> Strategy:
        """Return the strategy a random step away; the same strategy if the step is impossible."""
        layers = self.space.explicit(strategy)
        drawn = random.random()
        # Only the chosen step gets its canonical form and switches.
        if layers is not None and self.space.reach and drawn < 0.7:
            if self.space.recompute and drawn < 0.25:
                changed = _one_of(list(self._recomputes(strategy, -1)), random, None)
                return self.space.canonical(strategy) if changed is None else self._recomputing(strategy, changed)
            giver, taker = (int(stage) for stage in random.choice(len(layers), size=2, replace=False))
            return self._moved(strategy, layers, giver, taker) if layers[giver] > 1 else strategy
        if strategy not in self._turned:
            self._turned[strategy] = tuple(self._turns(strategy))
        return self._turned_by(strategy, _one_of(self._turned[strategy], random, {}))


@lru_cache(maxsize=4096)
def _other_entries(
    entry: StageRecompute, layers: int, kinds: tuple[int, ...], partial: bool
) -> tuple[StageRecompute, ...]:
    """Return the choices of recompute one step from the present one of a stage with ``layers`` layers."""
    entries = [StageRecompute(Recompute(kind)) for kind in kinds if (kind, None) != entry]
    if partial:
        recomputed = entry.layers if entry.layers is not None else layers * (entry.kind == Recompute.FULL)
        entries += [
            StageRecompute(Recompute.FULL, count) for count in (recomputed + 1, recomputed - 1) if 0 < count < layers
        ]
    return tuple(entries)


@lru_cache(maxsize=4096)
def adjacent(choices: tuple[int, ...], value: int) -> tuple[int, ...]:
    """Return the choices before and after a value, and both neighbours of a value between choices."""
    return tuple(other for other in choices if other != value and _rank(choices, other, value) == 1)


def _rank(choices: Sequence[int], other: int, value: int) -> int:
    low, high = sorted((other, value))
    return sum(low < choice < high for choice in choices) + 1


def _even(layers: int, pp: int) -> tuple[int, ...]:
    return tuple((stage + 1) * layers // pp - stage * layers // pp for stage in range(pp))


def _one_of(options: Sequence[Value], random: "np.random.Generator", otherwise: Other) -> Value | Other:
    return options[int(random.integers(len(options)))] if options else otherwise


def _valid(strategy: Strategy, fields: Fields) -> Iterator[Fields]:
    """Yield the changed fields; nothing if the halves of the strategy then do not match."""
    second_tp = fields.get("second_tp", strategy.second_tp)
    if second_tp is not None:
        try:
            dataclasses.replace(strategy, **fields)
        except RequestError:
            return
    yield fields
