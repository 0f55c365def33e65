"""Changes to a request whose effect has a known sign, and a check of all legal candidates at once."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from forerun_examples import dense_model, moe_model, request, small_cluster

from forerun.simulator import score
from forerun.spaces.clusters import Cluster
from forerun.spaces.strategies import Context, Schedule, Split, StrategyTable

ROUNDING = 1e-9
NETWORKS = (0.5e9, 5e9, 50e9)
"""Bytes per second of the network: where communication is everything, much and little of a step."""


def examples(framework: str) -> list[Context]:
    """Requests over three networks: a dense model and a mixture (the latter on the middle network)."""
    dense = dense_model(layers=8, heads=32, kv_heads=8)
    found = []
    for network in NETWORKS:
        context = request(dense, framework=framework, cluster=small_cluster(network=network), global_batch=16)
        found.append(replace(context, workload=replace(context.workload, seq_len=4096)))
    found.append(replace(found[1], model=moe_model(layers=10, experts=8)))
    return found


def never_slower(better: Context, worse: Context, table: StrategyTable) -> None:
    """Assert that no candidate takes longer under ``better`` than under ``worse``."""
    table = steady(worse, table)
    if not len(table):
        return
    ratio = score(better, table).step_time_s / score(worse, table).step_time_s
    worst = int(np.argmax(ratio))
    assert ratio[worst] <= 1 + ROUNDING, (
        f"{np.count_nonzero(ratio > 1 + ROUNDING)} of {len(table)}, worst {table.strategy(worst)}: "
        f"{better.framework.name}, {ratio[worst]:.6f} of the time"
    )


def with_flops(context: Context, factor: float) -> Context:
    """Matrix units ``factor`` times as fast."""
    peaks = context.cluster.device.peak_flops_per_s
    return _with_device(context, peak_flops_per_s=_times(peaks, factor))


def with_memory_rate(context: Context, factor: float) -> Context:
    """Device memory ``factor`` times as fast."""
    return _with_device(context, memory_bytes_per_s=context.cluster.device.memory_bytes_per_s * factor)


def with_memory(context: Context, memory_bytes: float) -> Context:
    """Another amount of device memory."""
    return _with_device(context, memory_bytes=memory_bytes)


def with_links(context: Context, factor: float, *, only: int | None = None) -> Context:
    """Links of all levels, or of one alone, ``factor`` times as fast."""
    cluster = context.cluster
    levels = tuple(
        replace(level, bytes_per_s=level.bytes_per_s * factor, port_bytes_per_s=level.port_bytes_per_s * factor)
        if only is None or only == number
        else level
        for number, level in enumerate(cluster.levels)
    )
    return _with_cluster(context, replace(cluster, levels=levels))


def steady(context: Context, table: StrategyTable) -> StrategyTable:
    """Candidates without a pipeline, or with microbatches enough that one of them is little of a step.

    Where a pipeline has but two microbatches the time in which traffic can hide is an estimate that may fall faster
    than the step does; so it may, by up to 1 % of the step, where traffic comes with every microbatch of a pipeline.
    Left out too are ZB-V (of a backward pass that its launches decide, faster products leave more to input gradients,
    which stand in its way) and unequal virtual stages that take turns (their longest path is looked for by nominal
    times, which another request changes).
    """
    count = context.workload.global_batch // (table.column("dp") * table.column("mbs"))
    schedule = table.column("schedule")
    looped = (schedule == Schedule.INTERLEAVED) & (table.column("split") != Split.EVEN)
    estimate = (table.column("zero") >= 2) | (schedule == Schedule.ZB_V) | looped
    return table.take(((count > 2) & ~estimate) | (table.column("pp") == 1))


def _with_device(context: Context, **changes: object) -> Context:
    device = replace(context.cluster.device, **changes)  # type: ignore[arg-type]  # values of the fields' types
    return _with_cluster(context, replace(context.cluster, device=device))


def _with_cluster(context: Context, cluster: Cluster) -> Context:
    return replace(context, cluster=cluster)


def _times(values: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in values.items()}
