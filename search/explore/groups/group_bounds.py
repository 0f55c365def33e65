"""Lower bounds of the plans of a class of degrees on groups of nodes that differ.

With ``c_j`` the seconds of a microbatch on stage ``j`` and ``m`` microbatches, a step of 1F1B takes at least ``c_0 +
... + c_(j-1) + m c_j`` for every ``j``. Any weighted mean of these bounds is a bound too, and linear in the layers of
the stages: each layer counts on its cheapest stage. With the chosen weights an average layer counts equally on every
stage, so the bound is exact for equal, divisible layers.
"""

from collections.abc import Sequence

import numpy as np

from forerun.simulator.core.stage_options import LeastParts, least_parts
from forerun.simulator.score_table import Floats
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, StrategyTable

ROUNDING = 1e-9
"""Relative rounding difference between sums in different order."""


def least_plan_s(context: Context, table: StrategyTable) -> Floats:
    """Return lower bounds [N] of the plans of N classes in s; infinite if the groups have no plan."""
    parts = [least_parts(own, table) for own in context.on_groups]
    degrees = zip(*(table.column(axis).tolist() for axis in ("pp", "dp", "tp", "cp", "mbs")), strict=True)
    bounds_s = np.full(len(table), np.inf)
    for row, (pp, dp, tp, cp, mbs) in enumerate(degrees):
        groups = groups_of_stages(context, pp, dp * tp * cp)
        if groups is not None and any(part.fits[row] for part in parts):
            microbatches = context.workload.global_batch / (dp * mbs)
            bounds_s[row] = _least_s(parts, row, groups, microbatches) * (1 - ROUNDING)
    return bounds_s


def groups_of_stages(context: Context, pp: int, devices: int) -> tuple[int, ...] | None:
    """Return the group of every stage with a number of devices; None if the stages do not fit the groups."""
    try:
        return stage_groups(context.cluster, pp, devices)
    except RequestError:
        return None


def _least_s(parts: Sequence[LeastParts], row: int, groups: Sequence[int], microbatches: float) -> float:
    """Return the bound of one class: the largest of the bounds by passes, launches and traffic."""
    passes = [part.passes_s[:, row] for part in parts]
    launches = [np.array([part.host_s[row], 0.0, 0.0]) for part in parts]
    once = [float(part.once_s[row]) for part in parts]
    return max(
        _in_a_row_s(passes, groups, microbatches),
        _in_a_row_s(launches, groups, microbatches),
        _busiest_s(passes, once, groups, microbatches),
    )


def _in_a_row_s(passes: Sequence[Floats], groups: Sequence[int], microbatches: float) -> float:
    """Return the mean bound of a pipeline; ``passes``: seconds of every block [B] on each group."""
    wholes = [float(each.sum()) for each in passes]
    if not all(wholes):
        return 0.0
    behind, factors = 0.0, list[float]()
    for group in reversed(groups):
        factors.append(max(1 / wholes[group], behind))
        behind += (factors[-1] - behind) / microbatches
    return _counted(passes, groups, factors[::-1]) / behind


def _busiest_s(passes: Sequence[Floats], once: Sequence[float], groups: Sequence[int], microbatches: float) -> float:
    """Return the mean bound of stages from their own microbatches and their work ``once`` a step."""
    wholes = [microbatches * float(each.sum()) + more for each, more in zip(passes, once, strict=True)]
    factors = [1 / wholes[group] for group in groups]
    counted = microbatches * _counted(passes, groups, factors) + min(once[group] / wholes[group] for group in groups)
    return counted / sum(factors)


def _counted(passes: Sequence[Floats], groups: Sequence[int], factors: Sequence[float]) -> float:
    """Return the least sum of block seconds times stage factors.

    Embedding and head (the last blocks) are on the first and last stage, every other block on its cheapest stage.
    """
    anywhere = np.stack([factor * passes[group] for group, factor in zip(groups, factors, strict=True)])
    return float(anywhere[:, :-2].min(axis=0).sum() + anywhere[0, -2] + anywhere[-1, -1])
