"""Search from the default buckets of a framework to the best plan, change by change, each with its gain."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from forerun.simulator.improve.buckets import best_buckets
from forerun.simulator.improve.memory import cheapest_fit
from forerun.simulator.improve.step import PlanOutcome, RankStep, StepPlan, simulate
from forerun.simulator.opgraph.messages import Filling
from forerun.spaces.opgraph.profile import GraphProfile

_MIB = 2.0**20
_ALIKE = 2e-4
"""Share of a step up to which two sizes are equally fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRule:
    """A framework's rule for filling buckets: in its order, a new one after ``cap_bytes`` or more.

    ``first_bytes``: the limit of the first. ``setting``: the user's name of the size. ``source``: reference of the
    rule.
    """

    cap_bytes: float
    first_bytes: float
    setting: str
    source: str
    strict: bool = False


RULES: Mapping[str, BucketRule] = {
    "ddp": BucketRule(
        cap_bytes=25 * _MIB,
        first_bytes=1 * _MIB,
        setting="DistributedDataParallel(bucket_cap_mb=…)",
        source="torch.nn.parallel.DistributedDataParallel: bucket_cap_mb 25, first bucket 1 MiB",
    ),
    "horovod": BucketRule(
        cap_bytes=64 * _MIB,
        first_bytes=64 * _MIB,
        setting="HOROVOD_FUSION_THRESHOLD",
        source="Horovod's documentation of tensor fusion (0.28): 64 MiB; a bucket never exceeds it",
        strict=True,
    ),
}
"""Rules by name; a ``strict`` bucket closes before it would exceed its cap, others once they have reached it."""
_OF_FRAMEWORKS = {"pytorch-ddp": "ddp", "horovod": "horovod"}


def rule_of(profile: GraphProfile) -> BucketRule:
    """Return the rule of a framework for operator graphs."""
    if profile.name in _OF_FRAMEWORKS:
        return RULES[_OF_FRAMEWORKS[profile.name]]
    filling = Filling.of(profile)
    return BucketRule(
        cap_bytes=filling.cap_bytes,
        first_bytes=filling.first_bytes,
        setting=f"the buckets of {profile.name}",
        source=profile.source,
        strict=filling.strict,
    )


def rule_plan(step: RankStep, rule: BucketRule) -> StepPlan:
    """Return the plan with a framework's buckets: no fusion, no pieces, exchanged during the backward pass."""
    filling = Filling(cap_bytes=rule.cap_bytes, first_bytes=rule.first_bytes, strict=rule.strict)
    order = step.order or step.senders
    buckets = filling.buckets([step.ops[op].gradient_bytes for op in order])
    return StepPlan(buckets=tuple(tuple(order[place] for place in bucket) for bucket in buckets))


def best_cap(step: RankStep, rule: BucketRule) -> tuple[BucketRule, PlanOutcome]:
    """Return the rule with the best bucket size for a step, and its outcome.

    A size set by the user also applies to the first bucket. A grid of eight sizes per doubling is within 9 % of every
    size. Of equally fast sizes the largest wins, since it has fewer messages.
    """
    total = max(step.gradient_bytes, 1.0)
    least = min((step.ops[op].gradient_bytes for op in step.senders), default=1.0)
    count = max(math.ceil(8 * math.log2(total / max(least, total / 2**20))), 1)
    sizes = {total * 2 ** (-number / 8) for number in range(count + 1)}
    rules = [rule] + [
        BucketRule(
            cap_bytes=size,
            first_bytes=size,
            setting=rule.setting,
            source=rule.source,
            strict=rule.strict,
        )
        for size in sorted(sizes)
    ]
    tried = [(simulate(step, rule_plan(step, one)), place) for place, one in enumerate(rules)]
    best_s = min(outcome.step_s for outcome, _ in tried)
    if tried[0][0].step_s <= best_s * (1 + _ALIKE):
        return rule, tried[0][0]
    outcome, place = max((one for one in tried if one[0].step_s <= best_s * (1 + _ALIKE)), key=lambda one: one[1])
    return rules[place], outcome


