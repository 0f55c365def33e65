"""NCCL's topology, written with ``NCCL_TOPO_DUMP_FILE`` and read with ``NCCL_TOPO_FILE``.

``system`` has one ``cpu`` per NUMA node with a tree of ``pci`` elements, whose leaves are a ``gpu`` or a ``nic`` with
its ``net`` ports. Files of cloud providers omit these and identify devices by PCI class. ``nvlink`` elements of a GPU
(``xgmi`` in RCCL's files) count its links to another GPU or to a switch (NCCL 2.30, src/graph/xml.cc).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forerun.spaces.clusters.topologies.names import device_of_pci
from forerun.spaces.clusters.topologies.node import NodeTopology
from forerun.spaces.clusters.topologies.xml_tree import Element, parse_xml
from forerun.spaces.errors import RequestError

_GPU_CLASSES, _NIC_CLASSES = ("0x0300", "0x0302"), ("0x0200", "0x0207")
_SWITCH_CLASS = "0x0680"
_FABRIC = "fffffff:ff:ff.0"
"""Target of links to switches without a PCI address."""
_LARGEST = 1 << 20
"""Limit of counts and speeds; more is a mistake: 1 Tb/s in the Mb/s of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A ``pci`` leaf: its ``host`` and ``numa`` node, and the ``branch`` below the processor that leaves share."""

    pci: Element
    host: str
    numa: int
    branch: int


def read_nccl_topology(text: str, *, source: str) -> NodeTopology:
    """Return the node of an NCCL topology.

    Raises
    ------
    RequestError
        It is not well-formed XML or not a topology, or has no devices or has links to unknown ones.
    """
    root = parse_xml(text, source=source)
    if root.tag != "system":
        hint = "; set NCCL_TOPO_DUMP_FILE instead of NCCL_GRAPH_DUMP_FILE" if root.tag == "graphs" else ""
        raise RequestError(f"{source}, line {root.line}: a topology begins with <system>, but got <{root.tag}>{hint}")
    places = list(_places(root, source))
    gpus = sorted((place for place in places if _is_gpu(place.pci)), key=lambda place: _order(place, source))
    if not gpus:
        raise RequestError(f"{source}: a topology names its devices (<gpu>, or <pci> of class 0x0302..), but has none")
    notes: list[str] = []
    links, switches = _links(gpus, source, notes)
    nics = _Nics(places, source)
    hosts = len({place.host for place in gpus})
    names = {_device(place.pci) for place in gpus}
    notes += nics.notes
    if len(names) > 1:
        raise RequestError(f"{source}: devices of a node must be equal, but got {', '.join(sorted(map(str, names)))}")
    return NodeTopology(
        source=source,
        device=names.pop(),
        socket_of=tuple(place.numa for place in gpus),
        switch_of=tuple(place.branch for place in gpus),
        links=links,
        switch_links=switches,
        pcie_bytes_per_s=_pcie(gpus, notes),
        nics=nics.count // hosts,
        nic_bytes_per_s=nics.bytes_per_s,
        network=nics.kind,
        near=_near(gpus, nics.places),
        hosts=hosts,
        notes=tuple(notes),
    )


def _places(root: Element, source: str) -> Iterator[_Place]:
    """Yield all leaves of the PCI trees of all processors."""
    branch = 0
    for cpu in root.children:
        if cpu.tag != "cpu":
            continue
        numa, host = _whole(cpu, "numaid", source, default=0), cpu.attributes.get("host_hash", "")
        for top in cpu.children:
            branch += 1
            for element in top.walk():
                if element.tag == "pci" and not any(child.tag == "pci" for child in element.children):
                    yield _Place(pci=element, host=host, numa=numa, branch=branch)
                elif element is top and element.tag == "nic":
                    yield _Place(pci=element, host=host, numa=numa, branch=branch)


def _is_gpu(pci: Element) -> bool:
    return any(child.tag == "gpu" for child in pci.children) or pci.attributes.get("class", "")[:6] in _GPU_CLASSES


def _order(place: _Place, source: str) -> tuple[str, int, int]:
    """Return the sort key of a device: devices of a host and a NUMA node are adjacent."""
    for child in place.pci.children:
        if child.tag == "gpu":
            return place.host, place.numa, _whole(child, "dev", source, default=place.pci.line)
    return place.host, place.numa, place.pci.line


def _device(pci: Element) -> str | None:
    try:
        vendor, number = (int(pci.attributes.get(name, "0"), 16) for name in ("vendor", "device"))
    except ValueError:
        return None
    return device_of_pci(vendor, number)


_LINK_TAGS = ("nvlink", "xgmi")
"""Elements for the links of a GPU to others, in NCCL's and in RCCL's files."""


def _links(
    gpus: list[_Place], source: str, notes: list[str]
) -> tuple[dict[tuple[int, int], int], tuple[int, ...] | None]:
    """Return links between devices, and of every device to switches; None where the file has no <gpu>."""
    # Links to unlisted devices are ignored: a job on some devices of a node writes only these devices.
    if not any(child.tag == "gpu" for place in gpus for child in place.pci.children):
        return {}, None
    number = {(place.host, _bus(place.pci.attributes.get("busid", ""))): at for at, place in enumerate(gpus)}
    links: dict[tuple[int, int], int] = {}
    switches = [0] * len(gpus)
    absent: set[str] = set()
    for at, place in enumerate(gpus):
        for link in (link for gpu in place.pci.children if gpu.tag == "gpu" for link in gpu.children):
            if link.tag not in _LINK_TAGS:
                continue
            target, count = _bus(link.attributes.get("target", "")), _whole(link, "count", source)
            other = number.get((place.host, target))
            if link.attributes.get("tclass", "")[:6] == _SWITCH_CLASS or target == _FABRIC:
                switches[at] += count
            elif other is not None and other != at:
                links[min(at, other), max(at, other)] = count
            elif other is None and target and link.attributes.get("tclass", "")[:6] in _GPU_CLASSES:
                absent.add(target)
            elif link.attributes.get("tclass", "")[:4] != "0x06":
                raise RequestError(
                    f"{source}, line {link.line}: NVLink of device {at} leads to {target or 'no target'}, which is no "
                    "device of the file and no switch (tclass 0x0680..)"
                )
    if absent:
        notes.append(f"NVLinks to {len(absent)} devices that the file does not list were left aside")
    return links, tuple(switches)


def _bus(text: str) -> str:
    return text.strip().lower()


class _Nics:
    """The fastest network ports; slower ones (management, storage) are ignored with a note."""

    def __init__(self, places: list[_Place], source: str) -> None:
        ports: dict[tuple[str, str], tuple[float, str, _Place]] = {}
        for place in places:
            nets = [element for element in place.pci.walk() if element.tag == "net"]
            for net in nets:
                speed = _whole(net, "speed", source, default=0) * 1e6 / 8
                name = net.attributes.get("name", str(net.line))
                ports.setdefault((place.host, name), (speed, _network(name, place.pci), place))
            if not nets and place.pci.attributes.get("class", "")[:6] in _NIC_CLASSES:
                name = place.pci.attributes.get("busid", str(place.pci.line))
                ports[place.host, name] = (0.0, _network("", place.pci), place)
        fastest = max((speed for speed, _, _ in ports.values()), default=0.0)
        kept = [port for port in ports.values() if port[0] == fastest]
        self.count = len(kept)
        self.places = [place for _, _, place in kept]
        self.bytes_per_s = fastest or None
        kinds = {kind for _, kind, _ in kept} - {""}
        self.kind = kinds.pop() if len(kinds) == 1 else None
        slower = len(ports) - len(kept)
        self.notes = [f"network: {slower} slower ports left aside"] if slower else []


def _network(name: str, pci: Element) -> str:
    """Return the kind of network of a port, from its name and the class of its card; "" if unknown."""
    if name.startswith(("rdmap", "efa")) or pci.attributes.get("vendor") == "0x1d0f":
        return "efa"
    if name.startswith("hsn"):
        return "slingshot"
    if pci.attributes.get("class", "").startswith("0x0207"):
        return "infiniband"
    if name.startswith(("mlx", "bnxt", "roce")):
        return "roce"
    return "ethernet" if name else ""


def _near(gpus: list[_Place], nics: list[_Place]) -> bool:
    """Check whether every PCIe branch has a port per device, so that no traffic crosses the host."""
    devices = [place.branch for place in gpus]
    ports = [place.branch for place in nics]
    return bool(nics) and all(ports.count(branch) >= devices.count(branch) for branch in set(devices))


def _pcie(gpus: list[_Place], notes: list[str]) -> float | None:
    """Return the line rate of the devices' PCIe links; virtual machines have some without a width."""
    rates = set()
    for place in gpus:
        speed = re.match(r"\s*([0-9.]+)\s*GT/s", place.pci.attributes.get("link_speed", ""))
        width = place.pci.attributes.get("link_width", "")
        try:
            rates.add(float(speed[1]) * 1e9 / 8 * int(width) if speed else 0.0)
        except ValueError:
            rates.add(0.0)
    slowest = min(rates)
    if slowest <= 0:
        notes.append("host.rate: the file states no PCIe speed or width")
        return None
    if len(rates) > 1:
        notes.append("host.rate: that of the slowest device")
    return slowest


def _whole(element: Element, name: str, source: str, default: int | None = None) -> int:
    text = element.attributes.get(name)
    if text is None and default is not None:
        return default
    try:
        value = int(text or "", 0)
    except ValueError:
        value = -1
    if not 0 <= value <= _LARGEST:
        if default is not None and value == -1 and text == "-1":
            return default
        raise RequestError(
            f"{source}, line {element.line}: {name} of <{element.tag}> must be a whole number up to {_LARGEST}, but "
            f"got {text!r}"
        )
    return value
