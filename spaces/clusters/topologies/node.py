"""One node as a topology file shows it, whatever its format."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """Devices are numbered so that those of a socket are neighbours.

    ``source``: the file; ``device``: catalogue name, None where the file does not say; ``hosts``: nodes that the file
    spans (a multi-node NVLink domain). ``socket_of``: NUMA node of every device; ``switch_of``: its PCIe switch.
    ``links``: NVLinks between pairs;
    ``switch_links``: NVLinks of every device to a switch, None where the file says nothing of NVLink.
    ``pcie_bytes_per_s``: link of a device to its host, None where not stated. ``nics``: network ports of the fastest
    kind; ``nic_bytes_per_s`` and ``network``, their kind, None where not stated; ``near``: every device has one of its
    own behind the same PCIe switch. ``notes``: what was left aside, and why.
    """

    source: str
    device: str | None
    socket_of: tuple[int, ...]
    switch_of: tuple[int, ...]
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    switch_links: tuple[int, ...] | None = None
    pcie_bytes_per_s: float | None = None
    nics: int = 0
    nic_bytes_per_s: float | None = None
    network: str | None = None
    near: bool = False
    hosts: int = 1
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """Devices of one node."""
        return len(self.socket_of) // self.hosts
