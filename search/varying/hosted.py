"""The fastest strategy whose optimizer states lie in the memory of the host, for searches that nothing fits without."""

from dataclasses import dataclass

from forerun.search.candidates import strategies_at
from forerun.search.exhaustive import Problem, Scorer, search_space
from forerun.search.request import Setting
from forerun.search.rows import Row
from forerun.search.varying.judge import Judge, Judged, WithoutHosted
from forerun.search.varying.varied import row_of, tree_text
from forerun.spaces.trees.vary import Variation

LARGEST = 20_000_000
"""Candidates up to which the whole space is walked for this: a few seconds."""
PLAYED = 8
"""Strategies that are simulated, fastest first by their closed forms."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A strategy with tensors in host memory: its row event by event, and the tree that ``simulate --tree`` reads."""

    row: Row
    tree: str


def best_hosted(setting: Setting, score: Scorer) -> Hosted | None:
    """Return the fastest strategy that fits once the framework's host tensors lie in the memory of the host; None where
    the framework cannot keep any there, nothing fits even so, or the space is too large to look.
    """
    context, space = setting.context, setting.space()
    if not context.framework.host_tensors or space.size > LARGEST:
        return None
    piece = search_space(Problem(space=space, objective=setting.objective, top=PLAYED), score=WithoutHosted(score))
    if piece.best is None or not len(piece.best):
        return None
    judge, best = Judge(context), None
    for strategy in strategies_at(space, piece.best.index):
        fitted = judge.fit(Variation(strategy=strategy, host=context.framework.host_tensors))
        played = None if fitted is None else judge.play(fitted)
        if played is not None and (best is None or _worth(played) < _worth(best)):
            best = played
    if best is None:
        return None
    return Hosted(row=row_of(setting, best), tree=tree_text(context, best.variation))


def _worth(judged: Judged) -> float:
    return judged.step_s * judged.variation.strategy.devices
