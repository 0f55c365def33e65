"""Memory of every pipeline stage of the first row by part."""

from collections.abc import Mapping

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import GIB
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.report.bars import Bar, memory_bars
from forerun.search.report.details import Behind
from forerun.search.request.setting import of_transformer
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.spaces.clusters import Cluster, stage_groups
from forerun.spaces.errors import ForerunError
from forerun.spaces.strategies import Context, Strategy

MOST_STAGES = 32
"""Most stages drawn; an even selection in deeper pipelines."""


def stages_section(board: Leaderboard, behind: Behind) -> Safe | None:
    """Return a bar for every stage; None without a pipeline, a line of text if the request is unavailable."""
    best = board.rows[0]
    strategy = best.strategy
    if best.facts is not None or strategy.pp == 1:
        return None
    if behind.setting is None:
        return tag("p", f"No stages: {behind.missing}")
    context = of_transformer(behind.setting).context
    try:
        stages = _stages(context, strategy)
    except ForerunError as error:
        return tag("p", f"No stages: {error}")
    shown = _spread(len(stages))
    names = stage_names(context.cluster, strategy)
    bars = []
    for stage in shown:
        memory_bytes, limit = stages[stage]
        parts = {part: size / GIB for part, size in memory_bytes.items()}
        # Without groups all stages have the limit of the row, which a calibration may have set.
        limit_gib = limit / GIB if context.cluster.groups else best.memory_limit_gib
        bars.append(Bar(label=names[stage], value=f"{sum(parts.values()):.1f} GiB", parts=parts, limit=limit_gib))
    some = tag("p", f"{len(shown)} of {len(stages)} stages.", class_="hint") if len(shown) < len(stages) else None
    return joined([some, memory_bars(bars, rows="stage")])


def stage_names(cluster: Cluster, strategy: Strategy) -> list[str]:
    """Return the name of every stage: its number, and its nodes if groups of nodes differ."""
    if not cluster.groups:
        return [f"stage {stage}" for stage in range(strategy.pp)]
    groups = stage_groups(cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    return [f"stage {stage}, {cluster.groups[group].cluster.name}" for stage, group in enumerate(groups)]


def _stages(context: Context, strategy: Strategy) -> list[tuple[Mapping[str, float], float]]:
    """Return the bytes of every stage by part, and its limit in bytes; each on its own group of nodes."""
    if not context.cluster.groups:
        return [(stage, context.memory_limit_bytes) for stage in memory_by_stage(context, strategy)]
    groups = stage_groups(context.cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    contexts = {group: context.on_groups[group] for group in set(groups)}
    memory = {group: memory_by_stage(context, strategy) for group, context in contexts.items()}
    return [(memory[group][stage], contexts[group].memory_limit_bytes) for stage, group in enumerate(groups)]


def _spread(count: int) -> list[int]:
    """Return the stages to draw, including the first and the last."""
    if count <= MOST_STAGES:
        return list(range(count))
    return sorted({round(place * (count - 1) / (MOST_STAGES - 1)) for place in range(MOST_STAGES)})
