"""The driver of an exploration: ask for a batch, look up known strategies, score the others in one call, tell the
results.

It depends on no sampler, worker or terminal.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.search.explore.flat.exhaustive import interrupted
from forerun.search.explore.samplers.contract import Evaluation, Sampler, StorageFailedError, ranked
from forerun.search.order.objectives import objective_named
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import Scorer
from forerun.simulator import score as simulator_score
from forerun.simulator.score_table import ScoreTable, joined
from forerun.spaces.strategies import Strategy, table_of
from forerun.spaces.strategies.staged_space import StagedSpace

BATCH = 128
"""Strategies asked for at once: a vectorised call of a hundred costs little more than one of ten."""

Seen = Callable[[int, float | None], None]
"""Called with (strategies scored, best value so far) after each batch."""
Improved = Callable[[Strategy, Evaluation, int], None]
"""Called after each improving batch with the best strategy, its evaluation, and the number of scored strategies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConditions:
    """Stop conditions: strategies scored, asked (including known ones), consecutive batches without new scores,
    strategies scored since the last improvement, seconds. Only ``seconds`` makes a result depend on the machine.
    """

    evaluations: int = 20_000
    asked: int = 200_000
    barren: int = 50
    stagnation: int | None = 5_000
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Result of an exploration.

    Attributes
    ----------
    known
        Evaluations of all strategies in the order of their evaluation; None: illegal.
    asked, scored
        Numbers of strategies requested by the sampler, and scored.
    curve
        Number of scored strategies at each improvement, with the best first key.
    stopped
        Reason of the end.
    """

    known: dict[Strategy, Evaluation | None]
    asked: int
    scored: int
    curve: tuple[tuple[int, float], ...]
    stopped: str

    @property
    def feasible(self) -> list[Strategy]:
        """Strategies that fit, best first, ties by their text."""
        fitting = {s: e for s, e in self.known.items() if e is not None and e.fits}
        return ranked(fitting, lambda strategy: fitting[strategy].order)

    def scores(self, strategies: Sequence[Strategy]) -> ScoreTable:
        """Return the scores of evaluated legal strategies (at least one), in the given order."""
        known = [one for strategy in strategies if (one := self.known[strategy]) is not None]
        return joined([one.scores.take(np.array([one.row])) for one in known], np.arange(len(known)))


def explore(
    space: StagedSpace,
    sampler: Sampler,
    *,
    objective: str = "throughput",
    starts: Sequence[Strategy] = (),
    limits: StopConditions | None = None,
    score: Scorer = simulator_score,
    seen: Seen | None = None,
    improved: Improved | None = None,
    slowdown: Mapping[int, float] | None = None,
) -> Exploration:
    """Search the best strategies of a space with a sampler.

    No strategy is scored twice. ``slowdown``: slowdown by interruptions by number of GPUs, which affects ranking but no
    score.

    Raises:
        RequestError: an objective is unknown, or the sampler cannot begin.
        EndedEarly: interrupted, with the result so far.
    """
    run = _Run(space, sampler, objective, limits or StopConditions(), score, improved, slowdown or {})
    return run.run(starts, seen)


@dataclass(slots=True)
class _Run:
    space: StagedSpace
    sampler: Sampler
    objective: str
    limits: StopConditions
    score: Scorer
    improved: Improved | None = None
    slowdown: Mapping[int, float] = field(default_factory=dict)
    known: dict[Strategy, Evaluation | None] = field(default_factory=dict)
    curve: list[tuple[int, float]] = field(default_factory=list)
    best: Evaluation | None = None
    asked: int = 0
    scored: int = 0
    barren: int = 0
    start_s: float = field(default_factory=time.monotonic)

    def run(self, starts: Sequence[Strategy], seen: Seen | None) -> Exploration:
        """Ask and tell until a limit is reached."""
        self.sampler.begin(self.space, starts)
        try:
            # Starts are evaluated regardless of limits, so that no result is worse.
            self._look([*starts, *self.sampler.earlier()])
            while not (stopped := self._stopped()):
                batch = self.sampler.ask(min(BATCH, self.limits.evaluations - self.scored))
                if not batch:
                    stopped = "the sampler has no more proposals"
                    break
                self._look([strategy for strategy in batch if strategy is not None])
                self.asked += len(batch)
                self.sampler.tell(batch, [None if strategy is None else self.known[strategy] for strategy in batch])
                if seen is not None:
                    seen(self.scored, self.curve[-1][1] if self.curve else None)
        except KeyboardInterrupt as stop:
            raise EndedEarly(self._found("it was interrupted"), stop) from None
        except StorageFailedError as failure:
            raise EndedEarly(self._found("its storage failed"), failure) from None
        finally:
            self.sampler.close()
        return self._found(stopped)

    def _found(self, stopped: str) -> Exploration:
        return Exploration(
            known=self.known, asked=self.asked, scored=self.scored, curve=tuple(self.curve), stopped=stopped
        )

    def _stopped(self) -> str:
        """Return the name of a reached limit; empty without one."""
        limits = self.limits
        since = self.scored - (self.curve[-1][0] if self.curve else 0)
        if self.scored >= limits.evaluations:
            return f"{limits.evaluations} strategies were scored"
        if self.asked >= limits.asked:
            return f"{limits.asked} strategies were asked for"
        if self.barren >= limits.barren:
            return f"{limits.barren} batches in a row brought nothing new"
        if limits.stagnation is not None and since >= limits.stagnation:
            return f"{limits.stagnation} strategies brought nothing better"
        if limits.seconds is not None and time.monotonic() - self.start_s >= limits.seconds:
            return f"{limits.seconds:g} s were over"
        return ""

    def _look(self, batch: list[Strategy]) -> None:
        """Evaluate the unknown strategies in one call."""
        new = [strategy for strategy in dict.fromkeys(batch) if strategy not in self.known]
        legal = self.space.legal(new)
        self.known.update(dict.fromkeys(new))
        chosen = [strategy for strategy, keeps in zip(new, legal, strict=True) if keeps]
        self.barren = 0 if chosen else self.barren + 1
        if not chosen:
            return
        best: tuple[Strategy, Evaluation] | None = None
        evaluations = evaluate(self.space, chosen, self.objective, self.score, self.slowdown)
        for strategy, evaluation in zip(chosen, evaluations, strict=True):
            self.known[strategy] = evaluation
            self.scored += 1
            if evaluation.fits and (self.best is None or evaluation.order < self.best.order):
                self.curve.append((self.scored, evaluation.value))
                self.best, best = evaluation, (strategy, evaluation)
        if best is not None and self.improved is not None:
            self.improved(*best, self.scored)


def evaluate(
    space: StagedSpace,
    strategies: Sequence[Strategy],
    objective: str = "throughput",
    score: Scorer = simulator_score,
    slowdown: Mapping[int, float] | None = None,
) -> list[Evaluation]:
    """Return the evaluation of some legal strategies, ranked with ``slowdown``; one vectorised call."""
    table = table_of(strategies)
    scores = score(space.context, table)
    excess = scores.peak_memory_bytes / scores.limits(space.context) - 1.0
    # The excess must agree to the last bit with ``fits``, which compares bytes.
    excess[scores.fits & (excess > 0)] = 0.0
    ranked = interrupted(scores, table, slowdown or {})
    keys = list(zip(*objective_named(objective).keys(space.context, ranked, table), strict=True))
    return [
        Evaluation(
            keys=tuple(float(key) for key in keys[row]),
            excess=float(excess[row]) if scores.fits[row] else max(float(excess[row]), 1e-12),
            stage=int(scores.peak_stage[row]),
            scores=scores,
            row=row,
        )
        for row in range(len(table))
    ]
