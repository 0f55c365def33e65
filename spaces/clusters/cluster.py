"""A cluster for the cost core: devices in nodes, and the levels of links between them.

The graph of links (``topology.py``) is the complete description, built from ``spec``; ``levels`` is its summary for
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
    """Links between groups of devices: single devices on the first level, then groups of the preceding level."""

    name: str
    """Name, like ``node`` or ``network``."""
    size: int
    """Devices in one group of this level."""
    kind: str
    """"nvswitch", "nvlink-mesh" (cube mesh, pairwise links), "xgmi-mesh", "roce-mesh", "pcie", "torus", "infiniband",
    "roce", "efa", "slingshot", "omnipath" or "ethernet"."""
    bytes_per_s: float
    """Line rate per device and direction when all devices of the level communicate at once.

    The rate is the bandwidth out of one inner group, divided by its devices (a NIC shared by two devices counts half
    for each). A group of ``k`` devices inside a mesh has only the links among themselves: about ``port_bytes_per_s * (k
    - 1)``.
    """
    port_bytes_per_s: float
    """Rate of the one port that a lone sender uses. The port is one NIC, the NVLink port, or in a mesh the link to one
    peer (the narrowest where they differ)."""
    latency_s: float
    """One hop with NCCL's low-latency protocol."""
    in_switch: bool = False
    """Whether the switch reduces (NVLink SHARP)."""
    staged: bool = False
    """Whether traffic of the level is copied through host memory."""
    oversubscription: float = 1.0
    """1.0 for full bisection; ``bytes_per_s`` is already divided by it."""
    source: str = ""
    """Source of the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Slowdown of computation and replica traffic while both run on a device.

    ``computation``: factor on the seconds of passes during gradient or parameter traffic (a collective's kernels occupy
    multiprocessors and memory bandwidth); ``communication``: factor on the seconds of this traffic during passes. No
    catalogued cluster has either: no published run has a pair with and without overlap.
    """

    computation: float = 1.0
    communication: float = 1.0

    @property
    def hidden_per_s(self) -> float:
        """Seconds of traffic hidden by one second of passes, both measured alone."""
        return self.computation / self.communication

    def lost_s(self, hidden_s: Any) -> Any:
        """Return the seconds that passes lose to hidden traffic that takes ``hidden_s`` when alone (any shape)."""
        return (1.0 - 1.0 / self.computation) * self.communication * hidden_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """The first ``devices`` of ``cluster``, a group with ``stages`` pipeline stages (None: as many as fit)."""

    cluster: "Cluster"
    devices: int
    stages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices, or ``groups`` of different nodes.

    With groups, the other fields describe the first group, except ``max_devices``, which counts all devices.
    """

    name: str
    """Catalogue name, or name of the file."""
    title: str
    """One-line description."""
    device: Device
    """Device type of all its devices."""
    devices_per_node: int
    """Devices of the operating-system node, on which a launcher starts processes. The scale-up domain may be smaller (a
    PCIe box: a socket) or larger (GB200 NVL72: 72 over 4-device trays)."""
    max_devices: int
    """Number of all devices, which the last level spans."""
    levels: tuple[Level, ...]
    """Levels in order of size; none for a single device."""
    host: Mapping[str, float]
    """Resources of a node other than its devices: ``bytes_per_s_per_device`` to host memory, ``memory_bytes`` and
    ``memory_bytes_per_s`` where known."""
    source: str
    """Source of the description."""
    usd_per_device_hour: float | None = None
    """Price given by the user, in USD; None: no price."""
    spec: ClusterSpec | None = None
    """Description from which the graph of links is built."""
    defaults: tuple[str, ...] = ()
    """Every filled-in value, with its reason."""
    cautions: tuple[str, ...] = field(default=(), compare=False)
    """Parts of a user's description that may have another meaning than the one assumed."""
    measured: "Measurements | None" = None
    """Measured seconds of collectives, where a profile was taken."""
    groups: tuple[NodeGroup, ...] = ()
    """Groups of different nodes; empty where all are equal."""
    overlap: Overlap = Overlap()
    """Slowdown of computation and traffic that run at once."""
    collectives: bool = True
    """Whether a library of collectives exists; without one devices send to each other pair by pair."""
    catalogued: bool = field(default=False, compare=False)
    """Whether it is an entry of the catalogue, whose size is a rule and not a machine's."""

    @property
    def scale_up_size(self) -> int:
        """Devices that reach each other over the fastest links.

        The domain is an NVLink domain, or the devices under one PCIe root without such links; 1 where every device
        needs the network.
        """
        if not self.levels or self.levels[0].kind in NETWORK_KINDS:
            return 1
        return self.levels[0].size
