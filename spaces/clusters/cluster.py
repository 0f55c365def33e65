"""A cluster as the cost core sees it: devices in nodes, and the levels of links between them.

The graph of links (``topology.py``) is the full description, built from ``spec``; ``levels`` is its summary for
homogeneous clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forerun.spaces.clusters.device import Device
from forerun.spaces.clusters.spec import NETWORK_KINDS, ClusterSpec

if TYPE_CHECKING:
    from forerun.spaces.clusters.measurements import Measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Links that join groups of ``size`` devices, from the scale-up domain outwards.

    A level joins the groups of the level before it (single devices for the first one).
    ``bytes_per_s``: line rate per device and direction when all devices of the level talk at once: what leaves one
    inner group, divided by its devices (a NIC shared by two devices counts half for each). A group of ``k`` devices
    inside a mesh has only the links among themselves: about ``port_bytes_per_s * (k - 1)``.
    ``port_bytes_per_s``: rate of the one port that a lone sender uses (one NIC; the NVLink port; in a mesh the
    link to one peer, the thinnest where they differ). ``latency_s``: one hop with NCCL's low-latency protocol.
    ``kind``: "nvswitch", "nvlink-mesh" (cube mesh, pairwise links), "xgmi-mesh", "roce-mesh",
    "pcie", "torus", "infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet".
    ``in_switch``: the switch reduces (NVLink SHARP). ``staged``: what crosses the level is copied through host memory.
    ``oversubscription``: 1.0 for full bisection; ``bytes_per_s`` is
    already divided by it.
    """

    name: str
    size: int
    kind: str
    bytes_per_s: float
    port_bytes_per_s: float
    latency_s: float
    in_switch: bool = False
    staged: bool = False
    oversubscription: float = 1.0
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What computation and the traffic of replicas take from each other where both run on a device at once.

    ``computation``: factor on the seconds of passes while gradients or parameters are under way (a collective's
    kernels hold multiprocessors and memory bandwidth); ``communication``: factor on the seconds of those while a pass
    runs. No catalogued cluster has either: published runs state no pair with and without overlap.
    """

    computation: float = 1.0
    communication: float = 1.0

    @property
    def hidden_per_s(self) -> float:
        """Seconds of traffic hidden by one second of passes, both as long as each takes alone."""
        return self.computation / self.communication

    def lost_s(self, hidden_s: Any) -> Any:
        """Return the seconds that passes lose to traffic that takes ``hidden_s`` alone and is hidden under them;
        scalars or arrays."""
        return (1.0 - 1.0 / self.computation) * self.communication * hidden_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes among others: the first ``devices`` of ``cluster``, which hold ``stages`` pipeline stages, None for
    as many as fit."""

    cluster: "Cluster"
    devices: int
    stages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices; or, with ``groups``, groups of nodes that differ, of which the rest describes the
    first one (all but ``max_devices``, which counts the devices of all).

    ``devices_per_node`` is the operating-system node (what a launcher starts on); the scale-up domain is
    ``scale_up_size`` and may be smaller (a PCIe box: a socket) or larger (GB200 NVL72: 72 over 4-device trays).
    Levels are ordered by growing size; the last one spans ``max_devices``. A cluster of one device has none.
    ``host``: what one node offers beside its devices: ``bytes_per_s_per_device`` to host memory, ``memory_bytes`` and
    ``memory_bytes_per_s`` where known. ``usd_per_device_hour``: a price the user gave, None to use none.
     ``spec``: what the graph of links is built from. ``defaults``: every value that was filled in, with the reason.
    ``measured``: seconds of collectives where a profile was taken. ``overlap``: see ``Overlap``.
    ``catalogued``: an entry of the catalogue, whose size is a rule and not a machine's.
    """

    name: str
    title: str
    device: Device
    devices_per_node: int
    max_devices: int
    levels: tuple[Level, ...]
    host: Mapping[str, float]
    source: str
    usd_per_device_hour: float | None = None
    spec: ClusterSpec | None = None
    defaults: tuple[str, ...] = ()
    measured: "Measurements | None" = None
    groups: tuple[NodeGroup, ...] = ()
    overlap: Overlap = Overlap()
    catalogued: bool = field(default=False, compare=False)

    @property
    def scale_up_size(self) -> int:
        """Devices that reach each other without leaving the fastest links.

        An NVLink domain, or the devices under one PCIe root where there are no such links; 1 where every device needs
        the network.
        """
        if not self.levels or self.levels[0].kind in NETWORK_KINDS:
            return 1
        return self.levels[0].size
