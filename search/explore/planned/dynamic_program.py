"""Dynamic programming over stages: layers, devices and cuts of every stage with the shortest step.

A step of 1F1B takes ``sum t + sum x + max r``: one microbatch through all stages (``t``) and transfers (``x``), and the
remaining work of the slowest stage (``r``: other microbatches, replicas, the optimizer). For a bound on ``r`` the least
sum is a shortest path through states (stages so far, layers so far, devices so far, cut of the last stage), found
exactly. Bounds are tried from the least feasible one in steps of ``STEP``; a missed best bound makes a plan slower by
at most this share. Alpa bounds the slowest stage in the same way (arXiv 2201.12023, section 5.2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.planned.cuts import devices_of
from forerun.search.explore.planned.options import CutTable, PlannedStages
from forerun.simulator.score_table import Floats

STEP = 2e-3
"""Relative distance of consecutive bounds on the slowest stage."""
TRIED = 40
"""Most bounds tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePath:
    """A path through the stages.

    ``seconds``: step time by the formula of the module; ``slowest_s``: largest ``r`` of a stage; ``options``: row of
    ``PlannedStages`` of every stage.
    """

    seconds: float
    slowest_s: float
    options: tuple[int, ...]


def best_paths(plans: PlannedStages, transfers_s: Floats, within_s: float = np.inf) -> list[StagePath]:
    """Return the best paths of a pipeline for rising bounds on its slowest stage, best first; paths longer than
    ``within_s`` may be missing. ``transfers_s``: between stages of every two cuts, [K, K].
    """
    free = _shortest(plans, transfers_s, np.inf)
    if free is None:
        return []
    least_s = free.seconds - free.slowest_s
    first = free if free.seconds <= within_s else _shortest(plans, transfers_s, within_s - least_s)
    if first is None:
        return []
    paths = [free, first]
    low, high = 0.0, first.slowest_s
    while high > low * (1 + STEP) and high > STEP * free.seconds:
        middle = (low + high) / 2
        path = _shortest(plans, transfers_s, middle)
        if path is None:
            low = middle
        else:
            paths.append(path)
            high = path.slowest_s
    bound = high
    for _ in range(TRIED):
        best_s = min(path.seconds for path in paths)
        bound *= 1 + STEP
        if bound + least_s >= min(best_s, within_s):
            break
        path = _shortest(plans, transfers_s, bound)
        if path is not None:
            paths.append(path)
    distinct = {path.options: path for path in sorted(paths, key=lambda one: -one.seconds)}
    return sorted(distinct.values(), key=lambda one: one.seconds)


def _shortest(plans: PlannedStages, transfers_s: Floats, bound_s: float) -> StagePath | None:
    """Return the path with the least sum whose stages all have ``r`` within a bound; None without one."""
    pipeline, tables = plans.pipeline, plans.tables
    layers, gpus, pp = pipeline.layers, pipeline.gpus, pipeline.pp
    sizes = [devices_of(cut) for cut in pipeline.cuts]
    starts = [_aligned(plans, size) for size in sizes]
    # [cut, layers so far, devices so far]; before the first stage there is no cut to pay a transfer from.
    reached = np.full((1, layers + 1, gpus + 1), np.inf)
    reached[0, 0, 0] = 0.0
    behind = []
    for stage in range(pp):
        costs = np.zeros((1, len(sizes))) if stage == 0 else transfers_s
        behind.append((reached, costs))
        following = np.full((len(sizes), layers + 1, gpus + 1), np.inf)
        for cut, (table, size, aligned) in enumerate(zip(tables, sizes, starts, strict=True)):
            before = (reached + costs[:, cut, None, None]).min(axis=0)
            before = np.where(aligned, before, np.inf)
            if not np.isfinite(before).any():
                continue
            for count, time_s in _allowed(table, stage, bound_s):
                if count <= layers:
                    sums = before[: layers - count + 1, : gpus - size + 1] + time_s[: layers - count + 1, None]
                    into = following[cut, count:, size:]
                    np.minimum(into, sums, out=into)
        reached = following
    cut = int(reached[:, layers, gpus].argmin())
    total = float(reached[cut, layers, gpus])
    if not np.isfinite(total):
        return None
    options = _walk_back(plans, behind, bound_s, cut, total)
    rests = [_rest(plans, option) for option in options]
    return StagePath(seconds=total + max(rests), slowest_s=max(rests), options=options)


def _aligned(plans: PlannedStages, size: int) -> NDArray[np.bool_]:
    """Return the first devices allowed for a stage of some devices, shape gpus + 1: stages that fit into a node do not
    cross nodes, and larger ones begin with a node.
    """
    node = plans.pipeline.context.cluster.devices_per_node
    first = np.arange(plans.pipeline.gpus + 1)
    inside = first // node == (first + size - 1) // node
    return np.asarray(inside if size <= node else first % node == 0)


def _allowed(table: CutTable, stage: int, bound_s: float) -> Iterator[tuple[int, Floats]]:
    """Yield numbers of layers, and the seconds of a microbatch by first layer."""
    time_s = np.where(table.rest_s[stage] <= bound_s, table.time_s[stage], np.inf)
    for place in np.flatnonzero(time_s.min(axis=1) < np.inf):
        yield table.fewest + int(place), time_s[place]


def _walk_back(
    plans: PlannedStages, behind: Sequence[tuple[Floats, Floats]], bound_s: float, cut: int, total: float
) -> tuple[int, ...]:
    """Return the options of the path with a sum at the end of the model, traced back from the last stage."""
    pipeline, options = plans.pipeline, list[int]()
    layers, gpus = pipeline.layers, pipeline.gpus
    for stage in reversed(range(pipeline.pp)):
        reached, costs = behind[stage]
        table, size = plans.tables[cut], devices_of(pipeline.cuts[cut])
        best = (np.inf, 0, 0)
        for count, time_s in _allowed(table, stage, bound_s):
            start = layers - count
            if start < 0:
                continue
            sums = reached[:, start, gpus - size] + costs[:, cut] + time_s[start]
            best = min(best, (float(sums.min()), count, int(sums.argmin())))
        _, count, before = best
        layers, gpus = layers - count, gpus - size
        options.append(int(table.option[stage, count - table.fewest, layers]))
        cut = before
    return tuple(reversed(options))


def _rest(plans: PlannedStages, option: int) -> float:
    cut, stage, start, count = (int(value) for value in plans.rows[:4, option])
    table = plans.tables[cut]
    return float(table.rest_s[stage, count - table.fewest, start])
