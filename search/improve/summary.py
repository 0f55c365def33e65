"""The document of ``improve --json``: the improvements of a search as plain data."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from forerun.search.improve.plan_file import plan_document
from forerun.search.improve.sources import ImproveSource
from forerun.simulator.improve import Improvement, WhatIf
from forerun.simulator.improve.run_questions import Question


def summary(
    source: ImproveSource,
    improvement: Improvement,
    asked: tuple[WhatIf, ...],
    run: tuple[Question, ...],
    elapsed_s: float,
) -> dict[str, Any]:
    """Return the document; times in seconds, the gain as a share of the default step."""
    return {
        "schema": 1,
        "step": improvement.step.name,
        "operators": len(improvement.step.ops),
        "operators_with_gradients": len(improvement.step.senders),
        "gradient_bytes": improvement.step.gradient_bytes,
        "measured_step_time_s": None if source.analysis is None else source.analysis.replay.step_s,
        "default_step_time_s": improvement.default.step_s,
        "default_buckets": len(improvement.default_plan.buckets),
        "best_step_time_s": improvement.best.step_s,
        "free_messages_step_time_s": improvement.bound_s,
        "gain": improvement.gain,
        "changes": [asdict(change) for change in improvement.changes],
        "plan": plan_document(improvement),
        "buckets": list(_buckets(improvement)),
        "what_if": [asdict(one) for one in asked],
        "run_what_if": [asdict(one) for one in run],
        "strategies": [asdict(one) for one in source.alternatives],
        "notes": list(source.notes),
        "elapsed_s": elapsed_s,
    }


def _buckets(improvement: Improvement) -> Iterator[dict[str, Any]]:
    """Yield the buckets of the plan in the order of sending; ``ready_s`` and ``sent_s`` from the start of the step."""
    step, plan = improvement.step, improvement.plan
    for number, bucket in enumerate(plan.buckets):
        yield {
            "first": step.ops[bucket[0]].name,
            "last": step.ops[bucket[-1]].name,
            "gradients": len(bucket),
            "bytes": sum(step.ops[op].gradient_bytes for op in bucket),
            "pieces": plan.cut(number),
            "ready_s": improvement.best.ready_s[number],
            "sent_s": improvement.best.sent_s[number],
        }
