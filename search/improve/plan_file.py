"""Plan of an improvement search as a document with framework settings."""

import math
from pathlib import Path
from typing import Any

from forerun.simulator.improve import Improvement
from forerun.spaces.files import write_text


def plan_document(improvement: Improvement) -> dict[str, Any]:
    """Return the plan as plain data, operators by name.

    ``bucket_cap_mib`` is for the framework's own buckets; ``buckets`` are explicit groups of gradients in the order of
    sending (Horovod: ``DistributedOptimizer(groups=…)``; PyTorch: an order of parameters and a communication hook);
    ``fused`` lists runs of operators to compile into one kernel (``torch.compile`` of their modules). ``apply`` is the
    plan as the settings of each framework.
    """
    step, plan = improvement.step, improvement.plan
    return {
        "schema": 1,
        "step": step.name,
        "bucket_cap_mib": improvement.rule.cap_bytes / 2**20,
        "bucket_cap_setting": improvement.rule.setting,
        "buckets": [[step.ops[op].name for op in bucket] for bucket in plan.buckets],
        "pieces": list(plan.pieces) or [1] * len(plan.buckets),
        "fused": [[step.ops[op].name for op in run] for run in fused_runs(plan.fused)],
        "recomputed": [step.ops[op].name for op in sorted(plan.recomputed)],
        "passes_per_exchange": plan.accumulate,
        "overlap": plan.overlap,
        "apply": _settings(improvement),
        "predicted_step_time_s": {
            "default": improvement.default.step_s,
            "capped": improvement.capped.step_s,
            "plan": improvement.best.step_s,
        },
    }


def _settings(improvement: Improvement) -> dict[str, dict[str, Any]]:
    """Return the plan as settings of frameworks.

    ``ddp``: arguments of DistributedDataParallel, the list (since PyTorch 2.13) has a limit per bucket in MiB.
    ``horovod``, ``byteps``: environment variables; a part of BytePS is at most as long as the longest piece.
    ``partition_bytes``: length of a part of each gradient; ``xla``: cluster of each operator that is fused.
    """
    step, plan = improvement.step, improvement.plan
    sizes = [sum(step.ops[op].gradient_bytes for op in bucket) for bucket in plan.buckets]
    pieces = [size / plan.cut(number) for number, size in enumerate(sizes)]
    return {
        "ddp": {
            "bucket_cap_mb": improvement.rule.cap_bytes / 2**20,
            "bucket_cap_mb_list": [size / 2**20 for size in sizes],
        },
        "horovod": {"HOROVOD_FUSION_THRESHOLD": round(improvement.rule.cap_bytes)},
        "byteps": {
            "BYTEPS_PARTITION_BYTES": math.ceil(max(pieces, default=0.0)),
            "partition_bytes": {
                step.ops[op].name: math.ceil(step.ops[op].gradient_bytes / plan.cut(number))
                for number, bucket in enumerate(plan.buckets)
                for op in bucket
            },
        },
        "xla": {
            "clusters": {step.ops[op].name: cluster for cluster, run in enumerate(fused_runs(plan.fused)) for op in run}
        },
    }


def fused_runs(fused: frozenset[int]) -> list[list[int]]:
    """Return the operators of every fused kernel, in order."""
    runs: list[list[int]] = []
    for number in sorted(fused):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number - 1, number])
    return runs


def write_plan(improvement: Improvement, path: Path) -> None:
    """Write the plan as YAML, or as JSON if the name ends in ``.json``.

    Raises:
        RequestError: the file cannot be written.
    """
    import json

    import yaml

    document = plan_document(improvement)
    text = json.dumps(document, indent=2) if path.suffix == ".json" else yaml.safe_dump(document, sort_keys=False)
    write_text(path, text + ("" if text.endswith("\n") else "\n"))
