"""Clusters by name, from a user's document, or from a few facts."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forerun.spaces.clusters.cluster import Cluster, Overlap
from forerun.spaces.clusters.description import MOST_DEVICES, spec_from_mapping
from forerun.spaces.clusters.device import Device, device_from_mapping, device_names, load_device, names_in, read_entry
from forerun.spaces.clusters.groups import groups_from_document
from forerun.spaces.clusters.levels import levels_from_spec
from forerun.spaces.clusters.topologies import TOPOLOGY_ENDINGS, read_topology, topology_document
from forerun.spaces.documents import Document, read_document, validate
from forerun.spaces.errors import RequestError
from forerun.spaces.units import parse_bytes, parse_rate

_RACK = ("nvl72", 72)
"""Endings of the names of devices in racks, and the number of devices in a rack."""


def cluster_names() -> tuple[str, ...]:
    """Return the names of all catalogued clusters, sorted."""
    return names_in("clusters")


def load_cluster(name: str) -> Cluster:
    """Return the catalogued cluster called ``name``.

    Raises
    ------
    RequestError
        The cluster does not exist; the message names the nearest ones, or those of a device's name.
    """
    if name in device_names() and name not in cluster_names():
        near = ", ".join(cluster for cluster in cluster_names() if load_cluster(cluster).device.name == name)
        raise RequestError(f"{name} is a device; clusters of it: {near or 'none in the catalogue'}")
    built = cluster_from_mapping(read_entry("clusters", name, "cluster"), name=name)
    return replace(built, catalogued=True, cautions=())


def resolve_cluster(text: str, *, groups: bool = False) -> Cluster:
    """Return the cluster of ``text``: a catalogue name, the path of a user's document, or of a topology.

    Topologies are NCCL's XML or the text of ``nvidia-smi topo -m``.

    ``groups``: accept groups of different nodes; otherwise a document with groups is refused.

    Raises
    ------
    RequestError
        ``text`` is none of these, or the document is invalid (with file, line and key).
    """
    lowered = text.lower()
    if lowered.endswith(TOPOLOGY_ENDINGS):
        return _from_topology(Path(text), Document(data={}, source=text, text=""))
    if not lowered.endswith((".yaml", ".yml", ".json")):
        return load_cluster(text)
    document = read_document(Path(text))
    if isinstance(document.data, dict) and "groups" in document.data:
        if not groups:
            raise RequestError(
                f"{document.where(('groups',))}: only search and simulate know groups of nodes that differ "
                f"(`search MODEL --cluster {text}`); give one group's cluster instead"
            )
        return groups_from_document(document, named=resolve_cluster, described=cluster_from_mapping)
    named = document.data.get("topology") if isinstance(document.data, dict) else None
    if isinstance(named, str):
        return _from_topology(Path(text).parent / named, document)
    return _from_document(document, Path(text).stem)


def cluster_document(text: str) -> dict[str, Any]:
    """Return the keys of a cluster document for the cluster of ``text``, from any source.

    Raises
    ------
    RequestError
        As for ``resolve_cluster``.
    """
    lowered = text.lower()
    if lowered.endswith(TOPOLOGY_ENDINGS):
        return _topology_keys(Path(text), Document(data={}, source=text, text=""))[0]
    if not lowered.endswith((".yaml", ".yml", ".json")):
        return dict(read_entry("clusters", text, "cluster"))
    document = read_document(Path(text))
    named = document.data.get("topology")
    keys = _topology_keys(Path(text).parent / named, document)[0] if isinstance(named, str) else document.data
    return {key: value for key, value in keys.items() if key != "topology"}


def _from_document(document: Document, stem: str) -> Cluster:
    from forerun.spaces.clusters.schema import ClusterDocument  # imports pydantic, which a catalogue name does not need

    described = validate(document, ClusterDocument).model_dump(exclude_none=True)
    try:
        return cluster_from_mapping(described, name=described.get("name", stem))
    except RequestError as error:
        raise RequestError(f"{document.source}: {error}") from None


def _from_topology(path: Path, document: Document) -> Cluster:
    keys, notes = _topology_keys(path, document)
    cluster = _from_document(replace(document, data=keys), path.stem)
    noted = (*(f"{note} (in {path.name})" for note in notes), *cluster.defaults)
    return replace(cluster, defaults=noted, cautions=(*cluster.cautions, *_trays(cluster, document.data)))


def _trays(cluster: Cluster, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning for racks whose nodes share the fast fabric, which a node's topology does not show."""
    name, (ending, size) = cluster.device.name, _RACK
    if not name.endswith(ending) or "scale_up" in given:
        return ()
    return (
        f"nodes of {cluster.device.title} share NVLink with the other nodes of a rack, which the topology of one does "
        f"not show: take cluster {name}, or write scale_up: {{size: {size}}}",
    )


