"""Analytic model of training modes: a sequence of phases, queues in closed form, overlap by a heuristic.

Synchronous: every phase takes the time of the fullest NIC, the passes the mean time of the slowest worker.
Asynchronous: workers are the customers of a closed queueing network whose stations are the NICs and update units of the
servers. The overlap of transfers and passes is known for one worker only; more workers are assumed to have the same
exposed share. All-reduce needs no heuristic: buckets are sent one after the other, each when its last gradient is
ready.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from forerun.simulator.costs.slowest import Floats, expected_order, lognormal_factors
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.prediction import ModePrediction
from forerun.simulator.modes.profile import GradientProfile
from forerun.simulator.modes.queueing import ClosedNetwork, mean_value_analysis, mean_value_classes, server_loads
from forerun.simulator.opgraph.messages import Messages, exposed_s
from forerun.spaces.errors import RequestError


def analytic_prediction(
    profile: GradientProfile,
    mode: TrainingMode,
    network: ModeNetwork,
    disturbance: Disturbance | None = None,
    *,
    one_worker_s: float | None = None,
) -> ModePrediction:
    """Return the throughput of a mode.

    ``one_worker_s``: measured or simulated step of one worker with the same servers and overlap, which gives the hidden
    share of the transfers (None: nothing is hidden). An all-reduce does not need it.

    Raises:
        RequestError: a slow worker does not exist, or shards outnumber the layers or parameters to place on them.
    """
    noise = disturbance or Disturbance()
    check_slow(noise.slow, mode.workers)
    factors = draws(profile, noise)
    if mode.exchange == "all-reduce":
        prediction = _all_reduce(profile, mode, network, noise, factors)
    elif mode.synchronous:
        prediction = _synchronous(profile, mode, network, noise, factors, one_worker_s)
    else:
        prediction = _asynchronous(profile, mode, network, noise, one_worker_s)
    return prediction.no_faster_than(profile.loading_s(mode.workers))


def check_slow(slow: Mapping[int, float], workers: int) -> None:
    """Raise ``RequestError`` for a slow worker that does not exist."""
    for worker in slow:
        if not 0 <= worker < workers:
            raise RequestError(f"slow worker {worker} does not exist; use 0 to {workers - 1}")


def draws(profile: GradientProfile, noise: Disturbance) -> Floats:
    """Return equally likely factors of a step's passes: sampled ones, otherwise log-normal with the given jitter.

    Raises:
        RequestError: both are given.
    """
    if not profile.step_factors:
        return lognormal_factors(noise.jitter)
    if noise.jitter:
        raise RequestError("a profile with step_factors has its own jitter; leave out either")
    values = np.asarray(profile.step_factors, dtype=np.float64)
    return np.asarray(values / values.mean())


def _all_reduce(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance, factors: Floats
) -> ModePrediction:
    slowest_s = profile.compute_s * expected_order(factors, noise.slow, mode.workers, mode.workers)
    buckets = mode.buckets(profile) if mode.workers > 1 else ()
    shown_s = exposed_all_reduce_s(profile, mode, network) + network.rendezvous_s(mode.workers)
    step_s = slowest_s + shown_s + profile.update_s
    whole_s = sum(_bucket_times(profile, mode, network, buckets))
    return ModePrediction(
        model="analytic",
        workers=mode.workers,
        step_s=step_s,
        samples_per_s=mode.workers * profile.batch / step_s,
        parts_s={
            "compute": profile.compute_s,
            "straggler wait": slowest_s - profile.compute_s,
            "exchange": shown_s,
            "update": profile.update_s,
        },
        bound_samples_per_s=mode.workers * profile.batch / whole_s if whole_s else math.inf,
    )


def _bucket_times(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, buckets: Sequence[Sequence[int]]
) -> list[float]:
    sizes = [sum(profile.layers[layer].reduced_bytes(mode.workers) for layer in bucket) for bucket in buckets]
    return [network.all_reduce_s(size, mode.workers) for size in sizes]


def exposed_all_reduce_s(profile: GradientProfile, mode: TrainingMode, network: ModeNetwork) -> float:
    """Return the seconds that all-reduces add to the passes: one at a time, in the order of the buckets.

    Without overlap all of them begin when the backward pass ends.
    """
    buckets = mode.buckets(profile) if mode.workers > 1 else ()
    times = np.array([_bucket_times(profile, mode, network, buckets)])
    if not mode.overlap or not buckets:
        return float(times.sum())
    after = np.cumsum([layer.backward_s for layer in reversed(profile.layers)])
    last = len(after) - 1
    messages = Messages(
        bytes_NB=np.ones_like(times), ready_NB=np.array([[after[last - bucket[-1]] for bucket in buckets]])
    )
    blocked = np.array([network.blocked_s(mode.workers)])
    return float(exposed_s(messages, times, blocked, after[-1:])[0])


def _unhidden(profile: GradientProfile, update_s: float, transfers_s: float, one_worker_s: float | None) -> float:
    """Return the fraction of one worker's transfers that is exposed: 1 less the hidden fraction."""
    if one_worker_s is None or not transfers_s:
        return 1.0
    hidden_s = transfers_s + profile.compute_s + update_s - one_worker_s
    return min(max(1 - hidden_s / transfers_s, 0.0), 1.0)


