"""Optimizer states in the memory of the host: where they fit, and how long the update takes there.

States are updated where they lie: as fast as the host's memory is read and written. Gradients and parameters come and
go as if the states themselves did, while others are updated or before and after.
"""

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError

Floats = NDArray[np.float64]

SOCKET_BYTES_PER_S = 140e9
"""Bandwidth that the processors of a socket reach where the cluster does not say: 0.7 of 8 channels of DDR4-3200."""
UPDATE_TRAFFIC = 2.5
"""Memory traffic of an update per byte of states: master copy and moments read and written, gradients read, parameters
written (Adam: 30 bytes for 12)."""


def host_link_rate(cluster: Cluster) -> float:
    """Return bytes per second between a device and the host, one direction, while all devices of the node copy: those
    behind one switch share its link, those of a socket what it passes on where messages are staged in its memory.

    Raises:
        RequestError: the cluster does not say how fast its host links are.
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
    """Return the seconds in which the processors of a host update the ``states`` bytes of each device of a node."""
    sockets = 2 if cluster.spec is None else cluster.spec.host.sockets
    rate = cluster.host.get("memory_bytes_per_s", sockets * SOCKET_BYTES_PER_S)
    return np.asarray(UPDATE_TRAFFIC * states * cluster.devices_per_node / rate)


def states_on_host(
    cluster: Cluster, states: Floats, share: Floats | float = 1.0, *, overlap: bool = True
) -> tuple[Floats, Floats]:
    """Return the bytes of ``states`` that stay on the device, and the seconds of the update of the others.

    ``share`` of them goes to the host; copies run beside the update where they ``overlap``. Where that share of a
    node's devices is more than the memory of its host (if the cluster says how much that is), all stay on the devices.

    Raises:
        RequestError: the cluster does not say how fast its host links are.
    """
    capacity = cluster.host.get("memory_bytes")
    most = np.inf if capacity is None else capacity / cluster.devices_per_node
    away = np.where(share * states <= most, share * states, 0.0)
    copies_s, own_s = away / host_link_rate(cluster), host_update_s(cluster, away)
    return states - away, np.maximum(copies_s, own_s) if overlap else copies_s + own_s
