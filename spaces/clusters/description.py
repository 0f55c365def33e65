"""Conversion of the keys of a cluster document to a ``ClusterSpec``, with a record of filled-in values."""

from collections.abc import Mapping
from typing import Any

from forerun.spaces.clusters.device import Device
from forerun.spaces.clusters.spec import ClusterSpec, HostLinks, Network, ScaleUp, Tier
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_rate, format_seconds, parse_rate, parse_seconds

# One hop with the low-latency protocol, NCCL 2.30.7 src/graph/tuning.cc (ring): NVLink 0.6, PCIe 1.0, network 2.7 us.
_NCCL = "NCCL tuning constant, ring, LL"
_SCALE_UP_S = (0.6e-6, _NCCL)
_HOST_S = (1.0e-6, _NCCL)
_NETWORK_S: Mapping[str, tuple[float, str]] = {
    "infiniband": (2.7e-6, _NCCL),
    "roce": (2.7e-6, _NCCL),
    "slingshot": (2.7e-6, _NCCL),
    "omnipath": (2.7e-6, _NCCL),
    "efa": (15.5e-6, "AWS, optimising HPC with EFA: 15.5 us for a small message"),
    "ethernet": (30e-6, "assumption: kernel TCP, about ten times RDMA"),
}
# Between two sockets, NCCL src/graph/topo.h in GB/s: Broadwell 6, Skylake 10, Sapphire Rapids 22, Emerald Rapids 40;
# AMD Zen 1 and 2 16, Zen 3 and 4 24, Zen 5 32.
_SOCKET_BYTES_PER_S = (24e9, "NCCL topology constant for AMD Zen 3 and 4")
# All devices of a socket together through host memory: 24 of 32 GB/s of a link on L40S (aiconfigurator nccl-tests).
_STAGED_SHARE = 0.75
# One NIC through the kernel's sockets, where the library cannot send from the device's memory: 16 T4 on four nodes with
# 50 Gb/s each reach 16 Gb/s per node with any number of communicators (amp; 0.8 of the rate below is reached).
_KERNEL_BYTES_PER_S = 2.5e9
# A NIC for more than two devices is behind another PCIe switch than most of them: without GPUDirect their data pass
# through host memory, at about half of a device's link (dlperf_gpt: 8 of 12.5 GB/s on V100 with PCIe 3).
_COPIED_SHARE = 0.5
MOST_DEVICES = 16_384
# The usual wiring of a device's links.
_KIND_OF_LINK: Mapping[str, str] = {
    "nvlink": "nvswitch",
    "xgmi": "xgmi-mesh",
    "xelink": "xgmi-mesh",
    "roce": "roce-mesh",
    "ici": "torus",
}
_ARCHITECTURES_WITH_SHARP = ("Hopper", "Blackwell")
# Eight devices with 6 links each, as shown by `nvidia-smi topo -m` on a DGX-1 with V100; with P100 every pair has one
# link (NVIDIA DGX-1 white paper WP-08437, figures 4 and 5).
_CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2)),
    *((2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)),
)


