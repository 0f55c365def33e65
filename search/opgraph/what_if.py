"""Gains of twice the bandwidth, compute or batch."""

import dataclasses
from dataclasses import dataclass

from forerun.search.board.rows import Row, rows_of
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.bottleneck import Bottleneck
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.opgraph.split import Split
from forerun.spaces.units import format_seconds

NOTICED = 0.002
"""Smallest share of a step for which congestion is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubling:
    """``gain``: throughput with over without the change, minus 1; None if it does not fit in memory."""

    what: str
    gain: float | None
    words: str


def wider(cluster: Cluster) -> Cluster:
    """Return ``cluster`` with every link twice as fast."""
    levels = tuple(
        dataclasses.replace(level, bytes_per_s=2 * level.bytes_per_s, port_bytes_per_s=2 * level.port_bytes_per_s)
        for level in cluster.levels
    )
    return dataclasses.replace(cluster, levels=levels)


def stronger(cluster: Cluster) -> Cluster:
    """Return ``cluster`` with devices twice as fast, memory bandwidth included."""
    device = cluster.device
    peaks = {name: 2 * peak for name, peak in device.peak_flops_per_s.items()}
    faster = dataclasses.replace(device, peak_flops_per_s=peaks, memory_bytes_per_s=2 * device.memory_bytes_per_s)
    return dataclasses.replace(cluster, device=faster)


def uncongested(cluster: Cluster) -> Cluster:
    """Return ``cluster`` with full bisection at every level."""
    levels = tuple(
        dataclasses.replace(level, bytes_per_s=level.bytes_per_s * level.oversubscription, oversubscription=1.0)
        for level in cluster.levels
    )
    return dataclasses.replace(cluster, levels=levels)


def doublings(context: GraphContext, row: Row[Split]) -> tuple[Doubling, ...]:
    """Compute the gain of each doubling for the split of ``row``."""
    measured = context.seconds_per_sample
    staged = context.profile.staged_bytes_per_s
    fast_profile = dataclasses.replace(context.profile, staged_bytes_per_s=None if staged is None else 2 * staged)
    cases = (
        ("bandwidth", "all links twice as fast", wider(context.cluster), fast_profile, measured, 1),
        ("compute", "devices twice as fast", stronger(context.cluster), context.profile, _half(measured), 1),
        ("batch", "twice the batch on the same devices", context.cluster, context.profile, measured, 2),
        ("bisection", "no oversubscribed level", uncongested(context.cluster), context.profile, measured, 1),
    )
    rows = []
    for what, words, cluster, profile, seconds, factor in cases:
        if what == "bisection" and all(level.oversubscription == 1.0 for level in context.cluster.levels):
            continue
        changed = dataclasses.replace(
            context,
            cluster=cluster,
            profile=profile,
            seconds_per_sample=seconds,
            global_batch=factor * context.batch(row.gpus),
        )
        (new,) = rows_of(changed, [row.strategy])
        if not new.fits:  # the same microbatch, gradients exchanged half as often
            more = dataclasses.replace(row.strategy, segments=row.strategy.segments * factor)
            (new,) = rows_of(changed, [more])
            words = f"{words}, in {more.segments} segment{'s' if more.segments > 1 else ''}"
        gain = new.throughput / row.throughput - 1.0 if new.fits else None
        rows.append(Doubling(what=what, gain=gain, words=words))
    return tuple(rows)


def congestion(context: GraphContext, row: Row[Split]) -> tuple[Bottleneck, ...]:
    """Return the time class of oversubscribed links (part of the exchanges' time), if they add to a step."""
    changed = dataclasses.replace(context, cluster=uncongested(context.cluster))
    (free,) = rows_of(changed, [row.strategy])
    added = row.step_time_s - free.step_time_s
    if added < NOTICED * row.step_time_s:
        return ()
    words = f"{format_seconds(added)} of the exchanges, on links with less than full bisection"
    return (Bottleneck(name="congestion", seconds=None, words=words, inference=True),)


def _half(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 2


def phases(row: Row[Split]) -> dict[str, float]:
    """Return the four phases of a step: input, forward and backward with their communication, gradient exchange with
    the wait for the slowest replica, weight update."""
    parts = row.breakdown_s
    between = sum(parts[name] for name in ("halo", "collective", "tail", "p2p", "bubble"))
    return {
        "input": parts["input"],
        "forward and backward": parts["forward"] + parts["backward"] + between,
        "gradient exchange": parts["gradient"] + parts["straggler wait"],
        "weight update": parts["update"],
    }