def _topology_keys(path: Path, document: Document) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the keys of a topology file's cluster, overridden by those of ``document``, and its reader's remarks."""
    from forerun.spaces.clusters.schema import DeviceDocument

    node = read_topology(path)
    named = document.data.get("device", node.device)
    if named is None:
        raise RequestError(
            f"{path}: the file does not say which catalogued device its node has; write a cluster file with "
            f"`topology: {path.name}` and `device:` (or put the lines of `nvidia-smi -L` into the text)"
        )
    if isinstance(named, dict):
        named = validate(replace(document, data=named), DeviceDocument).model_dump(exclude_none=True)
    elif not isinstance(named, str):
        raise RequestError(f"{document.where(('device',))}: a device is a catalogued name or its keys")
    device = _device(named)
    return {"device": named, **topology_document(node, device, document.data)}, tuple(node.notes)


def cluster_from_mapping(data: Mapping[str, Any], *, name: str) -> Cluster:
    """Return the cluster of ``data`` (the keys of a cluster document).

    Raises
    ------
    RequestError
        A device is unknown, or values contradict each other.
    """
    device = _device(data["device"])
    spec, filled = spec_from_mapping(data, device)
    host: dict[str, float] = {"bytes_per_s_per_device": spec.host.bytes_per_s}
    if "memory" in data.get("host", {}):
        host["memory_bytes"] = parse_bytes(data["host"]["memory"])
    if "memory_rate" in data.get("host", {}):
        host["memory_bytes_per_s"] = parse_rate(data["host"]["memory_rate"])
    return Cluster(
        name=name,
        title=data.get("title", name),
        device=device,
        devices_per_node=spec.devices_per_node,
        max_devices=spec.max_devices,
        levels=levels_from_spec(spec),
        host=host,
        source=data.get("source", "the user's own description"),
        usd_per_device_hour=data.get("usd_per_device_hour"),
        spec=spec,
        defaults=filled.texts(),
        cautions=tuple(filled.cautions),
        overlap=_overlap(data.get("overlap", {}), device),
        collectives=data.get("collectives", True),
    )


def _overlap(data: Mapping[str, Any], device: Device) -> Overlap:
    """Return the overlap of a cluster document; multiprocessors of a collective are not available to computation."""
    units, all_units = data.get("collective_units", 0), device.compute_units
    if units >= all_units:
        raise RequestError(
            f"overlap.collective_units: computation needs some of the {all_units} multiprocessors of {device.name}, "
            f"but collectives occupy {units}; use at most {all_units - 1}"
        )
    return Overlap(
        computation=data.get("computation", all_units / (all_units - units)),
        communication=data.get("communication", 1.0),
    )


def simple_cluster(
    device: Device,
    devices_per_node: int,
    *,
    intra_link: str | None,
    nic_bytes_per_s_per_node: float | None,
    network: str = "infiniband",
    scale_up_size: int | None = None,
) -> Cluster:
    """Return a cluster from the few facts of a published run.

    ``intra_link``: description of the links inside a node ("NVLink4+NVSwitch", "PCIe 3.0", "NVLink2 hybrid cube mesh",
    "NVLink5 NVL72"), None or empty for the device's usual ones. ``nic_bytes_per_s_per_node``: line rate of all NICs of
    a node, None for the device's usual one. ``scale_up_size``: devices that these links connect beyond a node, as in a
    slice of a TPU pod; None: devices of a node (of an NVL72 rack: 72). Values that were filled in or derived from the
    description are in ``defaults``.

    Raises
    ------
    RequestError
        The facts contradict each other.
    """
    words = (intra_link or "").lower()
    data: dict[str, Any] = {"device": device, "devices_per_node": devices_per_node}
    notes: list[str] = []
    if not words and devices_per_node > 1:
        notes.append(
            f"intra_link: {device.link_kind if device.link_kind != 'none' else 'pcie'} (usual for {device.name})"
        )
    data["scale_up"] = _links_in_words(words, device, devices_per_node)
    if scale_up_size is not None and scale_up_size > 1 and data["scale_up"] != "none":
        data["scale_up"] |= {"size": scale_up_size}
    data["network"] = {"kind": network}
    if nic_bytes_per_s_per_node is not None:
        nics = _likely_nics(nic_bytes_per_s_per_node, devices_per_node)
        data["network"] |= {"nics_per_node": nics, "nic_rate": nic_bytes_per_s_per_node / nics}
        if nics > 1:
            notes.append(f"network.nics_per_node: {nics} (guessed from the sum of their rates)")
    unit = math.lcm(devices_per_node, data["scale_up"]["size"] if "size" in data["scale_up"] else 1)
    data["max_devices"] = max(unit, MOST_DEVICES // unit * unit)
    name = f"{device.name} x{devices_per_node}"
    built = cluster_from_mapping(data | {"title": name, "source": "described in one call"}, name=name)
    return replace(built, defaults=tuple(notes) + built.defaults)


def _device(named: Any) -> Device:
    if isinstance(named, Device):
        return named
    if isinstance(named, str):
        return load_device(named)
    device = device_from_mapping(named, name=named["name"])
    return device if device.like or device.name in device_names() else replace(device, like=_same_chip(device))


def _same_chip(device: Device) -> str:
    """Return the catalogued device with the figures of a user's device; "" for none."""
    same = [
        other
        for other in map(load_device, device_names())
        if all(getattr(other, name) == getattr(device, name) for name in _OF_A_CHIP)
    ]
    figures = ("memory_bytes", "watts", "host_bytes_per_s", "link_kind")
    best = max(same, key=lambda other: sum(getattr(other, n) == getattr(device, n) for n in figures), default=None)
    return "" if best is None else best.name


