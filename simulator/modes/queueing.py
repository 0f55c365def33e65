"""Loads of shared servers, and closed queueing networks of workers that compute and queue at them in a cycle.

Mean value analysis (Reiser and Lavenberg 1980): an arriving customer sees the queues of the same network with one
customer fewer. Exact for stations that share their service or serve exponential times in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.profile import GradientProfile
from forerun.spaces.errors import RequestError

_SAME = 1e-12
_ROUNDS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedNetwork:
    """The solution of a closed network.

    ``cycles_per_s``: of all customers. ``cycle_s``: seconds of one cycle per class. ``wait_s``: part of it spent at the
    stations beyond the class's service. ``queue``: mean customers at every station.
    """

    cycles_per_s: float
    cycle_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    queue: tuple[float, ...]


def mean_value_analysis(think_s: float, demand_s: Sequence[float], customers: int) -> ClosedNetwork:
    """Return the exact solution for equal customers: R_k = D_k (1 + Q_k(n-1)), X = n / (Z + sum R), Q_k = X R_k.

    Raises:
        RequestError: there are no customers, or a cycle takes no time.
    """
    _check(think_s, demand_s, customers)
    demand = np.asarray(demand_s, dtype=np.float64)
    queue = np.zeros_like(demand)
    rate, stay = 0.0, demand
    for number in range(1, customers + 1):
        stay = demand * (1 + queue)
        rate = number / (think_s + stay.sum())
        queue = rate * stay
    return ClosedNetwork(
        cycles_per_s=float(rate),
        cycle_s=(float(think_s + stay.sum()),),
        wait_s=(float((stay - demand).sum()),),
        queue=tuple(queue.tolist()),
    )


def mean_value_classes(think_s: Sequence[float], counts: Sequence[int], demand_s: Sequence[float]) -> ClosedNetwork:
    """Compute an approximate solution for classes that differ in their think time; ``counts``: their customers.

    Bard and Schweitzer: an arriving customer of a class of n sees the mean queues minus one n-th of its own class's
    queue. A class of one has no queue of its own, which is exact. Cycle times are per class.

    Raises:
        RequestError: a class has no customers, or a cycle takes no time.
    """
    for think, count in zip(think_s, counts, strict=True):
        _check(think, demand_s, count)
    think_C, count_C = np.asarray(think_s, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    demand_K = np.asarray(demand_s, dtype=np.float64)
    # R_ck = D_k (1 + sum over classes of Q_k - Q_ck / n_c), X_c = n_c / (Z_c + sum over k of R_ck), Q_ck = X_c R_ck,
    # iterated to a fixed point.
    queue_CK = np.outer(count_C, demand_K / (demand_K.sum() or 1.0))
    stay_CK = np.broadcast_to(demand_K, queue_CK.shape)
    rate_C = np.zeros_like(count_C)
    for _ in range(_ROUNDS):
        seen_CK = queue_CK.sum(axis=0) - queue_CK / count_C[:, None]
        stay_CK = demand_K * (1 + seen_CK)
        rate_C = count_C / (think_C + stay_CK.sum(axis=1))
        new_CK = rate_C[:, None] * stay_CK
        moved = np.abs(new_CK - queue_CK).max(initial=0.0)
        queue_CK = new_CK
        if moved <= _SAME * count_C.sum():
            break
    return ClosedNetwork(
        cycles_per_s=float(rate_C.sum()),
        cycle_s=tuple((think_C + stay_CK.sum(axis=1)).tolist()),
        wait_s=tuple((stay_CK - demand_K).sum(axis=1).tolist()),
        queue=tuple(queue_CK.sum(axis=0).tolist()),
    )


def _check(think_s: float, demand_s: Sequence[float], customers: int) -> None:
    if customers < 1:
        raise RequestError(f"a closed network has 1 customer or more, but got {customers}")
    if not think_s + sum(demand_s) > 0:
        raise RequestError("a cycle takes more than 0 seconds, but think time and demands are 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoads:
    """Traffic between one worker and the servers.

    ``shard_bytes``: bytes of every shard. ``alone_s``: one worker's download, or upload, without other workers;
    ``shard_s``: mean occupation of every server's NIC, per direction, by one step of one worker (if co-located,
    including messages of the worker on that node). ``phase_s``: the slowest NIC when all workers transfer at once.
    """

    shard_bytes: tuple[float, ...]
    alone_s: float
    shard_s: tuple[float, ...]
    phase_s: float


def server_loads(profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, senders: int) -> ServerLoads:
    """Return the loads of a mode with servers when ``senders`` of its workers transfer at once.

    A server's NIC passes its exchange with every worker; a worker's NIC passes all its bytes. A co-located shard and
    its worker have one NIC, which their exchange with each other does not use.

    Raises
    ------
    RequestError
        Shards outnumber the layers or parameters to place on them.
    """
    shard_bytes = tuple(sum(column) for column in zip(*mode.shard_bytes(profile), strict=True))
    total = sum(shard_bytes)
    worker_rate, server_rate = network.worker_bytes_per_s, network.server_bytes_per_s
    if not mode.colocated:
        alone_s = max(total / worker_rate, max(shard_bytes) / server_rate)
        return ServerLoads(
            shard_bytes=shard_bytes,
            alone_s=alone_s,
            shard_s=tuple(size / server_rate for size in shard_bytes),
            phase_s=max(total / worker_rate, senders * max(shard_bytes) / server_rate),
        )
    # One direction of node s passes its shard's exchange with other workers and, in the other phase of the same step,
    # its worker's exchange with other shards.
    workers = mode.workers
    worker_bytes = [total - size for size in shard_bytes] + [total] * (workers > mode.shards)
    return ServerLoads(
        shard_bytes=shard_bytes,
        alone_s=total * (workers - 1) / workers / worker_rate,
        shard_s=tuple((size * (workers - 1) + total - size) / workers / worker_rate for size in shard_bytes),
        phase_s=max(*worker_bytes, *(size * (senders - 1) for size in shard_bytes)) / worker_rate,
    )
