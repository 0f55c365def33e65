"""Classes of strategies with equal degrees, most promising first, each with a lower bound on its step.

A class is a strategy without layers per stage, and without recompute if stages choose it separately. The slowest of
equal stages is a lower bound for all its plans, so that the first few classes contain the best plan.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.stage_options import least_p2p_s, least_pace_s
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules.catalogue import schedule_of, virtual
from forerun.spaces.strategies import CUSTOM_SPLIT, Context, Split, Strategy, StrategySpace, StrategyTable
from forerun.spaces.strategies.staged_space import StagedSpace

PAIRED = 4_000
"""Number of the most promising classes of one tp that are paired with another tp."""
Bound = Callable[[Context, StrategyTable], Floats]
"""Function that returns lower bounds of plans' steps in s, shape N."""
KEY = ("gpus", "pp", "cp", "ep", "etp", "schedule", "zero", "shard", "recompute", "placement")


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeClass:
    """``strategy`` without its layers (and recompute); ``least_s``: lower bound of pipeline and transfers of its plans;
    ``each_p2p_s``: transfers of one microbatch forward and backward.
    """

    strategy: Strategy
    least_s: float
    each_p2p_s: float


def degree_classes(space: StagedSpace, *, least: Bound | None = None) -> list[DegreeClass]:
    """Return the classes of a space, lowest bound first.

    ``least``: lower bound of steps. Without ``least`` the classes are for equal devices, bound by equal stages.
    """
    restricted = _restricted(space)
    if restricted is None:
        return []
    table, _ = restricted.table(0, restricted.size)
    if not len(table):
        return []
    pace_s = np.zeros(len(table)) if least else least_pace_s(space.context, table, hosted=max(space.hosted[0]) > 0)
    each_p2p_s = least_p2p_s(space.context, table)
    microbatches = space.context.workload.global_batch / (table.column("dp") * table.column("mbs"))
    # With few microbatches per stage, pipeline fill matters as much as the steady state.
    filled_s = (microbatches + table.column("pp") - 1) * pace_s + each_p2p_s
    least_s = least(space.context, table) if least else filled_s
    order = np.argsort(least_s, kind="stable")
    order = order[np.isfinite(least_s[order])]
    in_space = np.all([np.isin(table.column(axis), space.flat.choices[axis]) for axis in ("mbs", "sp", "zero")], axis=0)
    alone = [
        DegreeClass(strategy=_strategy(table, row), least_s=float(least_s[row]), each_p2p_s=float(each_p2p_s[row]))
        for row in order[in_space[order]]
    ]
    if space.halves:
        alone += list(_paired(space, table, order[:PAIRED], pace_s, each_p2p_s))
    return sorted(alone, key=lambda degree_class: (degree_class.least_s, str(degree_class.strategy)))


def _restricted(space: StagedSpace) -> StrategySpace | None:
    """Return the flat space of all classes of degrees; None without pipelines in the space."""
    choices = dict(space.flat.choices)
    differ = space.recompute or space.halves or space.offload
    kinds = (schedule_of(number) for number in choices["schedule"] if not virtual(number))
    schedules = tuple(kind.number for kind in kinds if kind.whole_stages or not differ)
    depths = tuple(pp for pp in choices["pp"] if pp > 1 or space.offload)
    if not schedules or not depths or 1 not in choices["vpp"]:
        return None
    choices |= {"pp": depths, "vpp": (1,), "schedule": schedules, "split": (CUSTOM_SPLIT,)}
    # Classes recompute all layers, or each stage chooses.
    choices["recompute_layers"] = choices["recompute_layers"][:1]
    if space.recompute:
        choices["recompute"] = choices["recompute"][:1]
    if space.halves:
        # One half may not need a setting of the other, and has the microbatch that fits its devices.
        ratios = {high // low for low in choices["tp"] for high in choices["tp"] if high % low == 0}
        widest = max(choices["mbs"]) * max(ratios)
        choices["mbs"] = tuple(sorted({m * r for m in choices["mbs"] for r in ratios if m * r <= widest}))
        choices |= {"sp": tuple(sorted({0, *choices["sp"]})), "zero": tuple(sorted({0, *choices["zero"]}))}
    return dataclasses.replace(space.flat, choices=choices)


def _strategy(table: StrategyTable, row: int) -> Strategy:
    strategy = dataclasses.replace(
        table.take(np.array([row])),
        choices={**table.choices, "split": np.array([int(Split.EVEN)])},
    )
    return strategy.strategy(0)


def _paired(
    space: StagedSpace,
    table: StrategyTable,
    rows: NDArray[np.intp],
    pace_s: NDArray[np.float64],
    each_p2p_s: NDArray[np.float64],
) -> Iterator[DegreeClass]:
    """Yield classes whose halves differ in tp: two classes of one tp with the same share of a batch."""
    columns = {axis: table.column(axis) for axis in (*KEY, "tp", "dp", "mbs", "sp")}

    def key(row: int) -> tuple[int, ...]:
        return tuple(int(columns[axis][row]) for axis in KEY)

    by_key: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        share = int(columns["dp"][row] * columns["mbs"][row])
        by_key.setdefault((*key(row), share), []).append(int(row))
    batch = space.context.workload.global_batch
    for group in by_key.values():
        for first in group:
            for second in group:
                tps = int(columns["tp"][first]), int(columns["tp"][second])
                compatible = columns["sp"][first] == columns["sp"][second] or 1 in tps
                if tps[0] == tps[1] or not compatible:
                    continue
                # With all layers in one half, a stage takes a or b seconds per microbatch. Layers divided so that both
                # halves take equal time give the harmonic mean, t = 2 / (1 / a + 1 / b); a pipeline of m microbatches
                # takes at least (m + pp - 1) t plus its sends.
                pace = 2 / (1 / pace_s[first] + 1 / pace_s[second])
                count = batch / (columns["dp"][first] * columns["mbs"][first])
                p2p_s = float(each_p2p_s[first] + each_p2p_s[second]) / 2
                least = float((count + columns["pp"][first] - 1) * pace + p2p_s)
                sp = bool(columns["sp"][first] or columns["sp"][second])
                try:
                    strategy = dataclasses.replace(_strategy(table, first), second_tp=tps[1], sp=sp)
                except RequestError:
                    continue
                if all(int(getattr(strategy, axis)) in space.flat.choices[axis] for axis in ("mbs", "sp", "zero")):
                    yield DegreeClass(strategy=strategy, least_s=least, each_p2p_s=p2p_s)
