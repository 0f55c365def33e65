"""The fewest GPUs on which a training ends in time."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from forerun.search.answer.intervals import certain
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.divisible import OBJECTIVES, narrowed
from forerun.search.answer.notes.goodput import SURE, days_of, sure_days, usd_of, with_goodput
from forerun.search.board.rows import Row
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, of_transformer
from forerun.spaces.errors import ForerunError
from forerun.spaces.units import format_seconds

SAVED = 0.9
"""Largest share of the requested GPUs for which fewer GPUs are named."""
SLACK = 0.85
"""Smallest searched number of GPUs over that of linear scaling: fewer GPUs are more efficient."""
FARTHEST = 8
"""Largest searched number of GPUs over that of linear scaling: beyond it a batch has too few sequences."""
STEPS = 8
"""Numbers of GPUs searched between consecutive powers of two."""
SECONDS_PER_DAY = 86400.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """Searched numbers of GPUs for a training with a deadline.

    ``enough``: the best row on the fewest sufficient GPUs, None without one; ``fastest``: the fastest row on other
    numbers, if any. ``days``: the deadline.
    """

    days: float
    enough: Row | None
    fastest: Row | None

    def text(self) -> str:
        """Return the result as text."""
        time = format_seconds(self.days * SECONDS_PER_DAY)
        if self.enough is not None:
            return f"fewest GPUs found that end in {time} with {SURE:.0%} probability: {_needs(self.enough)}"
        return f"no number of GPUs was found that ends in {time}" + (
            f": {_needs(self.fastest)}" if self.fastest else ""
        )


def in_time_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the fewest GPUs with which the training ends in time; none if the first row has about as few."""
    if setting.request.train_within_s is None or setting.objective not in OBJECTIVES:
        return ()
    fewest = fewest_in_time(setting, rows, search)
    return () if fewest.enough is None else (fewest.text(),)


def fewest_in_time(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> InTime:
    """Search the fewest GPUs on which a training of known length ends within the requested time and money.

    Numbers are below the first row's if that ends in time, else above.
    """
    request, first = setting.request, rows[0]
    assert request.train_within_s is not None
    within = request.train_within_s / SECONDS_PER_DAY
    least = first.gpus * sure_days(first)
    linear = least / within
    larger = linear > first.gpus
    low = max(SLACK * linear, first.gpus + 1 if larger else 1)
    high = FARTHEST * linear if larger else SAVED * first.gpus
    narrow = narrowed(setting, rows[:1], ("split",))
    fastest: Row | None = None
    for gpus in even_counts(int(low), int(high), setting.context.cluster.devices_per_node):
        if gpus < low:
            continue
        row = _best_on(setting, gpus, narrow, search)
        if row is None:
            continue
        if sure_days(row) <= within and (request.train_usd is None or usd_of(row) <= request.train_usd):
            return InTime(days=within, enough=row, fastest=fastest)
        fastest = row if fastest is None or days_of(row) < days_of(fastest) else fastest
        # A number of GPUs that divides the batch badly implies nothing about others.
        least = min(least, gpus * sure_days(row))
        low = max(low, SLACK * least / within)
    return InTime(days=within, enough=None, fastest=fastest)


def even_counts(low: int, high: int, node: int) -> Iterator[int]:
    """Yield numbers of GPUs from ``low`` to ``high``, ascending: divisors of a node, then whole nodes.

    There are at most ``STEPS`` between consecutive powers of two.

    >>> list(even_counts(3, 48, 8)), list(even_counts(100, 160, 8))
    ([4, 8, 16, 24, 32, 40, 48], [104, 112, 120, 128, 144, 160])
    """
    yield from (n for n in range(max(1, low), min(node, high + 1)) if node % n == 0)
    count = max(low, node)
    while True:
        step = max(1, (1 << (count.bit_length() - 1)) // (STEPS * node)) * node
        count = -(-count // step) * step
        if count > high:
            return
        yield count
        count += 1


def _best_on(setting: Setting, gpus: int, narrow: Mapping[str, Sequence[object]], search: NoteSearch) -> Row | None:
    """Return the best row on a number of GPUs, None if nothing is legal or fits."""
    try:
        other = of_transformer(resolve(dataclasses.replace(setting.request, gpus=str(gpus))))
        row = search.best(other, objective="throughput", overrides=narrow)
        return None if row is None else with_goodput(other, certain(other.context, (row,)))[0]
    except ForerunError:
        return None


def _needs(row: Row) -> str:
    days, interval = days_of(row), ""
    if row.step_time_low_s is not None and row.step_time_high_s is not None:
        low, high = (days * bound / row.step_time_s for bound in (row.step_time_low_s, row.step_time_high_s))
        interval = f" ({row.interval_level:.0%}: {low:,.1f} to {high:,.1f})"
    return f"{row.gpus:,} GPUs need {days:,.1f} days{interval} with {row.name}"