LEAST_GAIN = 1e-4
"""Smallest gain, as a share of the step, of a listed change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One change in addition to the previous ones. ``gain_s``: seconds that it saves per step."""

    name: str
    what: str
    gain_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """Result of a search.

    ``default``: the framework's plan and its time; ``plan``: the best plan; ``changes``: from ``default`` to ``plan``.
    ``rule``: the best size of the framework's own buckets, ``capped``: its outcome alone. ``bound_s``: the step with
    free messages. ``step``: the step of ``plan`` (a part of the batch, where it had to be split). ``fitted_plan``: the
    framework's plan with the changes that memory requires, also of ``step``.
    """

    step: RankStep
    rule: BucketRule
    default_plan: StepPlan
    default: PlanOutcome
    fitted_plan: StepPlan
    capped: PlanOutcome
    plan: StepPlan
    best: PlanOutcome
    changes: tuple[PlanChange, ...]
    bound_s: float

    @property
    def gain(self) -> float:
        """Share of the default step saved by the plan."""
        return 1 - self.best.step_s / self.default.step_s


def improve(
    step: RankStep,
    rule: BucketRule,
    *,
    base: StepPlan | None = None,
    fuse: bool = True,
    limit_bytes: float | None = None,
) -> Improvement:
    """Search buckets, their order and pieces, and fusions; recompute or accumulate where memory requires it.

    ``base``: the plan to improve (None: the plan of ``rule``).

    Raises:
        InfeasibleError: nothing fits into ``limit_bytes``.
    """
    base = first = rule_plan(step, rule) if base is None else base
    default = simulate(step, base)
    changes: list[PlanChange] = []
    now_s = default.step_s
    if limit_bytes is not None:
        step, base = cheapest_fit(step, [base], limit_bytes)
        fitted_s = simulate(step, base).step_s
        if base != first:
            changes.append(_change("memory", _memory_words(step, base), now_s, fitted_s))
        now_s = fitted_s
    timed = with_recompute(step, base)
    cap, _ = best_cap(timed, rule)
    capped_plan = kept(rule_plan(step, cap), base)
    capped = simulate(step, capped_plan)
    plan, best_s = base, now_s
    for name, what, choice in (
        ("bucket size", f"{float(f'{cap.cap_bytes / 2**20:.3g}'):g} MiB with {rule.setting}", capped_plan),
        *_stages(timed, base, fuse=fuse),
    ):
        tried_s = simulate(step, choice).step_s
        if tried_s < best_s - LEAST_GAIN * default.step_s:
            changes.append(_change(name, what, best_s, tried_s))
        if tried_s < best_s:
            plan, best_s = choice, tried_s
    silent = replace(step, wire=step.wire.faster(1e12), slowdown=1.0)
    return Improvement(
        step=step,
        rule=cap,
        default_plan=first,
        default=default,
        fitted_plan=base,
        capped=capped,
        plan=plan,
        best=simulate(step, plan),
        changes=tuple(changes),
        bound_s=simulate(silent, replace(plan, overlap=True)).step_s,
    )


def _stages(step: RankStep, base: StepPlan, *, fuse: bool) -> list[tuple[str, str, StepPlan]]:
    """Return the plans of the exact searches, each with one more kind of change."""
    groups = best_buckets(step, fuse=False, cut=False)
    stages = [("tensor fusion", f"{len(groups.buckets)} buckets of chosen gradients", groups)]
    cut = best_buckets(step, fuse=False, cut=True)
    if any(pieces > 1 for pieces in cut.pieces):
        stages.append(("tensor partition", f"up to {max(cut.pieces)} pieces per bucket", cut))
    if fuse and any(op.fusable for op in step.ops):
        both = best_buckets(step, fuse=True, cut=True)
        words = f"{len(both.fused)} operators fused with the one before, {len(both.buckets)} buckets"
        stages.append(("operator fusion", words, both))
    return [(name, what, kept(plan, base)) for name, what, plan in stages]


def kept(plan: StepPlan, base: StepPlan) -> StepPlan:
    """Return a plan with the changes that memory requires."""
    return replace(plan, recomputed=base.recomputed, accumulate=base.accumulate)


def with_recompute(step: RankStep, plan: StepPlan) -> RankStep:
    """Return the step with a plan's recomputation added to its backward passes, as input for the search of buckets."""
    ops = tuple(
        replace(op, backward_s=op.backward_s + op.forward_s) if number in plan.recomputed else op
        for number, op in enumerate(step.ops)
    )
    return replace(step, ops=ops)


def _memory_words(step: RankStep, plan: StepPlan) -> str:
    if plan.accumulate > 1:
        return f"{plan.accumulate} passes over parts of the batch, so that it fits"
    return f"{len(plan.recomputed)} of {len(step.ops)} operators recomputed, so that it fits"


def _change(name: str, what: str, before_s: float, after_s: float) -> PlanChange:
    return PlanChange(name=name, what=what, gain_s=before_s - after_s, step_s=after_s)
