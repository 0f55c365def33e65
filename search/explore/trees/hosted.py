"""The fastest strategy with tensors in host memory, for searches in which nothing fits otherwise."""

from dataclasses import dataclass

from forerun.search.board.rows import Row
from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.flat.sample import search_space
from forerun.search.explore.trees.judge import Judge, WithoutHosted
from forerun.search.explore.trees.tree_search import row_of, tree_text
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.spaces.strategies.space import strategies_at
from forerun.spaces.trees.vary import Variation

LARGEST = 20_000_000
"""Largest space searched a second time for a supplement of an answer: a second or two."""
FITTED = 8
"""Number of strategies turned into trees, fastest first by closed forms; the best feasible one is simulated."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A strategy with tensors in host memory: its event-level row, and its tree for ``simulate --tree``."""

    row: Row
    tree: str


def best_hosted(setting: Setting, score: Scorer) -> Hosted | None:
    """Return the most promising strategy with the framework's offloadable tensors in host memory.

    The result is None if the framework cannot offload, nothing fits, or the space is too large.
    """
    context, space = setting.context, setting.space()
    if not context.framework.host_tensors or space.size > LARGEST:
        return None
    piece = search_space(Problem(space=space, objective=setting.objective, top=FITTED), score=WithoutHosted(score))
    if piece.best is None or not len(piece.best):
        return None
    judge, host = Judge(context), context.framework.host_tensors
    judged = (judge.fit(Variation(strategy=one, host=host)) for one in strategies_at(space, piece.best.index))
    fitted = sorted(filter(None, judged), key=lambda each: each.rough_s * each.variation.strategy.devices)
    best = next(filter(None, map(judge.play, fitted)), None)
    if best is None:
        return None
    return Hosted(row=row_of(setting, best), tree=tree_text(context, best.variation))
