"""The space of strategies with different stages; only small ones can be enumerated.

A candidate is a flat strategy, or one without virtual stages in which layers per stage are explicit, stages differ in
recompute or offload, or the second half has another tp. If every boundary between stages may move by ``reach`` layers,
a pipeline of 16 stages alone has up to (2*reach+1)^15 candidates; with a free choice of recompute per stage, at least
3^16 times as many.

A candidate is built by questions: ``choose(name, choices)`` is called for every axis that is active under the earlier
answers, in a fixed order and with fixed choices. Random numbers, Optuna and enumeration are sources of answers.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.errors import RequestError
from forerun.spaces.schedules.catalogue import schedule_of, virtual
from forerun.spaces.strategies.axes import ALL_REPLICAS, AXES, CHOSEN, Recompute, Schedule, Software, Split
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.questions import Choose, ask, batched, every
from forerun.spaces.strategies.rules import RULES
from forerun.spaces.strategies.software import SettledBy, settled_by, switches_of, with_switches
from forerun.spaces.strategies.space import StrategySpace
from forerun.spaces.strategies.stage_choices import StageChoices, StageRecompute, recompute_fields
from forerun.spaces.strategies.stage_laws import (
    flat_half,
    halves_fit,
    of_whole_stages,
    offloadable,
    stage_counts,
    stage_layers_broken,
    unsound_kinds,
)
from forerun.spaces.strategies.stage_offload import EIGHTHS, StageOffload, offload_of
from forerun.spaces.strategies.staged_size import staged_size
from forerun.spaces.strategies.stages import splits_by_layers
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import COLUMNS, CUSTOM_SPLIT, IntArray, axis_values, strategy_of, table_of

AT_ONCE = 4096
"""Candidates whose legality is checked together in an enumeration."""
_DROPPED = ("sp", "zero", "shard", "placement")
"""Axes that may have no effect in one half of the stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSpace:
    """All candidates of ``flat``, and those with different stages.

    Raises:
        RequestError: ``reach`` is negative.
    """

    flat: StrategySpace
    reach: int = 4
    """Layers by which a boundary between two stages may differ from its even place; 0: only by rule."""
    recompute: bool = False
    """Whether every stage may have any flat choice, and full recompute of some layers if the framework has it."""
    halves: bool = False
    """Whether the second half of the stages may have another tp."""
    offload: bool = False
    """Whether every stage may keep shares of optimizer states and activations on the host, if the framework can."""
    _switches: dict[SettledBy, Software | None] = field(default_factory=dict, compare=False, repr=False)
    """Cached switches that a search turns on, by the values that determine them."""

    def __post_init__(self) -> None:
        if self.reach < 0:
            raise RequestError(f"reach must be at least 0, but got {self.reach}")

    @property
    def context(self) -> Context:
        """The context of all strategies."""
        return self.flat.context

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.context.model.layer_count

    @property
    def partial(self) -> bool:
        """Whether a stage may recompute some of its layers."""
        legality = self.context.framework.legality
        return self.recompute and legality.recompute_layers and Recompute.FULL in self.flat.choices["recompute"]

    @property
    def kinds(self) -> tuple[int, ...]:
        """Choices of recompute of a single stage: nothing, the attention core or all layers.

        Modules are equal on all stages, unless the space has nothing else.
        """
        choices = self.flat.choices["recompute"]
        return tuple(kind for kind in choices if kind <= Recompute.FULL) or choices

    @property
    def hosted(self) -> tuple[range, range]:
        """Shares of optimizer states, and of activations, that a stage may keep on the host, in ``EIGHTHS``."""
        able = offloadable(self.context) if self.offload else StageOffload()
        states, activations = (range(EIGHTHS + 1 if can else 1) for can in able)
        return states, activations

    @property
    def size(self) -> int:
        """Number of candidates, including illegal ones; exact at any size.

        The exceptions are strategies with two names under per-stage recompute (equal on all stages).
        """
        return staged_size(self)

    def places(self, boundary: int, pp: int) -> range:
        """Return the possible numbers of layers before a boundary between stages; 0 and ``pp`` are the model's ends."""
        if boundary in (0, pp):
            return range(boundary * self.layers // pp, boundary * self.layers // pp + 1)
        even = self._even(boundary, pp)
        return range(max(1, even - self.reach), min(self.layers - 1, even + self.reach) + 1)

    def _even(self, boundary: int, pp: int) -> int:
        return boundary * self.layers // pp

    def build(self, choose: Choose) -> Strategy | None:
        """Return the candidate for the answers of ``choose``, or None for impossible answers.

        Impossible are degrees that do not divide the devices, and a stage without layers. The candidate may break other
        laws.
        """
        # A question without effect under the earlier answers is not asked (schedules of one stage, sharding over one
        # replica), so every candidate has one list of answers and an enumeration of all lists (``every``) finds it
        # once.
        flat, value = self.flat.choices, dict[str, int]()
        for axis in ("gpus", "pp", "tp", "cp", "ep", "etp", "mbs"):
            value[axis] = ask(choose, axis, flat[axis])
        dp, rest = divmod(value["gpus"], value["pp"] * value["tp"] * value["cp"])
        piped = value["pp"] > 1
        value["schedule"] = ask(choose, "schedule", flat["schedule"]) if piped else int(Schedule.ONE_F_ONE_B)
        value["vpp"] = self._virtual_stages(choose, value["schedule"])
        value["zero"] = ask(choose, "zero", flat["zero"]) if dp * value["cp"] > 1 else 0
        staged = piped and schedule_of(value["schedule"]).whole_stages
        second_tp = ask(choose, "second_tp", flat["tp"]) if staged and self.halves else value["tp"]
        partial = value["zero"] and second_tp == value["tp"]
        value["shard"] = ask(choose, "shard", flat["shard"]) if partial else ALL_REPLICAS
        value["sp"] = ask(choose, "sp", flat["sp"]) if max(value["tp"], second_tp) > 1 else 0
        value["placement"] = ask(choose, "placement", flat["placement"]) if piped and dp > 1 else 0
        # 1: every stage has its own answer, in _entries.
        each = staged and self.recompute and choose("recompute_per_stage", (0, 1))
        value["recompute"] = int(Recompute.NONE) if each else ask(choose, "recompute", flat["recompute"])
        without_layers = each or value["recompute"] != Recompute.FULL
        value["recompute_layers"] = 0 if without_layers else ask(choose, "recompute_layers", flat["recompute_layers"])
        free = piped and self.reach > 0 and not virtual(value["schedule"])
        splits = (*flat["split"], CUSTOM_SPLIT) if self.reach else flat["split"]
        value["split"] = ask(choose, "split", splits) if piped else int(Split.EVEN)
        layers: tuple[int, ...] | None = None
        if value["split"] == CUSTOM_SPLIT:
            layers = self._layers(choose, value["pp"]) if free else None
            if layers is None:
                return None
        entries = self._entries(choose, value["pp"]) if each else None
        hosted = self._offloads(choose, value["pp"]) if self.offload and (staged or not piped) else None
        if rest or (second_tp != value["tp"] and not halves_fit(value, dp, second_tp)):
            return None
        other = second_tp if second_tp != value["tp"] else None
        strategy = strategy_of(
            {**value, "dp": dp, "software": CHOSEN},
            layers,
            StageChoices(second_tp=other, recompute=entries, offload=hosted),
        )
        built = self.canonical(strategy)
        if not built.switches:
            return built
        chosen = ask(choose, "switches", [some for some in flat["switches"] if not some & ~built.switches] or [0])
        return dataclasses.replace(built, software=(built.software & ~CHOSEN) | Software(chosen))

    def _entries(self, choose: Choose, pp: int) -> tuple[StageRecompute, ...]:
        """Ask for the recompute of every stage; with CUSTOM_SPLIT, of a number of its layers."""
        kinds = (*self.kinds, *((CUSTOM_SPLIT,) if self.partial else ()))
        entries = []
        for stage in range(pp):
            kind = ask(choose, f"recompute_{stage}", kinds)
            if kind == CUSTOM_SPLIT:
                most = -(-self.layers // pp) + 2 * self.reach
                entries.append(
                    StageRecompute(Recompute.FULL, choose(f"recomputed_{stage}_of_{pp}", range(1, most + 1)))
                )
            else:
                entries.append(StageRecompute(Recompute(kind)))
        return tuple(entries)

    def _offloads(self, choose: Choose, pp: int) -> tuple[StageOffload, ...]:
        """Ask for the offload of every stage."""
        names = ("optimizer_offload", "activation_offload")
        shares = [
            [
                ask(choose, f"{name}_{stage}", choices) / EIGHTHS
                for name, choices in zip(names, self.hosted, strict=True)
            ]
            for stage in range(pp)
        ]
        return tuple(StageOffload(*each) for each in shares)

    def _virtual_stages(self, choose: Choose, schedule: int) -> int:
        looped = tuple(vpp for vpp in self.flat.choices["vpp"] if vpp > 1)
        kind = schedule_of(schedule)
        if kind.in_rounds:
            return ask(choose, "vpp", looped) if looped else 1
        return kind.fewest_virtual

    def _layers(self, choose: Choose, pp: int) -> tuple[int, ...] | None:
        shifts = range(-self.reach, self.reach + 1)
        edges = [0]
        for boundary in range(1, pp):
            edges.append(self._even(boundary, pp) + ask(choose, f"boundary_{boundary}", shifts))
        counts = tuple(high - low for low, high in itertools.pairwise([*edges, self.layers]))
        return counts if min(counts) > 0 else None

    def answers(self, strategy: Strategy) -> dict[str, int]:
        """Return the answers that build a candidate of this space."""
        values = axis_values(dataclasses.replace(strategy, stage_recompute=None, second_tp=None))
        answers: dict[str, int] = {}
        shifts: dict[str, int] = {}
        if strategy.layers_per_stage is not None:
            edges = itertools.accumulate(strategy.layers_per_stage[:-1])
            shifts = {f"boundary_{b}": edge - self._even(b, strategy.pp) for b, edge in enumerate(edges, start=1)}
        values = {**values, "second_tp": strategy.second_tp or strategy.tp}
        entries = strategy.stage_recompute
        if strategy.recompute_layers not in self.flat.choices["recompute_layers"]:
            entries = strategy.recompute_entries  # equal on every stage, where only stages can express it
        values["recompute_per_stage"] = int(entries is not None)
        for stage, entry in enumerate(entries or ()):
            shifts[f"recompute_{stage}"] = int(entry.kind) if entry.layers is None else CUSTOM_SPLIT
            shifts[f"recomputed_{stage}_of_{strategy.pp}"] = entry.layers or 0

        def choose(name: str, choices: Sequence[int]) -> int:
            answers[name] = values[name] if name in values else shifts[name]
            return answers[name]

        offloads = strategy.stage_offload or (offload_of(self.context.framework, None),) * strategy.pp
        for stage, offload in enumerate(offloads):
            shifts[f"optimizer_offload_{stage}"] = round(offload.optimizer * EIGHTHS)
            shifts[f"activation_offload_{stage}"] = round(offload.activations * EIGHTHS)
        self.build(choose)
        return answers

    def canonical(self, strategy: Strategy) -> Strategy:
        """Return the canonical name of a candidate.

        The canonical candidate has a split by rule that gives the same layers, one choice of recompute if all stages
        are equal, one tp if both halves are equal, and the switches that a search turns on.
        """
        return self.settled(self._named(strategy))

    def settled(self, strategy: Strategy) -> Strategy:
        """Return a strategy with the switches that a search turns on."""
        by = settled_by(strategy)
        if by not in self._switches:
            self._switches[by] = switches_of(self.context, by)
        return with_switches(strategy, self._switches[by])

    def _named(self, strategy: Strategy) -> Strategy:
        named: dict[str, Any] = {"second_tp": None} if strategy.second_tp == strategy.tp else {}
        if strategy.stage_offload is not None and {*strategy.stage_offload} == {
            offload_of(self.context.framework, None)
        }:
            named["stage_offload"] = None
        if strategy.stage_recompute is not None:
            named |= recompute_fields(strategy.stage_recompute, stage_counts(strategy, self.context))
        layers = strategy.layers_per_stage
        if layers is not None:
            rules = splits_by_layers(self.layers, strategy.pp, self.flat.choices["split"], self.context.head_layers)
            named["split"] = rules.get(layers, Split.EVEN)
            named["layers_per_stage"] = None if layers in rules else layers
        changed = {name: value for name, value in named.items() if getattr(strategy, name) != value}
        return dataclasses.replace(strategy, **changed) if changed else strategy

    def explicit(self, strategy: Strategy) -> Sequence[int] | None:
        """Return the layers of every stage; None for virtual stages."""
        return stage_counts(strategy, self.context) if strategy.pp > 1 else None

    def legal(self, strategies: Sequence[Strategy]) -> NDArray[np.bool_]:
        """Mark the strategies that are legal candidates of this space, shape N."""
        if not strategies:
            return np.zeros(0, dtype=bool)
        firsts = [flat_half(strategy, False) for strategy in strategies]
        columns = self._columns(firsts)
        # Settings without effect in one half are dropped there for the laws, but remain choices of the strategy.
        chosen = columns | {axis: np.array([int(getattr(s, axis)) for s in strategies]) for axis in _DROPPED}
        sound = {*self.kinds} - unsound_kinds(self.kinds, self.context)
        kept = np.array([self._dealt(s) and self._staged(s, sound) for s in strategies], dtype=bool)
        for axis in AXES:
            allowed = (*self.flat.choices[axis], CUSTOM_SPLIT) if axis == "split" else self.flat.choices[axis]
            kept &= np.isin(chosen[axis], allowed)
        kept = self._lawful(columns, kept)
        halves = np.array([row for row, s in enumerate(strategies) if s.second_tp is not None and kept[row]], dtype=int)
        if len(halves):
            second = self._columns([flat_half(strategies[row], True) for row in halves])
            kept[halves] = self._lawful(second, np.isin(second["tp"], self.flat.choices["tp"]))
        return kept

    def _columns(self, strategies: Sequence[Strategy]) -> dict[str, IntArray]:
        """Return the columns for flat laws; explicit layers per stage have a separate split number."""
        custom = [strategy.layers_per_stage is not None for strategy in strategies]
        pairs = zip(strategies, custom, strict=True)
        table = table_of([dataclasses.replace(s, layers_per_stage=None) if named else s for s, named in pairs])
        columns = {axis: table.column(axis) for axis in COLUMNS}
        return columns | {"split": np.where(custom, CUSTOM_SPLIT, columns["split"])}

    def _lawful(self, columns: Mapping[str, IntArray], kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark the rows, among ``kept`` ones, that also satisfy the laws of flat strategies."""
        for rule in RULES:
            rows = np.flatnonzero(kept)
            if len(rows):
                kept[rows] = ~rule.illegal({axis: values[rows] for axis, values in columns.items()}, self.context)
        return kept

    def _staged(self, strategy: Strategy, sound: AbstractSet[int]) -> bool:
        """Check whether stage differences are legal choices of this space; ``sound``: legal kinds of recompute."""
        if strategy.stage_choices is None:
            return True
        if strategy.second_tp is not None and not self.halves:
            return False
        if strategy.stage_recompute is not None and not self.recompute:
            return False
        if strategy.stage_offload is not None and not self._shares_open(strategy.stage_offload):
            return False
        kinds = {int(entry.kind) for entry in strategy.stage_recompute or ()}
        return of_whole_stages(strategy) and kinds <= sound and not stage_layers_broken(strategy, self.context)

    def _shares_open(self, entries: tuple[StageOffload, ...]) -> bool:
        """Check whether shares on the host are choices of this space."""
        columns = zip(zip(*entries, strict=True), self.hosted, strict=True)
        return self.offload and all(
            {share * EIGHTHS for share in shares} <= set(choices) for shares, choices in columns
        )

    def _dealt(self, strategy: Strategy) -> bool:
        """Check that explicit layers are all layers of the model, no stage is empty and no boundary is out of reach."""
        layers = strategy.layers_per_stage
        if layers is None:
            return True
        by_rule = virtual(strategy.schedule) or strategy.vpp > 1
        if by_rule or self.reach == 0 or sum(layers) != self.layers or min(layers) < 1:
            return False
        edges = itertools.accumulate(layers[:-1])
        return all(abs(edge - self._even(b, strategy.pp)) <= self.reach for b, edge in enumerate(edges, start=1))

    def walk(self) -> Iterator[Strategy]:
        """Yield every legal candidate once; only for small spaces."""
        for chunk in batched(self._grow(), AT_ONCE):
            kept = self.legal(chunk)
            yield from itertools.compress(chunk, kept)

    def _grow(self) -> Iterator[Strategy]:
        """Yield every candidate once, legal or not."""
        seen: set[Strategy] = set()
        for strategy in every(self.build):
            if strategy in seen:
                continue
            if strategy.layers_per_stage is None or self.recompute:  # only strategies by rule have two names
                seen.add(strategy)
            yield strategy