class Defaults:
    """Collects the filled-in values, each with its reason, and warnings about them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.cautions: list[str] = []

    def fill(self, key: str, value: Any, shown: str, reason: str) -> Any:
        """Record that ``key`` was filled with ``value`` and return it."""
        self._texts.append(f"{key}: {shown} ({reason})")
        return value

    def texts(self) -> tuple[str, ...]:
        """Return ``key: value (reason)`` for each."""
        return tuple(self._texts)


def spec_from_mapping(data: Mapping[str, Any], device: Device) -> tuple[ClusterSpec, Defaults]:
    """Return the spec of ``data`` (the keys of a cluster document) and the filled-in defaults.

    Raises
    ------
    RequestError
        Values contradict each other; see ``ClusterSpec``.
    """
    filled = Defaults()
    per_node: int = data["devices_per_node"]
    scale_up = _scale_up(data.get("scale_up", {}), device, per_node, filled)
    host = _host(data.get("host", {}), device, per_node, per_node > (scale_up.size if scale_up else 1), filled)
    unit = max(per_node, scale_up.size if scale_up else 1)
    network = _network(data["network"], device, per_node, host, filled) if "network" in data else None
    if "max_devices" in data:
        most: int = data["max_devices"]
    elif network is None:
        most = unit
    else:
        most = filled.fill("max_devices", MOST_DEVICES // unit * unit, f"{MOST_DEVICES // unit * unit}", "not given")
    spec = ClusterSpec(devices_per_node=per_node, max_devices=most, scale_up=scale_up, host=host, network=network)
    return spec, filled


def _scale_up(data: Mapping[str, Any] | str, device: Device, per_node: int, filled: Defaults) -> ScaleUp | None:
    if isinstance(data, str) or (not data and (per_node == 1 or device.link_kind == "none")):
        return None
    size: int = data.get("size") or per_node
    kind = data.get("kind")
    if kind is None:
        kind = _KIND_OF_LINK.get(device.link_kind)
        if kind is None:
            raise RequestError(f"{device.title} has no links of its own; give scale_up: kind and rate, or leave it out")
        filled.fill("scale_up.kind", kind, kind, f"usual for {device.name}")
    torus = tuple(data.get("torus", ()))
    if kind == "torus" and not torus:
        torus = _near_cube(size, 3 if device.link_count >= 6 else 2)
        filled.fill("scale_up.torus", torus, str(list(torus)), f"{size} devices as near to a cube as they go")
    if "rate" in data:
        rate = parse_rate(data["rate"])
    elif device.link_bytes_per_s > 0:
        rate = device.link_bytes_per_s
    else:
        raise RequestError(f"{device.title} has no links of its own; give scale_up: rate, like 300GB/s")
    in_switch = data.get("in_switch")
    if in_switch is None:
        in_switch = kind == "nvswitch" and device.architecture.startswith(_ARCHITECTURES_WITH_SHARP)
        if in_switch:
            filled.fill("scale_up.in_switch", True, "true", "NVLink SHARP, since the third NVSwitch generation")
    return ScaleUp(
        kind=kind,
        size=size,
        bytes_per_s=rate,
        latency_s=_seconds(data, "scale_up.latency", _SCALE_UP_S, filled),
        in_switch=in_switch,
        mesh=_mesh(data.get("mesh", ()), device),
        torus=torus,
    )


def _near_cube(size: int, dimensions: int) -> tuple[int, ...]:
    """Return at most ``dimensions`` extents of at least 2 with product ``size``, as equal as possible.

    >>> _near_cube(64, 3), _near_cube(256, 2), _near_cube(8, 2), _near_cube(7, 3)
    ((4, 4, 4), (16, 16), (4, 2), (7,))
    """
    if dimensions == 1 or size < 4:
        return (size,)
    root = round(size ** (1 / dimensions))
    short = next((extent for extent in range(root, 1, -1) if size % extent == 0), None)
    return (*_near_cube(size // short, dimensions - 1), short) if short else (size,)


def _mesh(links: Any, device: Device) -> tuple[tuple[int, int, int], ...]:
    """Return the table of links; ``cube`` is the table of DGX-1."""
    if links == "cube":
        return tuple((a, b, min(count, 1) if device.link_count == 4 else count) for a, b, count in _CUBE_MESH)
    return tuple((a, b, count) for a, b, count in links)


def _host(data: Mapping[str, Any], device: Device, per_node: int, matters: bool, filled: Defaults) -> HostLinks:
    """Return the links of the host; ``matters``: devices of a node use them, so filled-in values affect the result."""
    silent = Defaults()
    noted = filled if matters else silent
    rate = parse_rate(data["rate"]) if "rate" in data else device.host_bytes_per_s
    sockets = data.get("sockets")
    if sockets is None:
        sockets = 2 if per_node % 2 == 0 and per_node > 4 else 1
        noted.fill("host.sockets", sockets, str(sockets), "usual for this many devices")
    if "socket_rate" in data:
        socket_rate = parse_rate(data["socket_rate"])
    else:
        socket_rate, reason = _SOCKET_BYTES_PER_S
        (noted if sockets > 1 else silent).fill("host.socket_rate", socket_rate, format_rate(socket_rate), reason)
    return HostLinks(
        bytes_per_s=rate,
        sockets=sockets,
        socket_bytes_per_s=socket_rate,
        latency_s=_seconds(data, "host.latency", _HOST_S, noted),
        staged_bytes_per_s=_staged_rate(data, device, rate, noted),
        switch_devices=data.get("switch_devices", 0),
        switch_bytes_per_s=_switch_rate(data, rate, noted),
    )


def _staged_rate(data: Mapping[str, Any], device: Device, rate: float, filled: Defaults) -> float | None:
    """Return the rate of copies through the host memory of a socket, None where devices reach each other directly."""
    if "staged_rate" in data:
        return parse_rate(data["staged_rate"])
    if data.get("peer_access", device.peer_access) or data.get("switch_devices"):
        return None
    staged = _STAGED_SHARE * rate
    reason = f"{device.name} has no peer-to-peer copies; {_STAGED_SHARE:g} of a device's host link, as on L40S"
    filled.fill("host.staged_rate", staged, format_rate(staged), reason)
    return staged


def _switch_rate(data: Mapping[str, Any], rate: float, filled: Defaults) -> float:
    if "switch_rate" in data:
        return parse_rate(data["switch_rate"])
    if data.get("switch_devices"):
        filled.fill("host.switch_rate", rate, format_rate(rate), "as wide as the link of a device")
    return rate


def _network(data: Mapping[str, Any], device: Device, per_node: int, host: HostLinks, filled: Defaults) -> Network:
    kind = data.get("kind") or filled.fill("network.kind", "infiniband", "infiniband", "not given")
    if "nic_rate" in data:
        rate = parse_rate(data["nic_rate"])
    elif device.nic_bytes_per_s is not None:
        rate = device.nic_bytes_per_s
        # More ports than devices are parts of a device's usual port; fewer have its rate, and are shared.
        rate *= min(1.0, per_node / data.get("nics_per_node", per_node))
        filled.fill("network.nic_rate", rate, format_rate(rate), f"a port that is usual for {device.name}")
    else:
        raise RequestError(f"network: give nic_rate, like 400Gb/s; {device.title} has no usual one")
    nics = data.get("nics_per_node") or filled.fill("network.nics_per_node", per_node, str(per_node), "one per device")
    rate = min(rate, _copied_rate(data, kind, rate, per_node / nics, host, filled))
    if nics > per_node:
        # Several NICs of one device work as one (NCCL splits a transfer over the NICs next to a device).
        nics, rate = per_node, rate * nics / per_node
    return Network(
        kind=kind,
        nics_per_node=nics,
        nic_bytes_per_s=rate,
        latency_s=_seconds(data, "network.latency", _NETWORK_S.get(kind, _NETWORK_S["infiniband"]), filled),
        oversubscription=float(data.get("oversubscription", 1.0)),
        leaf_nodes=data.get("leaf_nodes"),
        direct=bool(data.get("direct", False)),
        tiers=tuple(
            Tier(nodes=tier["nodes"], oversubscription=float(tier.get("oversubscription", 1.0)))
            for tier in data.get("tiers", ())
        ),
    )


def _copied_rate(
    data: Mapping[str, Any], kind: str, rate: float, devices_per_nic: float, host: HostLinks, filled: Defaults
) -> float:
    """Return the rate of a NIC with copies by the host; its own ``rate`` where the host copies nothing."""
    if "copied_rate" in data:
        return parse_rate(data["copied_rate"])
    if kind == "ethernet":
        most, reason = _KERNEL_BYTES_PER_S, "a NIC through kernel sockets, measured on AWS"
    elif kind in ("infiniband", "roce") and devices_per_nic > 2 and not data.get("direct"):
        most, reason = _COPIED_SHARE * host.bytes_per_s, "from devices that do not share the NIC's PCIe switch"
    else:
        return rate
    if rate > most:
        filled.fill("network.copied_rate", most, format_rate(most), reason)
        if kind == "ethernet":
            filled.cautions.append(
                f"kind: ethernet is TCP through the kernel, {format_rate(most)} of a NIC of {format_rate(rate)}; "
                "write kind: roce for RDMA over Ethernet, copied_rate: for a rate that you measured"
            )
    return most


def _seconds(data: Mapping[str, Any], key: str, default: tuple[float, str], filled: Defaults) -> float:
    name = key.rpartition(".")[2]
    if name in data:
        return parse_seconds(data[name])
    value, reason = default
    filled.fill(key, value, format_seconds(value), reason)
    return value
