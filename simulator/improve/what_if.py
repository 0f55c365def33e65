"""What if the machine or the way of working were another: each change alone, on the framework's plan and on the best."""

from dataclasses import dataclass, replace

from forerun.simulator.improve.search import Improvement
from forerun.simulator.improve.step import Op, Plan, Step, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A question. ``default_s``, ``best_s``: seconds per pass over the batch with the framework's and the best plan."""

    name: str
    what: str
    default_s: float
    best_s: float


def what_ifs(step: Step, found: Improvement) -> tuple[WhatIf, ...]:
    """Return the standard questions, with the times that answer them."""

    def ask(name: str, what: str, changed: Step, **more: object) -> WhatIf:
        def seconds(own: Step, plan: Plan) -> float:
            return simulate(own, replace(plan, **more)).pass_s  # type: ignore[arg-type]  # fields of Plan

        own = changed if found.step is step else found.step
        return WhatIf(
            name=name,
            what=what,
            default_s=seconds(changed, found.default_plan),
            best_s=seconds(own if more else _as(found.step, changed, step), found.plan),
        )

    answers = [ask("as it is", "", step)]
    for factor in (2.0, 4.0):
        faster = replace(step, wire=step.wire.faster(factor))
        answers.append(ask("faster link", f"{factor:g} times the bandwidth", faster))
    for factor in (1.5, 2.0):
        answers.append(ask("faster kernels", f"all {factor:g} times as fast", scaled(step, factor)))
    name, faster_one = fastest_gain(step, 2.0)
    answers.append(ask("faster kernel", f"{name} twice as fast", faster_one))
    answers.append(ask("no overlap", "messages behind the backward pass", step, overlap=False))
    for passes in (2, 4):
        answers.append(
            ask("accumulation", f"{passes} passes per exchange ({passes} times the global batch)", step, accumulate=passes)
        )
    return tuple(answers)


def scaled(step: Step, factor: float) -> Step:
    """Return the step with all operators ``factor`` times as fast."""
    return replace(step, ops=tuple(_faster(op, factor) for op in step.ops))


def fastest_gain(step: Step, factor: float) -> tuple[str, Step]:
    """Return the kind of operator (name up to its number) that takes most time, and the step with it faster."""
    totals: dict[str, float] = {}
    for op in step.ops:
        totals[kind_of(op)] = totals.get(kind_of(op), 0.0) + op.forward_s + op.backward_s
    most = max(totals, key=lambda kind: (totals[kind], kind))
    return most, replace(step, ops=tuple(_faster(op, factor) if kind_of(op) == most else op for op in step.ops))


def kind_of(op: Op) -> str:
    """Return what an operator is called without numbers."""
    last = op.name.replace("/", ".").split(".")[-1]
    return last.rstrip("0123456789_") or op.name


def _faster(op: Op, factor: float) -> Op:
    return replace(
        op,
        forward_s=op.forward_s / factor,
        backward_s=op.backward_s / factor,
        fused_forward_s=op.fused_forward_s / factor,
        fused_backward_s=op.fused_backward_s / factor,
    )


def _as(own: Step, changed: Step, step: Step) -> Step:
    """Return the step of the best plan with the change that ``changed`` has against ``step``."""
    if own is step:
        return changed
    ops = tuple(
        replace(
            op,
            forward_s=op.forward_s * _ratio(new.forward_s, old.forward_s),
            backward_s=op.backward_s * _ratio(new.backward_s, old.backward_s),
        )
        for op, new, old in zip(own.ops, changed.ops, step.ops, strict=True)
    )
    return replace(own, ops=ops, wire=changed.wire)


def _ratio(new: float, old: float) -> float:
    return new / old if old else 1.0
