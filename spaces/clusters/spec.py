"""Description of a cluster in SI units, the source of both its graph and its levels."""

from dataclasses import dataclass

from forerun.spaces.errors import RequestError

SCALE_UP_KINDS = ("nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "torus")
NETWORK_KINDS = ("infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet")

# (device, device, links between them), numbered within the domain.
MeshLink = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """The fastest links of a device."""

    kind: str
    """See ``Level.kind``."""
    size: int
    """Number of connected devices."""
    bytes_per_s: float
    """Rate per device and direction, over all its links; for an uneven mesh, of the busiest device."""
    latency_s: float
    in_switch: bool = False
    mesh: tuple[MeshLink, ...] = ()
    """Pairs with links, for a mesh with different pairs; empty for a full mesh of equal pairs."""
    torus: tuple[int, ...] = ()
    """Extent of each dimension, wrapped around where it is above 2; empty for other kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLinks:
    """The tree of PCIe (or C2C) links of one node."""

    bytes_per_s: float
    """Rate of every device to its socket, one direction."""
    sockets: int
    socket_bytes_per_s: float
    """Rate between the two sockets."""
    latency_s: float
    staged_bytes_per_s: float | None = None
    """Rate of one socket's copies through host memory for all its devices. None where devices can reach each other
    directly."""
    switch_devices: int = 0
    """Devices behind one PCIe switch, which share its link to the socket. The number is 0 where every device is linked
    to its socket, or to switches that are never the bottleneck."""
    switch_bytes_per_s: float = 0.0
    """Rate of the switch's link to the socket, one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Higher switches: ``nodes`` are below them, and ``oversubscription`` divides the bandwidth out of them."""

    nodes: int
    oversubscription: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The links between nodes."""

    kind: str
    """See ``Level.kind``."""
    nics_per_node: int
    """Number of NICs, at most one per device."""
    nic_bytes_per_s: float
    """Rate of each NIC, one direction."""
    latency_s: float
    oversubscription: float = 1.0
    """Divisor of the rate beyond ``leaf_nodes``."""
    leaf_nodes: int | None = None
    """Nodes connected at the full rate."""
    direct: bool = False
    """Whether every device has its own NIC that does not use the host's links (on chip, or its own switch)."""
    tiers: tuple[Tier, ...] = ()
    """Further switches, inside out (pods of a fat tree)."""

    @property
    def groups(self) -> tuple[Tier, ...]:
        """Groups of nodes with more bandwidth inside than outside: those of a leaf, followed by the tiers."""
        if self.oversubscription > 1 and self.leaf_nodes is not None:
            return (Tier(nodes=self.leaf_nodes, oversubscription=self.oversubscription), *self.tiers)
        return self.tiers


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Equal nodes.

    Raises
    ------
    RequestError
        Sizes do not divide each other, rates are not positive, or kinds are unknown.
    """

    devices_per_node: int
    """Devices of the operating-system node."""
    max_devices: int
    """Number of all devices."""
    scale_up: ScaleUp | None
    """Scale-up links; None where devices have none."""
    host: HostLinks
    """Links of a node between devices and host."""
    network: Network | None
    """Network between nodes; None for a single node."""

    def __post_init__(self) -> None:
        per_node, most = self.devices_per_node, self.max_devices
        if per_node < 1 or most < per_node or most % per_node:
            raise RequestError(
                f"max_devices must be a multiple of devices_per_node, but got {most} and {per_node}; "
                f"use {max(1, round(most / max(per_node, 1))) * per_node}"
            )
        if self.host.sockets not in (1, 2) or per_node % self.host.sockets:
            raise RequestError(f"sockets must be 1 or 2 and divide {per_node} devices, but got {self.host.sockets}")
        if self.host.bytes_per_s <= 0 or self.host.socket_bytes_per_s <= 0:
            raise RequestError("host link rates must be above 0, like 64GB/s")
        self._check_switches(self.host)
        if self.scale_up is not None:
            self._check_scale_up(self.scale_up)
        if self.network is not None:
            self._check_network(self.network)
        elif most > self.unit:
            raise RequestError(
                f"{most} devices need a network between their nodes; add network: or max_devices: {self.unit}"
            )

    @property
    def scale_up_size(self) -> int:
        """Devices of one scale-up domain, 1 without one."""
        return 1 if self.scale_up is None else self.scale_up.size

    @property
    def unit(self) -> int:
        """Devices connected without the network: a node, or a scale-up domain of several nodes."""
        return max(self.devices_per_node, self.scale_up_size)

    @property
    def devices_per_socket(self) -> int:
        """Devices under one socket."""
        return self.devices_per_node // self.host.sockets

    def _check_switches(self, host: HostLinks) -> None:
        per_switch = host.switch_devices
        if per_switch and (per_switch < 0 or self.devices_per_socket % per_switch or host.switch_bytes_per_s <= 0):
            raise RequestError(
                f"PCIe switches must divide the {self.devices_per_socket} devices of a socket evenly and have a rate "
                f"above 0, but got {per_switch} at {host.switch_bytes_per_s:g} bytes/s"
            )
        if per_switch and host.staged_bytes_per_s is not None:
            raise RequestError("transfers that are staged through a socket know no PCIe switches; drop one of the two")

    def _check_scale_up(self, links: ScaleUp) -> None:
        size, per_node = links.size, self.devices_per_node
        if links.kind not in SCALE_UP_KINDS:
            raise RequestError(f"unknown scale-up kind {links.kind!r}; known: {', '.join(SCALE_UP_KINDS)}")
        if size < 2 or (size % per_node and per_node % size):
            raise RequestError(
                f"the scale-up size is at least 2 and divides or is a multiple of the {per_node} devices of a node, "
                f"but got {size}; use {per_node}"
            )
        if size < per_node and self.devices_per_socket % size:
            raise RequestError(
                f"scale-up size {size} does not divide the {self.devices_per_socket} devices of a socket"
            )
        if links.bytes_per_s <= 0:
            raise RequestError("the scale-up rate must be above 0, like 450GB/s")
        if any(not (0 <= a < size and 0 <= b < size and a != b and n > 0) for a, b, n in links.mesh):
            raise RequestError(f"mesh links join two of devices 0 to {size - 1} with at least one link: [0, 1, 2]")
        if links.mesh and len({end for a, b, _ in links.mesh for end in (a, b)}) < size:
            raise RequestError(f"mesh links must reach each of the {size} devices")
        if links.kind == "torus":
            product = 1
            for extent in links.torus:
                product *= extent
            if product != size or min(links.torus, default=0) < 2:
                raise RequestError(
                    f"the torus {list(links.torus)} does not have {size} devices in extents of at least 2"
                )

    def _check_network(self, network: Network) -> None:
        if network.kind not in NETWORK_KINDS:
            raise RequestError(f"unknown network kind {network.kind!r}; known: {', '.join(NETWORK_KINDS)}")
        if not 1 <= network.nics_per_node <= self.devices_per_node or network.nic_bytes_per_s <= 0:
            raise RequestError("a node has one to as many NICs as devices, each of a rate above 0, like 400Gb/s")
        if network.direct and network.nics_per_node != self.devices_per_node:
            raise RequestError(f"direct NICs are one per device: nics_per_node must be {self.devices_per_node}")
        if network.oversubscription < 1:
            raise RequestError(f"oversubscription is at least 1 (full bisection), but got {network.oversubscription}")
        leaf = network.leaf_nodes
        if leaf is not None and (leaf < 1 or leaf * self.devices_per_node % self.unit):
            raise RequestError(
                f"leaf_nodes must be whole scale-up domains of {self.unit} devices, but got {leaf} nodes"
            )
        inner = 0
        for tier in network.groups:
            if tier.oversubscription < 1:
                raise RequestError(f"oversubscription is at least 1 (full bisection), but got {tier.oversubscription}")
            if tier.nodes <= inner or tier.nodes % max(1, inner) or tier.nodes * self.devices_per_node % self.unit:
                raise RequestError(
                    f"a tier joins several groups of {max(1, inner)} nodes and whole scale-up domains of {self.unit} "
                    f"devices, but got {tier.nodes} nodes"
                )
            inner = tier.nodes
        if network.oversubscription > 1 and leaf is None:
            raise RequestError("an oversubscribed network needs leaf_nodes: the nodes under one leaf switch")
