"""Starts of an exploration: the best of the flat space, fast strategies that almost fit, and heuristic ones."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forerun.search.explore.flat.exhaustive import Problem, SliceResult
from forerun.search.explore.flat.slicing import search_with
from forerun.search.request.scorer import OnProgress, Scorer, enumeration_progress
from forerun.search.workers import Choice
from forerun.simulator import score as simulator_score
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.schedules.catalogue import virtual
from forerun.spaces.strategies import Context, Recompute, Split, Strategy, StrategySpace, StrategyTable
from forerun.spaces.strategies.software import settled
from forerun.spaces.strategies.space import strategies_at
from forerun.spaces.strategies.staged_space import StagedSpace

MOST_HEURISTIC = 64
"""Most strategies: one call of the simulator."""


def heuristic_starts(space: StagedSpace) -> list[Strategy]:
    """Return legal strategies in the order in which an engineer would try them: least split first.

    Tensor parallel within a scale-up domain, pipeline over the fewest stages that fit, other devices as replicas; one
    sequence per microbatch, a sharded optimizer, sequence parallel with tensor parallel (Narayanan et al., arXiv
    2104.04473, section 5.4, takeaways 1 to 3; Megatron-LM's recipes).
    """
    starts = [strategy for strategy, keeps in _tried(space) if keeps]
    starts.sort(key=lambda strategy: (strategy.tp * strategy.pp, strategy.recompute, strategy.pp, -strategy.devices))
    return starts[:MOST_HEURISTIC]


def _tried(space: StagedSpace) -> Iterator[tuple[Strategy, bool]]:
    choices = space.flat.choices
    domain = space.context.cluster.scale_up_size
    zero = max(zero for zero in choices["zero"] if zero <= 1) if min(choices["zero"]) <= 1 else min(choices["zero"])
    counts = {choices["gpus"][0], choices["gpus"][-1]}
    tps = [tp for tp in choices["tp"] if tp <= domain] or [choices["tp"][0]]
    strategies = []
    for gpus, tp, pp, kind in itertools.product(sorted(counts), tps, choices["pp"], choices["recompute"]):
        dp, rest = divmod(gpus, tp * pp)
        if rest or not dp:
            continue
        for split in choices["split"] if pp > 1 else (int(Split.EVEN),):
            strategies.append(
                Strategy(
                    dp=dp,
                    tp=tp,
                    pp=pp,
                    mbs=choices["mbs"][0],
                    zero=zero if dp > 1 else 0,
                    sp=tp > 1 and max(choices["sp"]) == 1,
                    recompute=Recompute(kind),
                    split=Split(split),
                )
            )
    strategies = [settled(space.context, strategy) for strategy in strategies]
    yield from zip(strategies, space.legal(strategies), strict=True)


KEPT = 24
"""Number of feasible starts, and of starts that almost fit."""
MARGIN = 1.25
"""Largest peak over device memory with which a strategy may fit after moving layers off its fullest stage: one layer is
a quarter of a stage of four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lenient:
    """A scorer that accepts an excess of memory up to ``margin``; it can be sent to workers."""

    margin: float
    score: Scorer = simulator_score

    def __call__(self, context: Context, table: StrategyTable) -> ScoreTable:
        """Score, and judge memory leniently."""
        scores = self.score(context, table)
        limit = self.margin * scores.limits(context)
        return dataclasses.replace(scores, fits=scores.peak_memory_bytes <= limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """``strategies`` to start from; ``piece`` is the result of the flat search by ``workers``."""

    strategies: tuple[Strategy, ...]
    piece: SliceResult
    workers: str
    remarks: tuple[str, ...]


def flat_starts(
    problem: Problem, choice: Choice, score: Scorer = simulator_score, on_progress: OnProgress | None = None
) -> Starts:
    """Search a flat space, and return its best strategies and equally good ones that almost fit.

    Raises
    ------
    TypeError
        The space of the ``problem`` is of operator graphs.
    """
    space = problem.space
    if not isinstance(space, StrategySpace):
        raise TypeError("starts are strategies of transformers")
    progress = enumeration_progress(on_progress, "searching flat strategies", space.size)
    piece, workers, remarks = search_with(problem, choice, score=score, progress=progress)
    strategies = [*strategies_of(space, piece)]
    movable = _without_virtual_stages(space)
    if movable is not None:
        for scorer in (score, Lenient(margin=MARGIN, score=score)):
            part = dataclasses.replace(problem, space=movable, top=KEPT, ideas=False)
            progress = enumeration_progress(on_progress, "searching what to start from", movable.size)
            strategies += strategies_of(movable, search_with(part, choice, score=scorer, progress=progress)[0])
    return Starts(strategies=tuple(dict.fromkeys(strategies)), piece=piece, workers=workers, remarks=remarks)


def _without_virtual_stages(space: StrategySpace) -> StrategySpace | None:
    """Return the part of a space without virtual stages, where layers can be moved; None if empty."""
    schedules = tuple(schedule for schedule in space.choices["schedule"] if not virtual(schedule))
    if not schedules or 1 not in space.choices["vpp"]:
        return None
    return dataclasses.replace(space, choices={**space.choices, "schedule": schedules, "vpp": (1,)})


def strategies_of(space: StrategySpace, piece: SliceResult) -> Sequence[Strategy]:
    """Return the best strategies of a piece, in rank order."""
    return [] if piece.best is None else strategies_at(space, piece.best.index)
