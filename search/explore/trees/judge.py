"""Judgement of variations by the laws of trees, by memory, and at the event level, each once.

A tree has no software settings: it uses the switches of its flat strategy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from forerun.search.request.scorer import Scorer
from forerun.simulator import score
from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.core.score import corrected
from forerun.simulator.events import StepCosts
from forerun.simulator.events.step.rescore import event_row
from forerun.simulator.events.step.steady import step_figures
from forerun.simulator.events.trees import rough_step_s
from forerun.simulator.score_table import Floats, ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Recompute, Software, Strategy, StrategyTable, table_of
from forerun.spaces.strategies.software import running
from forerun.spaces.trees import TreeError, TreeStrategies, legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.laws import Broken
from forerun.spaces.trees.vary import Variation, layers_of, varied_tree

TURNS = 8
"""Rounds of adding recomputed layers before a tree counts as infeasible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalTree:
    """A legal variation and its assignment."""

    variation: Variation
    strategies: TreeStrategies
    assignment: Assignment

    def peaks_bytes(self) -> Floats:
        """Return the peak memory of every pipeline rank, by closed forms."""
        return stage_memory(self.assignment).peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingTree(LegalTree):
    """A variation that fits by the closed forms, with the recomputed layers that this needs, and its costs.

    ``rough_s``: rough step time (``rough_step_s``).
    """

    costs: StepCosts
    rough_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A variation that fits at the event level, and its scores (one row)."""

    variation: Variation
    strategies: TreeStrategies
    scores: ScoreTable

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return float(self.scores.step_time_s[0])


@dataclass(frozen=True, slots=True)
class WithoutHosted:
    """A scorer whose peak excludes tensors that may be on the host; it can be sent to workers."""

    score: Scorer

    def __call__(self, context: Context, table: StrategyTable) -> ScoreTable:
        scores = self.score(context, table)
        away = sum(scores.memory_bytes[part] for part in context.framework.host_tensors)
        peak = scores.peak_memory_bytes - away
        return replace(scores, peak_memory_bytes=peak, fits=peak <= scores.limits(context))


@dataclass(slots=True)
class Judge:
    """Judge of variations, each once; ``judged`` and ``simulated`` are counts, ``seen`` is a callback per judgement."""

    context: Context
    seen: Callable[[], None] | None = None
    judged: int = 0
    simulated: int = 0
    fitted: dict[Variation, FittingTree | None] = field(default_factory=dict)
    leanest: dict[Variation, Floats | None] = field(default_factory=dict)
    broken: dict[Software, Broken] = field(default_factory=dict)
    parts_s: dict[Strategy, Mapping[str, Floats]] = field(default_factory=dict)
    played: dict[Variation, Judged | None] = field(default_factory=dict)

    def flat(self, variation: Variation) -> FittingTree | None:
        """Return a variation unchanged, feasible or not; None if it breaks a law or has no costs."""
        return self._costed(self._legal(variation))

    def fit(self, variation: Variation) -> FittingTree | None:
        """Return a variation with the fewest fully recomputed layers that fit; None if it is illegal or cannot fit."""
        if variation not in self.fitted:
            self.fitted[variation] = self._costed(self._fitting(variation))
        return self.fitted[variation]

    def play(self, fitted: FittingTree) -> Judged | None:
        """Simulate a variation event by event; None if it does not fit."""
        if fitted.variation not in self.played:
            self.played[fitted.variation] = self._played(fitted)
        return self.played[fitted.variation]

    def corrected(self, start: Strategy, scores: ScoreTable) -> ScoreTable:
        """Return the scores of a tree with the calibration's correction of its flat strategy."""
        if self.context.correction is None:
            return scores
        table = table_of([start])
        if start not in self.parts_s:
            self.parts_s[start] = score(replace(self.context, correction=None), table).time_s
        return corrected(self.context, table, scores, self.parts_s[start])

    def _played(self, fitted: FittingTree | None) -> Judged | None:
        for _ in range(TURNS):
            if fitted is None:
                return None
            self.simulated += 1
            scores = event_row(fitted.assignment, step_figures(fitted.costs))
            scores = self.corrected(fitted.variation.strategy, scores)
            if scores.fits[0]:
                return Judged(variation=fitted.variation, strategies=fitted.strategies, scores=scores)
            if _recomputes_all(fitted.variation):
                return None
            # The event level needs a little more memory than the closed forms that chose the layers.
            over = float((scores.peak_memory_bytes - scores.limits(self.context))[0])
            fitted = self._costed(self._more(fitted, fitted.peaks_bytes(), {int(scores.peak_stage[0]): over}))
        return None

    def _legal(self, variation: Variation) -> LegalTree | None:
        self.judged += 1
        if self.seen is not None:
            self.seen()
        software = variation.strategy.software
        context, broken = running(self.context, software), self.broken.setdefault(software, {})
        try:
            root = varied_tree(context, variation)
            strategies = legal_tree(context, resolve_tree(root, model_layers(context.model)), broken)
        except TreeError:
            return None
        assignment = assign_tree(context, strategies)
        return LegalTree(variation=variation, strategies=strategies, assignment=assignment)

    def _costed(self, tree: LegalTree | None) -> FittingTree | None:
        if tree is None:
            return None
        try:
            costs = step_costs(tree.assignment)
        except RequestError:  # no rule for an operator, link or precision: flat rows report the error
            return None
        return FittingTree(
            variation=tree.variation,
            strategies=tree.strategies,
            assignment=tree.assignment,
            costs=costs,
            rough_s=rough_step_s(costs),
        )

    def _fitting(self, variation: Variation) -> LegalTree | None:
        tree = self._legal(variation)
        for _ in range(TURNS):
            if tree is None:
                return None
            peaks = tree.peaks_bytes()
            over = peaks - self.context.memory_limit_bytes
            if np.all(over <= 0):
                # A module without recompute is omitted.
                nothing = replace(tree.variation, recomputed=(), module="")
                return tree if any(tree.variation.recomputed) else replace(tree, variation=nothing)
            if _recomputes_all(variation):
                return None
            tree = self._more(tree, peaks, {int(stage): float(over[stage]) for stage in np.flatnonzero(over > 0)})
        return None

    def _more(self, tree: LegalTree, peaks: Floats, over: dict[int, float]) -> LegalTree | None:
        """Return a variation with more recomputed layers on pipeline ranks that exceed memory by ``over`` bytes at
        their ``peaks``; None without more layers.
        """
        variation = tree.variation
        most = [len(layers_of(stage)) for stage in varied_tree(self.context, variation).children]
        now = list(variation.recomputed or [0] * len(most))
        least = self._least_peaks(replace(variation, recomputed=tuple(most)))
        if least is None:
            return None
        for device, bytes_over in over.items():
            chunks = [chunk for chunk, rank in enumerate(tree.strategies.tree.rank_of_stage) if rank == device]
            left = sum(most[chunk] - now[chunk] for chunk in chunks)
            freed = float(peaks[device] - least[device])
            if freed < bytes_over:
                return None
            for _ in range(min(max(math.ceil(bytes_over / freed * left), 1), left)):
                # The virtual stage with the fewest recomputed layers; among equal ones the first, which keeps most.
                now[min((c for c in chunks if now[c] < most[c]), key=lambda c: now[c])] += 1
        return self._legal(replace(variation, recomputed=tuple(now)))

    def _least_peaks(self, every: Variation) -> Floats | None:
        """Return the peaks of a variation with every layer recomputed, None if it breaks a law."""
        if every not in self.leanest:
            tree = self._legal(every)
            self.leanest[every] = None if tree is None else tree.peaks_bytes()
        return self.leanest[every]


def _recomputes_all(variation: Variation) -> bool:
    kind = variation.strategy.recompute if variation.recompute is None else variation.recompute
    return kind == Recompute.FULL
