"""Default buckets of frameworks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
