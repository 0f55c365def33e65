"""Seconds for which one step's traffic occupies every NIC, the input of phases and queues."""

from dataclasses import dataclass

from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.profile import GradientProfile


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
