"""Optimizer states in host memory: their limit, and the duration of the update.

States are updated on the host, at the rate of its memory. Gradients and parameters are copied as if they were the
states, during the update of others or before and after the update.
"""

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError

Floats = NDArray[np.float64]

SOCKET_BYTES_PER_S = 140e9
"""Achieved bandwidth of a socket's processors, if the cluster has none: 0.7 of 8 channels of DDR4-3200."""
UPDATE_TRAFFIC = 2.5
"""Memory traffic of an update per byte of states. Master copy and moments are read and written, gradients read,
parameters written (Adam: 30 bytes for 12)."""


def host_link_rate(cluster: Cluster) -> float:
    """Return bytes per second between a device and the host, one direction, while all devices of the node copy.

    Devices behind one switch share its link; where messages are staged in a socket's memory, devices of the socket
    share its rate.

    Raises
    ------
    RequestError
        The cluster has no rate for its host links.
    """
    rate = cluster.host.get("bytes_per_s_per_device", 0.0) or cluster.device.host_bytes_per_s
    if not rate > 0:
        raise RequestError(
            f"tensors on the host need the rate of its links, which {cluster.name} does not have; name "
            "host.rate in the cluster"
        )
    if cluster.spec is None:
        return rate
    links = cluster.spec.host
    if links.staged_bytes_per_s is not None:
        rate = min(rate, links.staged_bytes_per_s / cluster.spec.devices_per_socket)
    if links.switch_devices:
        rate = min(rate, links.switch_bytes_per_s / links.switch_devices)
    return rate


def host_update_s(cluster: Cluster, states: Floats) -> Floats:
    """Return the seconds in which a host's processors update the ``states`` bytes of each device of a node."""
    sockets = 2 if cluster.spec is None else cluster.spec.host.sockets
    rate = cluster.host.get("memory_bytes_per_s", sockets * SOCKET_BYTES_PER_S)
    return np.asarray(UPDATE_TRAFFIC * states * cluster.devices_per_node / rate)


def states_on_host(
    cluster: Cluster, states: Floats, share: Floats | float = 1.0, *, overlap: bool = True
) -> tuple[Floats, Floats]:
    """Return the bytes of ``states`` that stay on the device, and the seconds of the update of the others.

    ``share`` of them is on the host; copies overlap the update if ``overlap``. Where this share of a node's devices
    exceeds the host's memory (if known), all stay on the devices.

    Raises
    ------
    RequestError
        The cluster has no rate for its host links.
    """
    capacity = cluster.host.get("memory_bytes")
    most = np.inf if capacity is None else capacity / cluster.devices_per_node
    away = np.where(share * states <= most, share * states, 0.0)
    copies_s, own_s = away / host_link_rate(cluster), host_update_s(cluster, away)
    return states - away, np.maximum(copies_s, own_s) if overlap else copies_s + own_s
