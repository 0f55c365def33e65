"""Columns about hardware -> a cluster."""

import math
from dataclasses import replace
from functools import cache

from forerun.search.measured.validate.cells import Filled, Skip, integer, number
from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.facts import Facts
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.clusters.catalogue import simple_cluster
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.device import Device, load_device
from forerun.spaces.errors import RequestError

GBIT_BYTES = 1e9 / 8

USUAL_NODE = 8
"""Default devices of a node (every NVIDIA SXM board, MI300X, Gaudi)."""
USUAL_NODES = {"AWS": 16}
"""Default devices of a node for vendors with another usual number."""
TRAY = 4
"""Devices of a node of the NVL72 racks, and of the hosts of TPU pods."""


def cluster_of(row: TableRow, facts: Facts, filled: Filled) -> Cluster:
    """Return the cluster of a row; equal facts give the same object.

    Raises:
        Skip: the device is blank, unknown or a mixture, or its columns contradict each other.
    """
    name = facts.device or row["device"].lower()
    if not name:
        raise Skip("device not stated")
    if "+" in name:
        raise Skip("heterogeneous cluster")
    device = _device(name)
    if device is None:
        raise Skip(f"unknown device {name}")
    gpus = devices_of(row, filled)
    if row["cluster"]:
        return _stated_cluster(row["cluster"], name)
    pod = device.link_kind == "ici" and device.vendor == "Google"  # other tori are limited to a node
    usual = TRAY if pod or "nvl72" in name else USUAL_NODES.get(device.vendor, USUAL_NODE)
    per_node = integer(row, "gpus_per_node") or filled.of("gpus_per_node", min(gpus, usual))
    # A slice of a pod is one torus: its hosts' NICs are used only between several slices.
    slice_size = gpus // facts.slices if gpus % facts.slices == 0 else gpus
    network = _network(row, facts, filled, gpus > (slice_size if pod else per_node))
    try:
        return _cluster(
            name,
            per_node,
            row["intra_link"],
            *network,
            slice_size=slice_size if pod else None,
            watts=number(row, "power_limit_w"),
        )
    except RequestError as error:
        raise Skip(f"no such cluster: {error}") from None


def devices_of(row: TableRow, filled: Filled) -> int:
    """Return the devices of a row: as stated, else the product of degrees.

    Raises:
        Skip: neither is stated.
    """
    gpus = integer(row, "gpus")
    if gpus is None and row["dp"] and row["tp"] and row["pp"]:
        gpus = filled.of("gpus", math.prod(integer(row, column) or 1 for column in ("dp", "tp", "pp", "cp")))
    if gpus is None or gpus < 1:
        raise Skip("missing gpus")
    return gpus


def _stated_cluster(named: str, device: str) -> Cluster:
    """Return the cluster that a row names: an entry of the catalogue or a file."""
    cluster = _resolved_cluster(named)
    if cluster is None:
        raise Skip(f"unknown cluster {named}")
    if cluster.device.name != device:
        raise Skip(f"device contradicts cluster {named}")
    return cluster


@cache
def _resolved_cluster(named: str) -> Cluster | None:
    try:
        return resolve_cluster(named)
    except RequestError:
        return None


def _network(row: TableRow, facts: Facts, filled: Filled, several: bool) -> tuple[float | None, str]:
    """Return the NIC rate of a node in bytes/s (None: the device's usual one) and the kind of network."""
    stated = number(row, "nic_gbit_per_node") or facts.nic_gbit_per_node
    if stated is None and several:
        filled.of("nic", None)
    kind = facts.network
    if kind is None:
        kind = filled.of("network", "infiniband") if several else "infiniband"
    return (None if stated is None or math.isnan(stated) else stated * GBIT_BYTES), kind


@cache
def _device(name: str) -> Device | None:
    try:
        return load_device(name)
    except RequestError:
        return None


@cache
def _cluster(
    name: str,
    per_node: int,
    link: str,
    nic_bytes_per_s: float | None,
    network: str,
    *,
    slice_size: int | None,
    watts: float | None,
) -> Cluster:
    device = _device(name)
    assert device is not None, "cluster_of has looked it up"
    if watts:
        device = replace(device, watts=watts)
    return simple_cluster(
        device,
        per_node,
        intra_link=link or None,
        nic_bytes_per_s_per_node=nic_bytes_per_s,
        network=network,
        scale_up_size=slice_size,
    )
