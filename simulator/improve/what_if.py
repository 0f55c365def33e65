"""What-if questions about the machine or the software, each with the framework's and the best plan."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from forerun.simulator.improve.buckets import best_buckets
from forerun.simulator.improve.search import LEAST_GAIN, Improvement, kept, with_recompute
from forerun.simulator.improve.step import Op, RankStep, StepPlan, simulate
from forerun.spaces.errors import RequestError

MOST_GROUPS = 64
"""Largest number of groups tried: more are too small to pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A question. ``default_s``, ``best_s``: seconds per pass over the batch.

    The first is for the framework's plan, the second for the best plan under the change; both plans have the changes
    that memory requires.
    """

    name: str
    what: str
    default_s: float
    best_s: float


def what_ifs(step: RankStep, improvement: Improvement, *, fuse: bool = True) -> tuple[WhatIf, ...]:
    """Return the standard questions about a step, with their answers."""
    slowest = slowest_kind(step)
    machines: list[tuple[str, str, Callable[[RankStep], RankStep]]] = [
        ("as it is", "", lambda one: one),
        ("faster link", "2 times the bandwidth", lambda one: replace(one, wire=one.wire.faster(2.0))),
        ("faster link", "4 times the bandwidth", lambda one: replace(one, wire=one.wire.faster(4.0))),
        ("faster kernels", "all 1.5 times as fast", lambda one: scaled(one, 1.5)),
        ("faster kernels", "all 2 times as fast", lambda one: scaled(one, 2.0)),
        ("faster kernel", f"{slowest} twice as fast", lambda one: scaled(one, 2.0, kind=slowest)),
    ]
    # Where the batch had to be split, a pass over it is several passes over parts.
    parts = 1 if improvement.step is step else improvement.fitted_plan.accumulate
    answers = []
    for name, what, change in machines:
        changed = change(improvement.step)
        default_s, best_s = (
            simulate(changed, plan).pass_s * parts for plan in (improvement.fitted_plan, improvement.plan)
        )
        if name != "as it is":
            buckets = best_buckets(with_recompute(changed, improvement.fitted_plan), fuse=fuse)
            best_s = min(best_s, simulate(changed, kept(buckets, improvement.fitted_plan)).pass_s * parts)
        answers.append(WhatIf(name=name, what=what, default_s=default_s, best_s=best_s))
    ways = [
        ("no overlap", "messages after the backward pass", False, 1),
        ("accumulation", "2 passes per exchange (2 times the global batch)", True, 2),
        ("accumulation", "4 passes per exchange (4 times the global batch)", True, 4),
    ]
    for name, what, overlap, times in ways:
        default_s, best_s = (
            simulate(improvement.step, replace(plan, overlap=overlap, accumulate=plan.accumulate * times)).pass_s
            * parts
            for plan in (improvement.fitted_plan, improvement.plan)
        )
        answers.append(WhatIf(name=name, what=what, default_s=default_s, best_s=best_s))
    if len(improvement.step.senders) > 1:
        count, group_s = best_groups(improvement.step, improvement.fitted_plan)
        what = f"{count} of equally many gradients (Horovod: num_groups)"
        answers.append(WhatIf(name="groups", what=what, default_s=group_s * parts, best_s=group_s * parts))
    return tuple(answers)


def group_plan(step: RankStep, count: int) -> StepPlan:
    """Return the plan with ``count`` groups of equally many gradients, as under Horovod's num_groups.

    Raises
    ------
    RequestError
        The step has fewer gradients.
    """
    senders = step.senders
    if not 1 <= count <= len(senders):
        most = len(senders)
        raise RequestError(f"{step.name} has {most} gradients to group, but got {count} groups; use 1 to {most}")
    cuts = [round(place * len(senders) / count) for place in range(count + 1)]
    return StepPlan(buckets=tuple(senders[low:high] for low, high in pairwise(cuts)))


def best_groups(step: RankStep, base: StepPlan) -> tuple[int, float]:
    """Return the best number of groups of equally many gradients (the fewest of equal ones), and seconds per pass.

    ``base``: plan with the changes that memory requires.
    """
    tried = [
        (simulate(step, kept(group_plan(step, count), base)).pass_s, count)
        for count in range(1, min(len(step.senders), MOST_GROUPS) + 1)
    ]
    best_s = min(tried)[0]
    return next((count, seconds) for seconds, count in tried if seconds <= best_s * (1 + LEAST_GAIN))


def scaled(step: RankStep, factor: float, *, kind: str | None = None) -> RankStep:
    """Return the step with all operators (or those of one kind) ``factor`` times as fast."""
    return replace(step, ops=tuple(_faster(op, factor) if kind in (None, kind_of(op)) else op for op in step.ops))


def slowest_kind(step: RankStep) -> str:
    """Return the kind of operator with the most time."""
    totals: dict[str, float] = {}
    for op in step.ops:
        totals[kind_of(op)] = totals.get(kind_of(op), 0.0) + op.forward_s + op.backward_s
    return max(totals, key=lambda kind: (totals[kind], kind))


def kind_of(op: Op) -> str:
    """Return the name of an operator without numbers."""
    words = [word.rstrip("0123456789_") for word in op.name.replace("/", ".").split(".")]
    return next((word for word in reversed(words) if word), op.name)


def _faster(op: Op, factor: float) -> Op:
    return replace(
        op,
        forward_s=op.forward_s / factor,
        backward_s=op.backward_s / factor,
        fused_forward_s=op.fused_forward_s / factor,
        fused_backward_s=op.fused_backward_s / factor,
    )
