"""Tensors that lie in the memory of the host: what they free on the device, and the copies that they cause.

Activations go out behind a forward pass and come back before its backward pass; parameters come in layer by layer
before each pass. Optimizer states are updated where they lie: as fast as the host's memory is read and written, and no
faster than gradients and parameters come and go as if the states themselves did.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.simulator.events.step.costs import ChunkCost
from forerun.simulator.events.step.device_tasks import COPY_AHEAD
from forerun.simulator.events.trees.parts import (
    Blocks,
    blocks_of,
    moving_of,
    on_stages,
    parameters_of,
    passes_of,
    replica_blocks,
    replicas_of,
)
from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.replicas.reduction import ReplicaCosts
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context
from forerun.spaces.trees import TreeStrategies
from forerun.spaces.units import format_bytes

SOCKET_BYTES_PER_S = 140e9
"""Bandwidth that the processors of a socket reach where the cluster does not say: 0.7 of 8 channels of DDR4-3200."""
UPDATE_TRAFFIC = 2.5
"""Memory traffic of an update per byte of states: master copy and moments read and written, gradients read, parameters
written (Adam: 30 bytes for 12)."""


def host_rate(context: Context, strategies: TreeStrategies) -> float:
    """Return bytes per second between a device and the host, one direction; 0 where nothing lies there.

    Raises:
        RequestError: something does, and the cluster does not say how fast its host links are.
    """
    if not any(leaf.host for leaf in strategies.tree.leaves):
        return 0.0
    rate = context.cluster.host.get("bytes_per_s_per_device", 0.0) or context.cluster.device.host_bytes_per_s
    if not rate > 0:
        raise RequestError(
            f"tensors on the host need the rate of its links, which {context.cluster.name} does not have; name "
            "host.rate in the cluster"
        )
    return rate


def host_blocks(context: Context, strategies: TreeStrategies, what: str) -> Blocks:
    """Return the layers whose tensors of one kind lie on the host, as ``blocks_of`` does for all."""
    return blocks_of(context, strategies, lambda leaf: what in leaf.host)


def check_host_memory(
    context: Context,
    strategies: TreeStrategies,
    homes: Sequence[tuple[int, ...]],
    whole: ReplicaCosts,
    left: ReplicaCosts,
) -> None:
    """Refuse a tree whose tensors do not fit into the memory of their hosts, where the cluster says how large it is.

    ``whole``, ``left``: the once-per-step costs before and after what lies on the host was taken off the device.

    Raises:
        RequestError: they do not.
    """
    capacity = context.cluster.host.get("memory_bytes")
    if capacity is None or whole is left:
        return
    held, per_node = host_bytes(context, strategies, homes, whole, left), context.cluster.devices_per_node
    nodes: dict[int, float] = {}
    for stage, devices in enumerate(strategies.tree.groups):
        for device in devices:
            nodes[device // per_node] = nodes.get(device // per_node, 0.0) + float(held[stage])
    most = max(nodes.values())
    if most > capacity:
        raise RequestError(
            f"{format_bytes(most)} lie in the memory of a host that has {format_bytes(capacity)}; keep fewer tensors "
            "there (memory: host), shard the optimizer (zero: 1), or use more nodes"
        )


def host_bytes(
    context: Context,
    strategies: TreeStrategies,
    homes: Sequence[tuple[int, ...]],
    whole: ReplicaCosts,
    left: ReplicaCosts,
) -> Floats:
    """Return the bytes that each device of every device-stage keeps on its host, activations of all microbatches in
    flight included; shape of stages."""
    held: Floats = (whole.optimizer_bytes - left.optimizer_bytes + whole.parameter_bytes - left.parameter_bytes)[0]
    away = host_blocks(context, strategies, "activations")
    return held + moving_of(context, away, homes, strategies.tree.microbatches).kept[0] if away else held


def with_host_chunks(
    context: Context, strategies: TreeStrategies, chunks: Sequence[ChunkCost]
) -> tuple[ChunkCost, ...]:
    """Return the costs of virtual stages with what they copy."""
    away, fetched = (host_blocks(context, strategies, what) for what in ("activations", "parameters"))
    kept = passes_of(context, away).kept_bytes if away else np.zeros(len(chunks))
    size, layers = _parameter_bytes(context, fetched, len(chunks))
    return tuple(
        replace(
            chunk,
            host_bytes=float(kept[number]),
            fetch_bytes=float(size[number]),
            fetches=max(int(layers[number]), 1),
        )
        for number, chunk in enumerate(chunks)
    )


def _parameter_bytes(context: Context, blocks: Blocks, count: int) -> tuple[Floats, Floats]:
    """Return bytes of parameters, and layers, that every virtual stage fetches."""
    width, size, layers = activation_bytes(context.workload.precision), np.zeros(count), np.zeros(count)
    for strategy, held in blocks.items():
        each = parameters_of(context, strategy, held)
        size = size + (each.dense + each.expert)[0] * (held.sum(axis=0) > 0) * width
        layers = layers + held.sum(axis=0)
    return size, layers


def with_host_replicas(
    context: Context, strategies: TreeStrategies, homes: Sequence[tuple[int, ...]], replicas: ReplicaCosts, rate: float
) -> ReplicaCosts:
    """Return the once-per-step costs with what lies on the host taken off the device, and streamed for the update."""
    if not rate:
        return replicas
    states = _held(context, host_blocks(context, strategies, "optimizer"), homes, "optimizer_bytes")
    fetched = host_blocks(context, strategies, "parameters")
    parameters = _held(context, fetched, homes, "parameter_bytes")
    size, layers = _parameter_bytes(context, fetched, len(strategies.tree.stages))
    ahead = np.where(layers > 0, np.minimum(COPY_AHEAD / np.maximum(layers, 1.0), 1.0), 0.0) * size
    buffers = np.array([max(ahead[chunk] for chunk in chunks) for chunks in homes])
    return replace(
        replicas,
        optimizer_s=np.maximum.reduce((replicas.optimizer_s, (states + parameters) / rate, _update_s(context, states))),
        optimizer_bytes=replicas.optimizer_bytes - states,
        parameter_bytes=replicas.parameter_bytes - parameters,
        buffer_bytes=replicas.buffer_bytes + buffers,
    )


def _update_s(context: Context, states: Floats) -> Floats:
    """Return the seconds in which the processors of a host update the states of all devices of a node like this one."""
    cluster = context.cluster
    sockets = 2 if cluster.spec is None else cluster.spec.host.sockets
    rate = cluster.host.get("memory_bytes_per_s", sockets * SOCKET_BYTES_PER_S)
    return UPDATE_TRAFFIC * states * cluster.devices_per_node / rate


def _held(context: Context, blocks: Blocks, homes: Sequence[tuple[int, ...]], name: str) -> Floats:
    """Return the bytes of some layers' tensors on every device-stage."""
    total = np.zeros(len(homes))
    for strategy, held in replica_blocks(blocks).items():
        on = on_stages(held, homes)
        here = np.where(on.sum(axis=0) > 0, 1.0, 0.0)
        total = total + getattr(replicas_of(context, strategy, on, here), name)[0]
    return total
