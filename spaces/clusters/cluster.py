"""A cluster as the cost core sees it: devices in nodes, and the levels of links between them.

The graph of links (``topology.py``) is the full description; ``levels`` is its summary for homogeneous clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.spaces.clusters.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Links that join groups of ``size`` devices, from the scale-up domain outwards.

    ``bytes_per_s``: line rate per device and direction when all devices of the level talk at once (a NIC shared by two
    devices counts half for each). ``port_bytes_per_s``: rate of the one port that a lone sender uses (one NIC; the
    NVLink port). ``latency_s``: one hop. ``kind``: "nvswitch", "nvlink-mesh" (cube mesh, pairwise links), "xgmi-mesh",
    "pcie", "torus", "infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet".
    ``in_switch``: the switch reduces (NVLink SHARP). ``oversubscription``: 1.0 for full bisection.
    """

    name: str
    size: int
    kind: str
    bytes_per_s: float
    port_bytes_per_s: float
    latency_s: float
    in_switch: bool = False
    oversubscription: float = 1.0
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices.

    ``devices_per_node`` is the operating-system node (what a launcher starts on); the scale-up domain is
    ``levels[0].size`` and may be smaller (PCIe box: 1 has no fast link) or larger (GB200 NVL72: 72 over
    4-device trays).
    Levels are ordered by growing size; the last one spans ``max_devices``.
    ``usd_per_device_hour``: a price the user gave, None to use none.
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

    @property
    def scale_up_size(self) -> int:
        """Devices that reach each other without leaving the fastest links."""
        return self.levels[0].size
