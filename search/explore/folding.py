"""Rows of ranked strategies, with variants folded under their row unless all are requested."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from forerun.search.board.rows import Row
from forerun.search.order.ideas import Ranked, folded
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import Strategy


def folded_rows(
    setting: Setting,
    ranked: Sequence[Ranked],
    rows_of: Callable[[Sequence[Strategy]], Sequence[Row]],
    top: int,
    *,
    launchable: Callable[[Strategy], bool] = lambda strategy: True,
) -> tuple[Row, ...]:
    """Return the first rows of a ranking.

    Parameters
    ----------
    setting
        Request with all defaults.
    ranked
        Feasible strategies, best first.
    rows_of
        Function from strategies to their rows.
    top
        Most rows.
    launchable
        Function that returns whether a strategy has a launch script; such a variant leads its row.
    """
    if setting.request.all_variants:
        return tuple(rows_of([one.strategy for one in ranked[:top]]))
    ideas = dict(folded(ranked, top, launchable=launchable))
    variants = (tuple(row.variant for row in rows_of(others)) for others in ideas.values())
    return tuple(replace(row, variants=others) for row, others in zip(rows_of(list(ideas)), variants, strict=True))
