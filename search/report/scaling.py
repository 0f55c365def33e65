"""Throughput against the number of GPUs, for a search over several numbers.

A leaderboard often has rows of one number only, the largest or the cheapest, so the others are searched again for the
page.
"""

import dataclasses
import math
from collections.abc import Sequence

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import best_row
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.figures.plane import number
from forerun.search.report.bars import plain_bar
from forerun.search.report.details import ResolvedRequest
from forerun.search.request.setting import of_transformer
from forerun.spaces.errors import ForerunError, RequestError

MOST_COUNTS = 12
"""Most numbers of GPUs searched again; each takes the time of one search."""


def scaling_section(board: Leaderboard, resolved: ResolvedRequest) -> Safe | None:
    """Return the best throughput by number of GPUs; None if only one number was searched."""
    counts = board.request["gpu_counts"]
    if len(counts) < 2:
        return None
    best = _kept(board)
    missing = [count for count in counts if count not in best]
    hints: list[str] = []
    for count in spread(missing, MOST_COUNTS):
        try:
            if resolved.setting is None:
                raise RequestError(resolved.missing)
            row = best_row(dataclasses.replace(of_transformer(resolved.setting), gpus=(count,)), objective="throughput")
        except ForerunError as error:
            hints.append(f"Only numbers of GPUs among the rows kept are shown: {error}")
            break
        if row is None:
            hints.append(f"Nothing fits on {count:,} GPUs.")
        else:
            best[count] = row
    if len(missing) > MOST_COUNTS:
        hints.append(f"{len(counts):,} numbers of GPUs were searched, some of which are shown.")
    most = max(row.throughput for row in best.values())
    top = max(row.throughput_per_gpu for row in best.values())
    lines = [_line(count, row, most, top) for count, row in sorted(best.items())]
    return joined([tag("ol", *lines, class_="bars"), *(tag("p", hint, class_="hint") for hint in hints)])


def spread(counts: Sequence[int], most: int) -> list[int]:
    """Return at most ``most`` of ascending numbers with even ratios, first and last included.

    >>> spread([8, 16, 24, 32, 40, 48, 56, 64], 4)
    [8, 16, 32, 64]
    """
    if len(counts) <= most:
        return list(counts)
    low, high = math.log(counts[0]), math.log(counts[-1])
    wanted = [low + (high - low) * place / (most - 1) for place in range(most)]
    return sorted({min(counts, key=lambda count: abs(math.log(count) - value)) for value in wanted})


def _kept(board: Leaderboard) -> dict[int, Row]:
    best: dict[int, Row] = {}
    for row in board.rows:
        if row.gpus not in best or row.throughput > best[row.gpus].throughput:
            best[row.gpus] = row
    return best


def _line(count: int, row: Row, most: float, top: float) -> Safe:
    value = (
        f"{number(row.throughput)} {row.short_unit}/s; {number(row.throughput_per_gpu)} per GPU, "
        f"{row.throughput_per_gpu / top:.1%} of the best"
    )
    place = "searched for this page" if row.rank is None else f"rank {row.rank}"
    name = tag("span", tag("strong", f"{count:,} GPUs"), f" {row.name} ({place})")
    label = tag("div", name, tag("strong", value), class_="bar-label")
    return tag("li", label, plain_bar(row.throughput / most))
