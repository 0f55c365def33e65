"""Splits of a small model that were really run, predicted from operators of one rank and messages between two.

A small language model was trained by 1 to 4 processes in network namespaces with limited NICs, with data, tensor and
pipeline parallelism (the script that ran it: benchmarks/results/README.md). What predictions see: the operators that
forerun asks for, timed on one rank, and collectives of two ranks, through a profile as ``forerun profile`` writes it.
"""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from forerun.search.measured.profiling import Line, Profile, operators_of
from forerun.search.measured.profiling.messages import MeasuredCollective
from forerun.simulator import score
from forerun.simulator.costs import collective_time_s
from forerun.simulator.events import event_scores, simulate
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import transformer
from forerun.spaces.strategies import Context, Strategy, table_of
from forerun.spaces.workload import Workload

BATCH = 16
HIDDEN, LAYERS, HEADS, VOCAB, LENGTH = 64, 4, 4, 1024, 256
APART = 0.10
CLUSTER = """\
title: namespaces on one machine
device:
  name: emulated
  memory: 8GiB
  memory_rate: 10GB/s
  peak: {{fp32: 50TFLOP/s}}
  compute_units: 1
  matmul_ceiling: {{fp32: 0.9}}
  memory_efficiency: 0.8
  host_rate: 5GB/s
devices_per_node: 1
max_devices: 4
scale_up: none
network: {{kind: ethernet, nics_per_node: 1, nic_rate: {rate:.6g}Mb/s}}
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One strategy: its measured step (median, and lowest and highest of the rounds) and both predictions."""

    strategy: str
    ranks: int
    step_s: float
    low_s: float
    high_s: float
    closed_s: float
    events_s: float
    busy_error: float
    """Largest relative error of the busy time of a rank's device."""

    @property
    def error(self) -> float:
        """Of the closed forms, relative."""
        return self.closed_s / self.step_s - 1


def strategies() -> Iterator[Strategy]:
    """Yield the strategies that are run."""
    for dp, tp, pp in ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4)):
        yield Strategy(dp=dp, tp=tp, pp=pp, mbs=2)
    for dp, tp, pp in ((2, 2, 1), (2, 1, 2), (1, 2, 2)):
        yield Strategy(dp=dp, tp=tp, pp=pp, mbs=2)
    for dp, tp, pp, mbs in ((1, 2, 1, 8), (1, 1, 2, 4), (1, 1, 4, 1), (2, 2, 1, 4), (2, 1, 2, 1), (1, 2, 2, 4)):
        yield Strategy(dp=dp, tp=tp, pp=pp, mbs=mbs)


def request(rate_bits_per_s: float) -> Context:
    """Return the request that is predicted: the model, the namespaces, and a trainer that overlaps only its hops."""
    model = transformer(
        "small",
        layers=LAYERS,
        hidden=HIDDEN,
        ffn_hidden=4 * HIDDEN,
        heads=HEADS,
        vocab=VOCAB,
        gated=False,
        norm_bias=True,
        learned_positions=LENGTH,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "namespaces.yaml")
        path.write_text(CLUSTER.format(rate=rate_bits_per_s / 1e6), encoding="utf-8")
        cluster = resolve_cluster(str(path))
    trainer = replace(
        load_framework("megatron-lm"),
        overlap_gradients=0.0,
        overlap_parameters=0.0,
        overlap_tensor=0.0,
        overlap_tensor_backward=0.0,
        host_layer_s=0.0,
        host_step_s=0.0,
        host_microbatch_s=0.0,
        collective_launch_s=0.0,
    )
    workload = Workload(global_batch=BATCH, seq_len=LENGTH, precision="fp32")
    return Context(model=model, cluster=cluster, workload=workload, framework=trainer)


def predicted(rows: Sequence[dict[str, Any]]) -> list[Row]:
    """Predict every strategy from the profile rows."""
    context = request(float(rows[0]["nic_bits_per_s"]))
    known = {one.key: one for one in operators_of(context, list(strategies()))}
    operators, collectives = [], []
    for row in rows:
        shape = tuple(float(value) for value in str(row["shape"]).split())
        seconds = float(row["seconds"])
        if row["what"] == "operators":
            one = known.get(f"{row['name']} {row['shape']}")
            if one is not None:
                operators.append(Line(name=one.name, shape=shape, seconds=seconds, spread=0.0, fitted_s=one.fitted_s))
        elif row["what"] == "messages":
            message = MeasuredCollective(
                kind=row["name"], full_bytes=int(shape[0]), ranks=int(shape[1]), stride=int(shape[2])
            )
            fitted = float(collective_time_s(context.cluster, row["name"], *shape))
            name = f"{message.kind} network"
            collectives.append(Line(name=name, shape=shape, seconds=seconds, spread=0.0, fitted_s=fitted))
    profile = Profile(
        source="profile", device="emulated", made={}, operators=tuple(operators), collectives=tuple(collectives),
        skipped={},
    )  # fmt: skip
    profiled, _ = profile.applied(context)
    table = table_of(list(strategies()))
    closed, events = score(profiled, table), event_scores(profiled, table)
    measured = {row["name"]: row for row in rows if row["what"] == "step"}
    result = []
    for place, strategy in enumerate(strategies()):
        row = measured[str(strategy)]
        result.append(
            Row(
                strategy=str(strategy),
                ranks=strategy.devices,
                step_s=float(row["seconds"]),
                low_s=float(row["low_s"]),
                high_s=float(row["high_s"]),
                closed_s=float(closed.step_time_s[place]),
                events_s=float(events.step_time_s[place]),
                busy_error=_busy_error(profiled, strategy, rows),
            )
        )
    return result


def _busy_error(context: Context, strategy: Strategy, rows: Sequence[dict[str, Any]]) -> float:
    """Return the largest relative error of the time that a rank's device is busy."""
    stages, per_stage = simulate(context, strategy).stages, strategy.tp * strategy.dp
    errors = [
        stages[int(row["shape"]) // per_stage].busy_s / float(row["seconds"]) - 1
        for row in rows
        if row["what"] == "busy" and row["name"] == str(strategy)
    ]
    return max(errors, key=abs, default=float("nan"))


def judged(rows: Sequence[Row]) -> dict[str, float]:
    """Return errors and order of what was predicted (not of the single rank that was profiled)."""
    targets = [row for row in rows if row.ranks > 1]
    figures: dict[str, float] = {"rows": len(targets)}
    for name in ("closed", "events"):
        errors = sorted(abs(getattr(row, f"{name}_s") / row.step_s - 1) for row in targets)
        figures[f"{name}_median_pct"] = 100 * statistics.median(errors)
        figures[f"{name}_worst_pct"] = 100 * errors[-1]
        pairs = [
            (a, b) for a, b in combinations(targets, 2) if max(a.step_s, b.step_s) / min(a.step_s, b.step_s) - 1 > APART
        ]
        right = [(getattr(a, f"{name}_s") < getattr(b, f"{name}_s")) == (a.step_s < b.step_s) for a, b in pairs]
        figures["pairs"], figures[f"{name}_order_pct"] = len(pairs), 100 * sum(right) / len(right)
    return figures
