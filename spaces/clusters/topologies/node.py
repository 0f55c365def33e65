"""One node from a topology file of any format."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """One node of a topology file. Devices of a socket have consecutive numbers."""

    source: str
    """The file."""
    device: str | None
    """Catalogue name, None where the file does not say."""
    socket_of: tuple[int, ...]
    """NUMA node of every device."""
    switch_of: tuple[int, ...]
    """PCIe switch of every device."""
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """NVLinks between pairs."""
    switch_links: tuple[int, ...] | None = None
    """NVLinks of every device to a switch, None where the file says nothing of NVLink."""
    pcie_bytes_per_s: float | None = None
    """Link of a device to its host, None where not stated."""
    nics: int = 0
    """Network ports of the fastest kind."""
    nic_bytes_per_s: float | None = None
    """Rate of one, None where not stated."""
    network: str | None = None
    """Kind of these ports, None where not stated."""
    near: bool = False
    """Every device has a port of its own behind the same PCIe switch."""
    hosts: int = 1
    """Nodes that the file spans (a multi-node NVLink domain)."""
    notes: tuple[str, ...] = ()
    """Parts that were left out, with the reason."""

    @property
    def devices(self) -> int:
        """Devices of one node."""
        return len(self.socket_of) // self.hosts
