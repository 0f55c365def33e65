"""The catalogue of devices: one YAML file each under ``data/devices``, every constant with its source."""

from collections.abc import Mapping
from typing import Any

from forerun.spaces.clusters.device import Device
from forerun.spaces.documents import parse_document
from forerun.spaces.documents.package_data import package_names, package_text
from forerun.spaces.errors import unknown
from forerun.spaces.units import parse_bytes, parse_flops, parse_rate


def device_names() -> tuple[str, ...]:
    """Return the names of all catalogued devices, sorted."""
    return names_in("devices")


def load_device(name: str) -> Device:
    """Return the catalogued device called ``name``.

    Raises:
        RequestError: the device does not exist; the message names the nearest ones.
    """
    return device_from_mapping(read_entry("devices", name, "device"), name=name)


def device_from_mapping(data: Mapping[str, Any], *, name: str) -> Device:
    """Return the device of ``data`` (the keys of a catalogue file).

    Raises:
        RequestError: a value is not a quantity.
    """
    sources: Mapping[str, str] = data.get("sources", {})
    link = data.get("link", {})
    price = data.get("usd_per_hour")
    nic = data.get("nic_rate")
    return Device(
        name=name,
        title=data.get("title", name),
        vendor=data.get("vendor", "unknown"),
        architecture=data.get("architecture", "unknown"),
        memory_bytes=parse_bytes(data["memory"]),
        memory_bytes_per_s=parse_rate(data["memory_rate"]),
        peak_flops_per_s={precision: parse_flops(rate) for precision, rate in data["peak"].items()},
        compute_units=data["compute_units"],
        matmul_ceiling=dict(data["matmul_ceiling"]),
        memory_efficiency=data["memory_efficiency"],
        watts=data.get("watts"),
        usd_per_hour=(price[0], price[1]) if price else None,
        source=sources.get("peak", "the user's own figures"),
        link_kind=link.get("kind", "none"),
        link_bytes_per_s=parse_rate(link.get("rate", 0)),
        link_count=link.get("count", 0),
        host_bytes_per_s=parse_rate(data["host_rate"]),
        peer_access=data.get("peer_access", True),
        host_speed=data.get("host_speed", 1.0),
        nic_bytes_per_s=None if nic is None else parse_rate(nic),
        notes=data.get("notes", ""),
        like=data.get("like", ""),
        sources=dict(sources),
    )


def names_in(folder: str) -> tuple[str, ...]:
    """Return the sorted names of the catalogue entries in ``folder`` of the package data."""
    return package_names("forerun.spaces.clusters", "data", folder)


def read_entry(folder: str, name: str, what: str) -> Mapping[str, Any]:
    """Return the catalogue entry ``name`` of ``folder`` as plain data.

    Raises:
        RequestError: the entry does not exist; the message names its kind, ``what``.
    """
    names = names_in(folder)
    if name not in names:
        raise unknown(what, name, names)
    text = package_text("forerun.spaces.clusters", "data", folder, f"{name}.yaml")
    data: Mapping[str, Any] = parse_document(text, source=f"{name}.yaml").data
    return data
