"""One node from a topology file of any format."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """One node of a topology file. Devices of a socket have consecutive numbers."""

    source: str
    """Path of the file."""
    device: str | None
    """Catalogue name, None where the file does not have it."""
    socket_of: tuple[int, ...]
    """NUMA node of every device."""
    switch_of: tuple[int, ...]
    """PCIe switch of every device."""
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Number of NVLinks between pairs."""
    switch_links: tuple[int, ...] | None = None
    """NVLinks of every device to a switch, None where the file has no NVLink."""
    pcie_bytes_per_s: float | None = None
    """Rate of a device's link to its host, None where not stated."""
    nics: int = 0
    """Number of network ports of the fastest kind."""
    nic_bytes_per_s: float | None = None
    """Rate of one port, None where not stated."""
    network: str | None = None
    """Kind of these ports, None where not stated."""
    near: bool = False
    """Whether every device has its own port behind the same PCIe switch."""
    hosts: int = 1
    """Number of nodes in the file (a multi-node NVLink domain)."""
    notes: tuple[str, ...] = ()
    """Omitted parts, with the reason."""

    @property
    def devices(self) -> int:
        """Devices of one node."""
        return len(self.socket_of) // self.hosts
