"""Ideas and their variants: strategies with the same degrees, represented by the best in a leaderboard.

Placements, virtual stages and micro-batches of one set of degrees often differ by less than the prediction error; ten
such rows would be equivalent.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from forerun.spaces.strategies import Strategy

ALIKE = 0.01
"""Relative difference of the first ranking key up to which variants are kept with a row; below the prediction error."""
FAR = 0.25
"""Relative difference of the first ranking key from the best above which ideas are certainly slower: four of five
measured runs are within 20 % of their prediction. Other strategies of better ideas rank before them."""
KINDS = ("mbs", "zero", "sp")
"""Axes whose choices may have separate rows within an idea; other axes change a few per cent only."""
MOST_VARIANTS = 100
AT_ONCE = 10
"""Number of rows chosen together, so that a shorter leaderboard is a prefix of a longer one."""


class Ranked(NamedTuple):
    """A feasible strategy with its first ranking key, its step time in seconds and its peak memory in bytes."""

    strategy: Strategy
    key: float
    step_s: float
    peak_bytes: float


def chosen_together(top: int) -> int:
    """Return the number of rows to search if ``top`` are shown.

    >>> chosen_together(1), chosen_together(20)
    (10, 20)
    """
    return math.ceil(top / AT_ONCE) * AT_ONCE


def replaces(step_s: Sequence[float], peak_bytes: Sequence[float]) -> Callable[[int, int], bool]:
    """Return whether a second place is at most ``ALIKE`` slower, not faster, and needs no less memory.

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
    """Return the shown rows of candidates in rank order, each followed by its variants, as positions.

    ``kinds``: idea and choices on ``KINDS`` of each candidate; ``keys``: first ranking keys; ``beaten``: whether a
    position is a variant of another one that leads the idea at a lower rank. ``AT_ONCE`` rows are chosen at a time:
    first the best of every idea near the best of all; then the next candidate, another strategy of such an idea or the
    best of a slower one. Rows chosen later rank after all rows chosen before.
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
    """Fold strategies, best first, into ``top`` rows with variants.

    Each row is led by its best ``launchable`` strategy if there is one.
    """
    known = list(ranked)
    kinds = [(degrees(one.strategy), tuple(int(getattr(one.strategy, axis)) for axis in KINDS)) for one in known]
    beaten = replaces([one.step_s for one in known], [one.peak_bytes for one in known])
    for leader, *variants in shown(kinds, [one.key for one in known], top, beaten):
        idea = [known[place].strategy for place in (leader, *variants[:MOST_VARIANTS])]
        first = next(filter(launchable, idea), idea[0])
        yield first, [one for one in idea if one != first]


def degrees(strategy: Strategy) -> tuple[int, ...]:
    """Return the identity of a strategy's idea: all degrees except etp."""
    return (strategy.devices, strategy.pp, strategy.tp, strategy.cp, strategy.ep, strategy.second_tp or 0)
