"""Pipeline stages of the first row: memory by part, and the timeline of its step as SVG with the page's width.

Kinds of tasks differ in height as well as colour: forward passes are high, backward passes low, others between.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import GIB
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.report.bars import Bar, memory_bars
from forerun.search.report.details import ResolvedRequest
from forerun.search.request.kinds import kind_of
from forerun.search.request.setting import of_transformer
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.simulator.events import EventResult
from forerun.simulator.events.export.gantt import deal_slices
from forerun.spaces.clusters import Cluster, stage_groups
from forerun.spaces.errors import ForerunError
from forerun.spaces.strategies import Context, Strategy
from forerun.spaces.units import format_seconds

MOST_STAGES = 32
"""Most stages drawn; an even selection in deeper pipelines."""


def stages_section(board: Leaderboard, resolved: ResolvedRequest) -> Safe | None:
    """Return a bar for every stage; None without a pipeline, a line of text if the request is unavailable."""
    best = board.rows[0]
    strategy = best.strategy
    if best.facts is not None or strategy.pp == 1:
        return None
    if resolved.setting is None:
        return tag("p", f"No stages: {resolved.missing}")
    context = of_transformer(resolved.setting).context
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


MOST_PASSES = 60_000
"""Number of passes from which a step is not simulated for the page, since that takes seconds."""
COLUMNS = 1500
"""Slices of a step, about one for each pixel of a wide page."""
MOST_CELLS = 30_000
"""Slices of all stages together: pages of deep pipelines stay small, with coarser slices."""
HEIGHT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Appearance of a kind of task: a colour of ``page.css`` and a vertical range in a row of ``HEIGHT``."""

    slot: int
    low: int
    high: int


LOOKS: Mapping[str, Look] = {
    "forward": Look(slot=2, low=0, high=50),
    "backward": Look(slot=5, low=50, high=100),
    "input gradient": Look(slot=5, low=50, high=100),
    "weight gradient": Look(slot=0, low=25, high=75),
    "send": Look(slot=3, low=0, high=100),
    "gather": Look(slot=7, low=0, high=50),
    "reduce": Look(slot=4, low=50, high=100),
    "tied": Look(slot=1, low=30, high=70),
    "optimizer": Look(slot=8, low=0, high=100),
    "host": Look(slot=9, low=44, high=56),
    "copy": Look(slot=9, low=0, high=40),
    "recompute": Look(slot=2, low=50, high=100),
    "exchange": Look(slot=6, low=0, high=100),
}
"""Kind of task -> appearance."""


def timeline_section(board: Leaderboard, resolved: ResolvedRequest) -> Safe:
    """Return the timeline of the first row, or the reason for its absence."""
    best = board.rows[0]
    strategy = best.strategy
    if best.facts is None:
        passes = 2 * strategy.pp * strategy.vpp * board.request["global_batch"] // (strategy.dp * strategy.mbs)
    else:
        passes = 2 * best.gpus * strategy.segments  # all devices of a split are simulated
    if passes > MOST_PASSES:
        return tag("p", f"No timeline: a step has {passes:,} passes, and the page draws up to {MOST_PASSES:,}.")
    if resolved.setting is None:
        return tag("p", f"No timeline: {resolved.missing}")
    context = resolved.setting.context
    try:
        result = kind_of(context).simulate(context, strategy)
    except ForerunError as error:
        return tag("p", f"No timeline: {error}")
    gap = result.step_time_s / best.step_time_s - 1
    against = f"{abs(gap):.1%} {'more' if gap >= 0 else 'less'} than the formulas of the leaderboard say"
    comparison = "as the rows of the leaderboard were" if context.cluster.groups else against
    text = (
        f"Simulated event by event, a step takes {format_seconds(result.step_time_s)}, {comparison}. Stages wait for "
        f"each other in {result.bubble_share:.1%} of their time. Thin rows are traffic between devices beside the "
        "computation."
    )
    split = best.facts is not None
    names = (
        [f"stage {stage}" for stage in range(len(result.stages))] if split else stage_names(context.cluster, strategy)
    )
    drawn = drawing(result)
    kinds = [kind for kind in LOOKS if any(kind in cells for row in drawn for cells in row)]
    items = [tag("li", _key(LOOKS[kind]), f" {kind}") for kind in kinds]
    rows = [_row(result, stage, names[stage], cells) for stage, cells in enumerate(drawn)]
    return joined([tag("p", text), tag("ul", *items, class_="legend"), tag("ol", *rows, class_="bars stages")])


