"""One data-parallel step for a search: the operators of one rank, their gradients, and the wire.

All ranks are equal, so one represents all; consecutive operators without a gradient between them are merged (the
coarsened view). A ``StepPlan`` has the possible changes, and ``simulate`` gives their outcome.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forerun.simulator.improve.wires import Wire
from forerun.spaces.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An operator of the forward pass, with its backward pass.

    ``gradient_bytes``: of its parameters on the wire (0: none). ``fused_forward_s``, ``fused_backward_s``: seconds
    saved by one kernel with the preceding operator (both 0: not possible or no saving). ``kept_bytes``: activations
    kept for its backward pass, unless it is recomputed.
    """

    name: str
    forward_s: float
    backward_s: float
    gradient_bytes: float = 0.0
    fused_forward_s: float = 0.0
    fused_backward_s: float = 0.0
    kept_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("forward_s", "backward_s", "gradient_bytes", "fused_forward_s", "fused_backward_s", "kept_bytes"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise RequestError(f"{name} of an operator is finite and at least 0, but got {value} for {self.name!r}")

    @property
    def fusable(self) -> bool:
        """Whether fusing it with the preceding operator saves time."""
        return self.fused_forward_s + self.fused_backward_s > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """Work of one rank in a step.

    ``ops``: in the order of the forward pass. ``order``: indices of the operators with gradients in the framework's
    order of filling buckets (empty: as gradients become ready). ``update_s``: optimizer; ``host_s``: further host time
    per step. ``slowdown``: factor on computation while a message is under way. ``message_s``: computation time lost to
    packing and launching a message. ``least_s``: lower bound of a step (loading). ``fixed_bytes``: memory without
    activations.
    """

    name: str
    ops: tuple[Op, ...]
    wire: Wire
    order: tuple[int, ...] = ()
    update_s: float = 0.0
    host_s: float = 0.0
    slowdown: float = 1.0
    message_s: float = 0.0
    least_s: float = 0.0
    fixed_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not self.ops:
            raise RequestError(f"a step has one or more operators, but {self.name!r} has none")
        if not self.slowdown >= 1:
            raise RequestError(f"a slowdown is a factor of at least 1, but got {self.slowdown}")

    @property
    def senders(self) -> tuple[int, ...]:
        """Operators with gradients, in the order in which the gradients become ready."""
        return tuple(number for number in range(len(self.ops) - 1, -1, -1) if self.ops[number].gradient_bytes > 0)

    @property
    def gradient_bytes(self) -> float:
        """Bytes of all gradients."""
        return math.fsum(op.gradient_bytes for op in self.ops)

    @property
    def compute_s(self) -> float:
        """Seconds of a step without any message or change."""
        return self.host_s + self.update_s + math.fsum(op.forward_s + op.backward_s for op in self.ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The choices of a step.

    ``buckets``: indices of the operators of each bucket, in the order of sending; ``pieces``: number of parts of each
    bucket. ``fused``: operators computed in one kernel with the preceding one. ``recomputed``: operators whose forward
    pass runs again before their backward pass. ``accumulate``: passes per exchange. ``overlap``: whether messages run
    during the backward pass.
    """

    buckets: tuple[tuple[int, ...], ...]
    pieces: tuple[int, ...] = ()
    fused: frozenset[int] = frozenset()
    recomputed: frozenset[int] = frozenset()
    accumulate: int = 1
    overlap: bool = True

    def cut(self, bucket: int) -> int:
        """Return the number of pieces of a bucket."""
        return self.pieces[bucket] if self.pieces else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """Seconds of a step under a plan.

    ``pass_s``: the step divided by its accumulated passes, the measure that compares plans. ``exposed_s``: messages
    after the last backward pass. ``ready_s``, ``sent_s``: per bucket, from the step's start.
    """

    step_s: float
    pass_s: float
    exposed_s: float
    memory_bytes: float
    ready_s: tuple[float, ...] = field(default=())
    sent_s: tuple[float, ...] = field(default=())


def simulate(step: RankStep, plan: StepPlan) -> PlanOutcome:
    """Simulate a step: operators in sequence, buckets in sequence, each as soon as it is full.

    While a message is under way, computation is slower by ``slowdown``. Linear in operators and buckets.

    Raises:
        RequestError: the buckets do not contain every gradient exactly once.
    """
    check(step, plan)
    bucket_of = {op: number for number, bucket in enumerate(plan.buckets) for op in bucket}
    missing = [len(bucket) for bucket in plan.buckets]
    forward_s = math.fsum(op.forward_s for op in step.ops) - math.fsum(step.ops[n].fused_forward_s for n in plan.fused)
    alone_s = math.fsum(work for work, _ in _backward(step, plan))
    now = step.host_s + forward_s + (plan.accumulate - 1) * (forward_s + alone_s)
    wires = _wires_s(step, plan)
    ready: list[float] = [0.0] * len(plan.buckets)
    sent: list[float] = [0.0] * len(plan.buckets)
    free, following = 0.0, 0
    for work, ops in _backward(step, plan):
        now = advance(now, work, free, step.slowdown if plan.overlap else 1.0)
        for op in ops:
            if op not in bucket_of:
                continue
            missing[bucket_of[op]] -= 1
            if not missing[bucket_of[op]]:
                now += step.message_s
                ready[bucket_of[op]] = now
        while plan.overlap and following < len(missing) and not missing[following]:
            free = max(free, now) + wires[following]
            sent[following] = free
            following += 1
    end = now
    for number in range(following, len(missing)):
        free = max(free, end) + wires[number]
        sent[number] = free
    step_s = max(max(end, free) + step.update_s, step.least_s)
    return PlanOutcome(
        step_s=step_s,
        pass_s=step_s / plan.accumulate,
        exposed_s=max(free - end, 0.0),
        memory_bytes=memory_bytes(step, plan),
        ready_s=tuple(ready),
        sent_s=tuple(sent),
    )


def advance(now: float, work_s: float, free: float, slowdown: float) -> float:
    """Return the end of work that starts at ``now``, ``slowdown`` times slower during messages (until ``free``)."""
    if free <= now or slowdown == 1:
        return now + work_s
    done_s = (free - now) / slowdown
    return now + work_s * slowdown if work_s <= done_s else free + work_s - done_s


def _backward(step: RankStep, plan: StepPlan) -> list[tuple[float, tuple[int, ...]]]:
    """Return (seconds, operators) of every kernel of the backward pass, fused ones together."""
    kernels: list[tuple[float, tuple[int, ...]]] = []
    joined: list[int] = []
    seconds = 0.0
    for number in range(len(step.ops) - 1, -1, -1):
        op = step.ops[number]
        seconds += op.backward_s + (op.forward_s if number in plan.recomputed else 0.0)
        joined.append(number)
        if number in plan.fused:
            seconds -= op.fused_backward_s
        else:
            kernels.append((max(seconds, 0.0), tuple(joined)))
            joined, seconds = [], 0.0
    if joined:
        kernels.append((max(seconds, 0.0), tuple(joined)))
    return kernels


def _wires_s(step: RankStep, plan: StepPlan) -> list[float]:
    """Return the seconds of every bucket on the wire."""
    sizes = np.array([math.fsum(step.ops[op].gradient_bytes for op in bucket) for bucket in plan.buckets])
    cuts = np.array([plan.cut(bucket) for bucket in range(len(plan.buckets))], dtype=np.float64)
    seconds: list[float] = step.wire.seconds(sizes, cuts).tolist() if len(sizes) else []
    return seconds


def memory_bytes(step: RankStep, plan: StepPlan) -> float:
    """Return the bytes at the end of the forward pass; with recomputation, plus the largest recomputed operator."""
    kept = math.fsum(op.kept_bytes for number, op in enumerate(step.ops) if number not in plan.recomputed)
    recomputed = max((step.ops[number].kept_bytes for number in plan.recomputed), default=0.0)
    return step.fixed_bytes + kept + recomputed


def check(step: RankStep, plan: StepPlan) -> None:
    """Check that a plan belongs to a step.

    Raises:
        RequestError: a gradient is in no bucket or in two, a fused or recomputed operator does not exist, or there are
            fewer than one pass or piece.
    """
    ops = sorted(op for bucket in plan.buckets for op in bucket)
    if ops != sorted(step.senders):
        raise RequestError(
            f"the buckets of a plan contain every gradient once, but {len(step.senders)} operators of {step.name} have "
            f"gradients and the buckets contain {len(ops)}, {len(set(ops))} of them different"
        )
    wrong = [number for number in plan.fused | plan.recomputed if not 0 <= number < len(step.ops)]
    if wrong or 0 in plan.fused:
        raise RequestError(f"operators of {step.name} are 0 to {len(step.ops) - 1}, 0 has none before it to fuse with")
    if plan.accumulate < 1 or any(pieces < 1 for pieces in plan.pieces):
        raise RequestError("passes per exchange and pieces of a bucket are at least 1")
    if plan.pieces and len(plan.pieces) != len(plan.buckets):
        raise RequestError(f"{len(plan.buckets)} buckets have as many pieces, but got {len(plan.pieces)}")


def coarse(step: RankStep) -> tuple[RankStep, tuple[tuple[int, ...], ...]]:
    """Return the step with plain operators merged into their neighbours, and the members of each merged operator.

    Operators between two gradients run in sequence in any plan; without the start or end of a fusion among them, a
    search over buckets treats them as one operator.
    """
    groups: list[list[int]] = []  # -1 heads groups that may take another plain operator
    for number, op in enumerate(step.ops):
        # Plain: no plan decides anything at its end, neither a bucket (it has no gradient) nor a fusion with its
        # neighbours.
        after = step.ops[number + 1] if number + 1 < len(step.ops) else None
        plain = not op.gradient_bytes and not op.fusable and not (after is not None and after.fusable)
        last_plain = bool(groups) and groups[-1][0] < 0
        if plain and last_plain:
            groups[-1].append(number)
        else:
            groups.append([-1, number] if plain else [number])
    members = tuple(tuple(number for number in group if number >= 0) for group in groups)
    joined = []
    for group in members:
        first = step.ops[group[0]]
        joined.append(
            first
            if len(group) == 1
            else Op(
                name=f"{first.name}..{step.ops[group[-1]].name}",
                forward_s=math.fsum(step.ops[number].forward_s for number in group),
                backward_s=math.fsum(step.ops[number].backward_s for number in group),
                kept_bytes=math.fsum(step.ops[number].kept_bytes for number in group),
            )
        )
    place = {number: new for new, group in enumerate(members) for number in group}
    order = tuple(place[number] for number in step.order)
    return replace(step, ops=tuple(joined), order=order), members


def spread(plan: StepPlan, members: Sequence[tuple[int, ...]]) -> StepPlan:
    """Return a plan of the coarse step as a plan of the full step; ``members``: operators of each merged operator."""
    return replace(
        plan,
        buckets=tuple(tuple(members[op][0] for op in bucket) for bucket in plan.buckets),
        fused=frozenset(members[op][0] for op in plan.fused),
        recomputed=frozenset(number for op in plan.recomputed for number in members[op]),
    )