_OF_A_CHIP = ("architecture", "compute_units", "peak_flops_per_s", "memory_bytes_per_s", "matmul_ceiling")
"""Figures that are equal for devices of the same chip."""


def _links_in_words(words: str, device: Device, per_node: int) -> dict[str, Any] | str:
    """Return the ``scale_up`` keys for a published description of the links inside a node."""
    if "pcie" in words or device.link_kind == "none":
        return "none"
    if device.name.endswith(_RACK[0]):
        return {"kind": "nvswitch", "size": _RACK[1]}
    if per_node == 1:
        return "none"
    if device.link_kind != "nvlink":
        return {}
    generation_with_mesh = device.architecture.startswith(("Volta", "Pascal"))
    if "cube" in words or (generation_with_mesh and per_node == 8 and "switch" not in words):
        return {"kind": "nvlink-mesh", "mesh": "cube"}
    if generation_with_mesh and per_node < 8:
        return {"kind": "nvlink-mesh"}
    return {"kind": "nvswitch"}


def _likely_nics(total_bytes_per_s: float, per_node: int) -> int:
    """Return the number of NICs of at least 100 Gb/s, at most one per device: 3200 Gb/s on 8 are 8 x 400."""
    return max(1, min(per_node, int(total_bytes_per_s // 12.5e9)))