def _one_worker(mode: TrainingMode) -> TrainingMode:
    """Return the mode with one worker; its servers are on other nodes, as most co-located ones are."""
    return replace(mode, workers=1, colocated=False, backup_workers=0)


def _synchronous(
    profile: GradientProfile,
    mode: TrainingMode,
    network: ModeNetwork,
    noise: Disturbance,
    factors: Floats,
    one_worker_s: float | None,
) -> ModePrediction:
    senders = mode.workers - mode.backup_workers
    down_s = server_loads(profile, mode, network, mode.workers).phase_s + network.latency_s
    loads = server_loads(profile, mode, network, senders)
    up_s = loads.phase_s + network.latency_s
    alone_s = 2 * (server_loads(profile, _one_worker(mode), network, 1).alone_s + network.latency_s)
    update_s = profile.update_s * max(loads.shard_bytes) / (profile.total_bytes or 1.0)
    slowest_s = profile.compute_s * expected_order(factors, noise.slow, mode.workers, senders)
    shown = _unhidden(profile, update_s, alone_s, one_worker_s) if mode.overlap else 1.0
    # Two phases of transfers share no NIC direction: with a barrier per layer they run at the same time.
    floor_s = down_s + up_s if mode.barrier == "step" else max(down_s, up_s)
    step_s = max(slowest_s + shown * (down_s + up_s), floor_s)
    if mode.barrier == "step":
        # No gradient is ready before all parameters have arrived: only forward passes hide downloads.
        backward_s = slowest_s * profile.backward_s / profile.compute_s
        step_s = max(step_s, max(down_s, slowest_s - backward_s) + max(up_s, backward_s))
    step_s += update_s
    return ModePrediction(
        model="analytic",
        workers=mode.workers,
        step_s=step_s,
        samples_per_s=senders * profile.batch / step_s,
        parts_s={
            "compute": profile.compute_s,
            "straggler wait": slowest_s - profile.compute_s,
            "exchange": step_s - slowest_s - update_s,
            "update": update_s,
        },
        bound_samples_per_s=senders * profile.batch / floor_s if floor_s else math.inf,
    )


def _asynchronous(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance, one_worker_s: float | None
) -> ModePrediction:
    loads = server_loads(profile, mode, network, 1)
    share = [size / (profile.total_bytes or 1.0) for size in loads.shard_bytes]
    update = [profile.update_s * part for part in share]
    demand = [*loads.shard_s, *loads.shard_s, *(part for part in update if part)]
    # Stations follow each other in the queueing network, while shards work in parallel. The excess, and the additional
    # time of the worker's own NIC, is added to the time away from the stations.
    transfers_s = 2 * (loads.alone_s + network.latency_s)
    alone = server_loads(profile, _one_worker(mode), network, 1)
    apart_s = 2 * (alone.alone_s + network.latency_s)
    shown = _unhidden(profile, max(update), apart_s, one_worker_s) if mode.overlap else 1.0
    extra_s = shown * transfers_s + max(update) - sum(demand)
    counts: dict[float, int] = {}
    for worker in range(mode.workers):
        factor = noise.slow.get(worker, 1.0)
        counts[factor] = counts.get(factor, 0) + 1
    think = [profile.compute_s * factor + extra_s for factor in counts]
    solved = _solve(think, list(counts.values()), demand)
    widest_s = max(demand, default=0.0)
    rate = min(solved.cycles_per_s, 1 / widest_s) if widest_s else solved.cycles_per_s
    scale = solved.cycles_per_s / rate
    cycles = [cycle_s * scale for cycle_s in solved.cycle_s]
    mean_cycle_s = mode.workers / rate
    compute_s = (
        sum(
            profile.compute_s * factor * count / cycle_s
            for (factor, count), cycle_s in zip(counts.items(), cycles, strict=True)
        )
        / rate
    )
    exchange_s = shown * transfers_s
    return ModePrediction(
        model="analytic",
        workers=mode.workers,
        step_s=mean_cycle_s,
        samples_per_s=rate * profile.batch,
        parts_s={
            "compute": compute_s,
            "exchange": exchange_s,
            "update": max(update),
            "queue": mean_cycle_s - compute_s - exchange_s - max(update),
        },
        bound_samples_per_s=profile.batch / max(loads.shard_s) if max(loads.shard_s) else math.inf,
        staleness=float(mode.workers - 1),
        staleness_worst=max(rate * cycle_s - 1 for cycle_s in cycles),
    )


def _solve(think_s: list[float], counts: list[int], demand_s: list[float]) -> ClosedNetwork:
    if len(counts) == 1:
        return mean_value_analysis(think_s[0], demand_s, counts[0])
    return mean_value_classes(think_s, counts, demand_s)
