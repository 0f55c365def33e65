"""Ideas and their variants: strategies with the same degrees, of which a leaderboard shows the best.

Placements, virtual stages and micro-batches of one set of degrees often lie closer together than a prediction's error;
ten rows of them would be one row ten times.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from forerun.spaces.strategies import Strategy

ALIKE = 0.01
"""Variants whose first ranking key is this close to their row's are kept with it: below any prediction's error."""
FAR = 0.25
"""Ideas whose first ranking key is this much above that of the best are slower beyond any doubt: four of five measured
runs lie within 20 % of their prediction. Other strategies of better ideas go before them."""
KINDS = ("mbs", "zero", "sp")
"""Axes of which every choice may make a row where an idea has several: who changes another is after a few per cent."""
MOST_VARIANTS = 100
AT_ONCE = 10
"""Rows that are chosen together, so that a leaderboard of fewer rows begins like one of more."""


class Ranked(NamedTuple):
    """A strategy that fits, with its first ranking key, its step time in seconds and its peak memory in bytes."""

    strategy: Strategy
    key: float
    step_s: float
    peak_bytes: float


def chosen_together(top: int) -> int:
    """Return the number of rows to search for where ``top`` are shown.

    >>> chosen_together(1), chosen_together(20)
    (10, 20)
    """
    return math.ceil(top / AT_ONCE) * AT_ONCE


def replaces(step_s: Sequence[float], peak_bytes: Sequence[float]) -> Callable[[int, int], bool]:
    """Compare places: whether the second is at most ``ALIKE`` slower, not faster, and needs no less memory.

    Parameters
    ----------
    step_s, peak_bytes
        Step time and peak memory of each place.
    """

    def beaten(place: int, other: int) -> bool:
        near = step_s[place] <= step_s[other] <= (1 + ALIKE) * step_s[place]
        return bool(near and peak_bytes[place] <= peak_bytes[other])

    return beaten


def shown(
    kinds: Sequence[tuple[Hashable, Hashable]],
    keys: Sequence[float],
    top: int,
    beaten: Callable[[int, int], bool] = lambda place, other: False,
) -> list[list[int]]:
    """Return the rows that are shown of candidates in rank order, each followed by its variants, as places.

    ``kinds``: the idea of each, and its choices on ``KINDS``; ``keys``: its first ranking key; ``beaten``: whether one
    place is a variant of another that leads its idea though it ranks further behind. ``AT_ONCE`` rows are chosen at a
    time: first the best of every idea that is near the best of all; then whatever is next, another strategy of such an
    idea or the best of one far off. Rows that are chosen later rank behind all that were chosen before.
    """
    ideas: dict[Hashable, list[list[int]]] = {}
    seen = set[tuple[Hashable, Hashable]]()
    for place, (idea, kind) in enumerate(kinds):
        rows = ideas.setdefault(idea, [])
        if rows and (keys[place] <= (1 + ALIKE) * keys[rows[-1][0]] or beaten(rows[-1][0], place)):
            rows[-1].append(place)
        elif (idea, kind) not in seen:
            rows.append([place])
        seen.add((idea, kind))
    near = [rows[0] for rows in ideas.values() if keys[rows[0][0]] <= (1 + FAR) * keys[0]]
    further = sorted(row for rows in ideas.values() for row in rows if row not in near)
    chosen: list[list[int]] = []
    while len(chosen) < top and (near or further):
        room = max(AT_ONCE - len(near), 0)
        chosen += sorted([*near[:AT_ONCE], *further[:room]])
        near, further = near[AT_ONCE:], [row for row in further[room:] if row > chosen[-1]]
    return chosen[:top]


def folded(
    ranked: Iterable[Ranked],
    top: int,
    *,
    launchable: Callable[[Strategy], bool] = lambda strategy: True,
) -> Iterator[tuple[Strategy, list[Strategy]]]:
    """Fold strategies, best first, to those of each set of degrees with what is as good; ``top`` of them, each led by
    its best that is ``launchable``, if any is."""
    known = list(ranked)
    kinds = [(degrees(one.strategy), tuple(int(getattr(one.strategy, axis)) for axis in KINDS)) for one in known]
    beaten = replaces([one.step_s for one in known], [one.peak_bytes for one in known])
    for leader, *variants in shown(kinds, [one.key for one in known], top, beaten):
        idea = [known[place].strategy for place in (leader, *variants[:MOST_VARIANTS])]
        first = next(filter(launchable, idea), idea[0])
        yield first, [one for one in idea if one != first]


def degrees(strategy: Strategy) -> tuple[int, ...]:
    """Return what makes a strategy an idea of its own: its degrees but for etp."""
    return (strategy.devices, strategy.pp, strategy.tp, strategy.cp, strategy.ep, strategy.second_tp or 0)
