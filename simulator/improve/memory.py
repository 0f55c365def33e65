"""Recomputation or gradient accumulation that fits a step into memory in the least time."""

import math
from collections.abc import Sequence
from dataclasses import replace

from forerun.simulator.improve.step import RankStep, StepPlan, memory_bytes, simulate
from forerun.spaces.errors import InfeasibleError
from forerun.spaces.units import format_bytes

FIXED_SHARE = 0.2
"""Share of an operator's time that does not shrink when the batch is halved. dPRO's estimate is that half the batch
takes 0.6 of the time."""


def fit_memory(step: RankStep, plan: StepPlan, limit_bytes: float) -> StepPlan:
    """Return the plan with the least recomputation that fits; the plan itself where it already fits.

    Operators are chosen by forward seconds per byte kept, cheapest first; unnecessary ones are dropped afterwards, most
    expensive first.

    Raises:
        InfeasibleError: the step does not fit with everything recomputed.
    """
    if memory_bytes(step, plan) <= limit_bytes:
        return plan
    order = sorted(
        (number for number, op in enumerate(step.ops) if op.kept_bytes > 0),
        key=lambda number: (step.ops[number].forward_s / step.ops[number].kept_bytes, number),
    )
    chosen: list[int] = []
    for number in order:
        chosen.append(number)
        if memory_bytes(step, replace(plan, recomputed=frozenset(chosen))) <= limit_bytes:
            break
    else:
        least = memory_bytes(step, replace(plan, recomputed=frozenset(chosen)))
        raise InfeasibleError(
            f"{step.name} needs {format_bytes(least)} with every operator recomputed, but the limit is "
            f"{format_bytes(limit_bytes)}; take a smaller batch per device"
        )
    for number in sorted(chosen, key=lambda number: -step.ops[number].forward_s):
        fewer = replace(plan, recomputed=frozenset(chosen) - {number})
        if memory_bytes(step, fewer) <= limit_bytes:
            chosen.remove(number)
    return replace(plan, recomputed=frozenset(chosen))


def split_batch(step: RankStep, parts: int) -> RankStep:
    """Return the step of a pass over 1/``parts`` of the batch."""
    factor = FIXED_SHARE + (1 - FIXED_SHARE) / parts
    ops = tuple(
        replace(
            op,
            forward_s=op.forward_s * factor,
            backward_s=op.backward_s * factor,
            fused_forward_s=op.fused_forward_s * factor,
            fused_backward_s=op.fused_backward_s * factor,
            kept_bytes=op.kept_bytes / parts,
        )
        for op in step.ops
    )
    return replace(step, ops=ops)


def cheapest_fit(step: RankStep, plans: Sequence[StepPlan], limit_bytes: float) -> tuple[RankStep, StepPlan]:
    """Return the fastest step and plan that fit, by recomputation or by accumulation over 2, 4 or 8 parts.

    Raises:
        InfeasibleError: neither fits.
    """
    tried: list[tuple[float, int, RankStep, StepPlan]] = []
    failure: InfeasibleError | None = None
    for plan in plans:
        try:
            fitted = fit_memory(step, plan, limit_bytes)
        except InfeasibleError as error:
            failure = error
        else:
            tried.append((simulate(step, fitted).step_s, len(tried), step, fitted))
        for parts in (2, 4, 8):
            part = split_batch(step, parts)
            accumulated = replace(plan, accumulate=parts)
            if memory_bytes(part, accumulated) <= limit_bytes:
                tried.append((simulate(part, accumulated).step_s, len(tried), part, accumulated))
                break
    if not tried:
        assert failure is not None
        raise failure
    best = min(tried, key=lambda one: one[:2])
    assert math.isfinite(best[0])
    return best[2], best[3]
