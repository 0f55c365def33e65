"""Tensors in host memory: device memory that they free, and copies that they cause.

Activations are copied to the host layer by layer after the forward pass and back before the layer's backward pass;
parameters are copied to the device before each pass. Optimizer states are updated on the host
(``simulator/costs/host.py``).
"""

from dataclasses import replace

import numpy as np

from forerun.simulator.assignment.activations import rank_activations
from forerun.simulator.assignment.passes import chunk_passes
from forerun.simulator.assignment.replicas import all_replicas, parameter_counts, replicas_by_settings
from forerun.simulator.assignment.value import Assignment, Blocks
from forerun.simulator.costs.host import host_link_rate, host_update_s
from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.replicas.reduction import ReplicaCosts
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_bytes

COPY_AHEAD = 3
"""Layers whose parameters are copied from the host ahead of their use (Proteus: three)."""


def host_rate(assignment: Assignment) -> float:
    """Return bytes per second between a device and the host, one direction; 0 without tensors on the host.

    Raises
    ------
    RequestError
        Tensors are on the host, and the cluster has no rate for its host links.
    """
    if not any(placed.host for row in assignment.layers for placed in row):
        return 0.0
    return host_link_rate(assignment.context.cluster)


def on_host(assignment: Assignment, what: str) -> Blocks:
    """Return the blocks with tensors of one kind (of ``HOST_TENSORS``) on the host, [B, C]."""
    return assignment.blocks(lambda placed: what in placed.host)


def check_host_memory(assignment: Assignment, whole: ReplicaCosts, left: ReplicaCosts) -> None:
    """Refuse an assignment whose tensors exceed the host memory, where the cluster has its size.

    ``whole``, ``left``: once-per-step costs before and after tensors were moved from the device to the host.

    Raises
    ------
    RequestError
        The tensors do not fit.
    """
    cluster = assignment.context.cluster
    capacity = cluster.host.get("memory_bytes")
    if capacity is None or whole is left:
        return
    held = host_bytes(assignment, whole, left)
    nodes: dict[int, float] = {}
    for rank in range(assignment.shape.pp):
        for device in assignment.devices[rank]:
            node = device // cluster.devices_per_node
            nodes[node] = nodes.get(node, 0.0) + float(held[rank])
    most = max(nodes.values())
    if most > capacity:
        raise RequestError(
            f"{format_bytes(most)} are in the memory of a host that has {format_bytes(capacity)}; keep fewer tensors "
            "there (memory: host), shard the optimizer (zero: 1), or use more nodes"
        )


def host_bytes(assignment: Assignment, whole: ReplicaCosts, left: ReplicaCosts) -> Floats:
    """Return the bytes that each device of every rank keeps on its host, including in-flight activations; shape P."""
    held: Floats = (whole.optimizer_bytes - left.optimizer_bytes + whole.parameter_bytes - left.parameter_bytes)[0]
    away = on_host(assignment, "activations")
    return held + rank_activations(assignment, away).kept[0] if away else held


def host_copies(assignment: Assignment) -> tuple[Floats, Floats, Floats, Floats]:
    """Return every virtual stage's copies per pass: bytes, layers of activations; bytes, layers of parameters; [C]."""
    away, fetched = on_host(assignment, "activations"), on_host(assignment, "parameters")
    kept = chunk_passes(assignment.context, away).kept_bytes if away else np.zeros(len(assignment.layers))
    return kept, sum((held.sum(axis=0) for held in away.values()), np.zeros(len(kept))), *_fetched(assignment, fetched)


def _fetched(assignment: Assignment, blocks: Blocks) -> tuple[Floats, Floats]:
    """Return the bytes of parameters and the number of layers that every virtual stage fetches; shape C."""
    context, count = assignment.context, len(assignment.layers)
    width, size, layers = activation_bytes(context.workload.precision), np.zeros(count), np.zeros(count)
    for settings, held in blocks.items():
        size = size + parameter_counts(context, settings, held) * width
        layers = layers + held.sum(axis=0)
    return size, layers


def rank_replicas(assignment: Assignment, whole: ReplicaCosts | None = None) -> ReplicaCosts:
    """Return the once-per-step costs of every rank without tensors on the host, with their copies for the update.

    ``whole``: costs without host memory, if already computed.

    Raises
    ------
    RequestError
        A cost rule does not know an operator, link or precision.
    """
    if whole is None:
        whole = all_replicas(assignment.context, replicas_by_settings(assignment, assignment.blocks()))
    rate = host_rate(assignment)
    return _off_device(assignment, whole, rate) if rate else whole


def _off_device(assignment: Assignment, replicas: ReplicaCosts, rate: float) -> ReplicaCosts:
    """Return the costs of devices without tensors on the host; ``rate``: bytes per second to and from the host."""
    fetched = on_host(assignment, "parameters")
    states = _held(assignment, on_host(assignment, "optimizer"), "optimizer_bytes")
    parameters = _held(assignment, fetched, "parameter_bytes")
    size, layers = _fetched(assignment, fetched)
    ahead = np.where(layers > 0, np.minimum(COPY_AHEAD / np.maximum(layers, 1.0), 1.0), 0.0) * size
    buffers = np.array([max(ahead[chunk] for chunk in chunks) for chunks in assignment.chunks_of_rank])
    update_s = host_update_s(assignment.context.cluster, states)
    return replace(
        replicas,
        optimizer_s=np.maximum.reduce((replicas.optimizer_s, (states + parameters) / rate, update_s)),
        optimizer_bytes=replicas.optimizer_bytes - states,
        parameter_bytes=replicas.parameter_bytes - parameters,
        buffer_bytes=replicas.buffer_bytes + buffers,
    )


def _held(assignment: Assignment, blocks: Blocks, name: str) -> Floats:
    """Return the bytes of some layers' tensors on every rank, shape P."""
    each = replicas_by_settings(assignment, blocks, fill=False)
    return sum((getattr(one.costs, name)[0] for one in each), np.zeros(assignment.shape.pp))
