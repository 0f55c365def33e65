"""Keys of a cluster document from a topology file, which the user's own keys extend and override."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forerun.spaces.clusters.device import Device
from forerun.spaces.clusters.topologies.matrix import read_smi_matrix
from forerun.spaces.clusters.topologies.nccl import read_nccl_topology
from forerun.spaces.clusters.topologies.node import NodeTopology
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import read_text

TOPOLOGY_ENDINGS = (".xml", ".txt", ".topo")
"""Suffixes of NCCL's XML, and of the text of nvidia-smi under its usual names."""


def read_topology(path: Path) -> NodeTopology:
    """Return the node in the file at ``path``: XML by NCCL, or the text of ``nvidia-smi topo -m``.

    Raises
    ------
    RequestError
        The file is missing, not a regular file, too large, not UTF-8, or not such a topology.
    """
    text = read_text(path, kind="a topology")
    if not text.strip():
        raise RequestError(f"{path} is empty")
    if text.lstrip().startswith("<"):
        return read_nccl_topology(text, source=str(path))
    return read_smi_matrix(text, source=str(path))


def topology_document(node: NodeTopology, device: Device, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a cluster document for nodes like ``node`` of ``device``.

    ``given`` overrides the derived keys, key by key also inside ``host``, ``network`` and ``scale_up``.

    Raises
    ------
    RequestError
        Links or sockets are impossible for equal nodes, and ``given`` does not replace them.
    """
    document: dict[str, Any] = {
        "title": f"nodes of {node.devices} {device.title}, from {Path(node.source).name}{_rack(node, device)}",
        "source": f"the user's own topology {Path(node.source).name}",
        "devices_per_node": node.devices,
    }
    host: dict[str, Any] = {}
    if node.pcie_bytes_per_s is not None:
        host["rate"] = _rate(node.pcie_bytes_per_s)
    if "sockets" not in given.get("host", {}):
        host["sockets"] = _sockets(node)
    per_switch = _behind(node, host.get("sockets", given.get("host", {}).get("sockets", 1)))
    peer_access = given.get("host", {}).get("peer_access", device.peer_access)
    if per_switch > 1 and peer_access:  # otherwise hosts copy the messages
        host["switch_devices"] = per_switch
    document["host"] = host
    if "scale_up" not in given:
        scale_up = _scale_up(node, device)
        if scale_up is not None:
            document["scale_up"] = scale_up
    if node.nics:
        network: dict[str, Any] = {"nics_per_node": node.nics}
        if node.network is not None:
            network["kind"] = node.network
        if node.nic_bytes_per_s is not None:
            network["nic_rate"] = _rate(node.nic_bytes_per_s)
        if node.near and node.nics >= node.devices:
            network["direct"] = True
        document["network"] = network
    for key, value in given.items():
        inside = document.get(key)
        document[key] = {**inside, **value} if isinstance(inside, dict) and isinstance(value, Mapping) else value
    return document


def _rack(node: NodeTopology, device: Device) -> str:
    """Return the unknown facts in the topology of one tray of a rack-wide NVLink; empty for other nodes."""
    if "nvl72" not in device.name or node.devices >= 72:
        return ""
    return f" alone; trays of {device.name} share NVLink in racks: --cluster {device.name}, or scale_up: {{size: 72}}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.12g}GB/s"


def _sockets(node: NodeTopology) -> int:
    """Return 1 or 2; more NUMA nodes are taken as parts of two sockets."""
    count = node.devices
    groups = [node.socket_of[:count].count(socket) for socket in dict.fromkeys(node.socket_of[:count])]
    if len(set(groups)) > 1:
        raise RequestError(
            f"{node.source}: sockets must have equally many devices, but got {' and '.join(map(str, groups))}; write a "
            "cluster file with `topology:` and host: {sockets: 1} to take them as one"
        )
    return 2 if len(groups) % 2 == 0 else 1


def _behind(node: NodeTopology, sockets: int) -> int:
    """Return the number of devices behind each PCIe switch; 1 where the numbers differ."""
    switches = node.switch_of[: node.devices]
    runs = [len(list(run)) for _, run in itertools.groupby(switches)]
    equal = len(set(runs)) == 1 and len(runs) == len(set(switches))
    return runs[0] if equal and node.devices // sockets % runs[0] == 0 else 1


def _scale_up(node: NodeTopology, device: Device) -> dict[str, Any] | str | None:
    """Return the ``scale_up`` key; None for the device's usual links."""
    if node.switch_links is None:
        return None
    if not device.link_count:
        return "none"
    each = device.link_bytes_per_s / device.link_count
    if any(node.switch_links):
        counts = set(node.switch_links)
        if len(counts) > 1:
            lone = node.switch_links.index(min(counts))
            raise RequestError(
                f"{node.source}: device {lone} has {min(counts)} NVLinks to the switch where others have "
                f"{max(counts)}; it cannot be reached at their rate: repair it, or give scale_up in a cluster file"
            )
        rate = _rate(each * counts.pop())
        return {"kind": "nvswitch", "size": len(node.socket_of), "rate": rate} if len(node.socket_of) > 1 else "none"
    return _mesh(node, each, "xgmi-mesh" if device.link_kind == "xgmi" else "nvlink-mesh")


def _mesh(node: NodeTopology, each_bytes_per_s: float, kind: str) -> dict[str, Any] | str:
    """Return the ``scale_up`` key of devices with links to each other: one mesh, or equal islands."""
    islands = _islands(len(node.socket_of), node.links)
    if len(islands) == len(node.socket_of):
        return "none"
    size = len(islands[0])
    shapes = {
        tuple(sorted((a - island[0], b - island[0], n) for (a, b), n in node.links.items() if a in island))
        for island in islands
    }
    contiguous = all(island == list(range(island[0], island[0] + size)) for island in islands)
    if len(shapes) > 1 or not contiguous:
        shown = "; ".join(" ".join(map(str, island)) for island in islands)
        raise RequestError(
            f"{node.source}: NVLink must join all devices or islands that are alike, but joins devices {shown}; some "
            "cannot be reached from others: give scale_up: none in a cluster file to leave NVLink out"
        )
    mesh = list(shapes.pop())
    busiest = max(sum(n for a, b, n in mesh if place in (a, b)) for place in range(size))
    scale_up: dict[str, Any] = {"kind": kind, "size": size, "rate": _rate(each_bytes_per_s * busiest)}
    if len(mesh) < size * (size - 1) // 2 or len({n for _, _, n in mesh}) > 1:
        scale_up["mesh"] = [list(link) for link in mesh]
    return scale_up


def _islands(devices: int, links: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Return the sets of devices that reach each other, directly or through others, in order."""
    island = list(range(devices))
    for a, b in links:
        old, new = max(island[a], island[b]), min(island[a], island[b])
        island = [new if value == old else value for value in island]
    return [[device for device in range(devices) if island[device] == first] for first in sorted(set(island))]
