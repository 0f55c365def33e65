"""What fills the memory of every pipeline stage of the first row."""

from forerun.search.explain import MEANING
from forerun.search.leaderboard import Leaderboard
from forerun.search.report.again import request_again
from forerun.search.report.bars import MEMORY_SLOTS, Bar, Stack, stacked_bars
from forerun.search.report.markup import Safe, joined, tag
from forerun.search.request import resolve
from forerun.search.rows import GIB
from forerun.simulator.stage_memory import memory_by_stage
from forerun.spaces.errors import ForerunError
from forerun.spaces.strategies import parse_strategy

MOST_STAGES = 32
"""Stages that are drawn; of deeper pipelines some, evenly."""
MEANINGS = {**MEANING, "optimizer": MEANING["optimizer states"]}


def stages_section(board: Leaderboard) -> Safe | None:
    """Return a bar for every stage; None without a pipeline, a line of text where model or cluster are not at hand."""
    best = board.rows[0]
    strategy = parse_strategy(best.strategy)
    if strategy.pp == 1:
        return None
    try:
        stages = memory_by_stage(resolve(request_again(board)).context, strategy)
    except (ForerunError, TypeError, ValueError) as error:
        return tag("p", f"No stages: {error}")
    shown = _spread(len(stages))
    limit = best.memory_limit_gib
    bars = []
    for stage in shown:
        parts = {part: size / GIB for part, size in stages[stage].items()}
        bars.append(Bar(label=f"stage {stage}", value=f"{sum(parts.values()):.1f} GiB", parts=parts))
    stack = Stack(
        bars=bars,
        slots=MEMORY_SLOTS,
        meaning=MEANINGS,
        unit="GiB",
        digits=2,
        limit=limit,
        rows="stage",
    )
    some = tag("p", f"{len(shown)} of {len(stages)} stages.", class_="hint") if len(shown) < len(stages) else None
    return joined([some, stacked_bars(stack)])


def _spread(count: int) -> list[int]:
    """Return the stages to draw, first and last among them."""
    if count <= MOST_STAGES:
        return list(range(count))
    return sorted({round(place * (count - 1) / (MOST_STAGES - 1)) for place in range(MOST_STAGES)})