def drawing(result: EventResult) -> list[tuple[dict[str, list[tuple[int, int]]], dict[str, list[tuple[int, int]]]]]:
    """Return, for computation and for traffic of every stage, the runs ``[first, last)`` of slices by kind of task."""
    stages = len(result.stages)
    columns = _columns(stages)
    busy: list[list[list[dict[str, float]]]] = [[[{} for _ in range(columns)] for _ in range(2)] for _ in range(stages)]
    scale = columns / result.step_time_s
    for task in result.timeline():
        row = busy[task.stage][task.stream != "compute"]
        low, high = task.start_s * scale, task.end_s * scale
        for column in range(int(low), min(int(high) + 1, columns)):
            covered = min(high, column + 1) - max(low, column)
            if covered > 0:
                row[column][task.kind] = row[column].get(task.kind, 0.0) + covered
    return [(_runs(compute), _runs(traffic)) for compute, traffic in busy]


def _runs(cells: Sequence[Mapping[str, float]]) -> dict[str, list[tuple[int, int]]]:
    """Return runs of slices with the same kind; idle slices belong to no run."""
    runs: dict[str, list[tuple[int, int]]] = {}
    shown = deal_slices(cells, 1.0)
    for kind, group in itertools.groupby(enumerate(shown), key=lambda cell: cell[1]):
        places = [place for place, _ in group]
        if kind is not None:
            runs.setdefault(kind, []).append((places[0], places[-1] + 1))
    return runs


def _columns(stages: int) -> int:
    return max(100, min(COLUMNS, MOST_CELLS // stages))


def _row(result: EventResult, stage: int, name: str, cells: Sequence[Mapping[str, list[tuple[int, int]]]]) -> Safe:
    use, step_s = result.stages[stage], result.step_time_s
    value = (
        f"computes {use.busy_s / step_s:.0%}, communicates {use.exposed_s / step_s:.0%}, "
        f"waits {use.idle_s / step_s:.0%}; at most {use.peak_bytes / GIB:.1f} GiB of live tensors"
    )
    label = tag("div", tag("span", name), tag("span", value), class_="bar-label")
    compute, traffic = cells
    columns = _columns(len(result.stages))
    pictures = [_picture(compute, columns, "compute")]
    if traffic:
        pictures.append(_picture(traffic, columns, "traffic"))
    return tag("li", label, *pictures)


def _picture(runs: Mapping[str, list[tuple[int, int]]], columns: int, name: str) -> Safe:
    paths = [tag("path", class_=f"c{LOOKS[kind].slot}", d="".join(_boxes(LOOKS[kind], runs[kind]))) for kind in runs]
    return tag(
        "svg",
        *paths,
        class_=name,
        viewBox=f"0 0 {columns} {HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _boxes(look: Look, runs: Sequence[tuple[int, int]]) -> Iterator[str]:
    for first, last in runs:
        yield f"M{first} {look.low}h{last - first}v{look.high - look.low}h-{last - first}z"


def _key(look: Look) -> Safe:
    path = tag("path", class_=f"c{look.slot}", d="".join(_boxes(look, [(0, 24)])))
    return tag("svg", path, class_="key-box", viewBox=f"0 0 24 {HEIGHT}", preserveAspectRatio="none")
