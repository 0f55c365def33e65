"""Devices and clusters: rentable hardware, its links, and the graph and levels derived from these."""

from forerun.spaces.clusters.catalogue import (
    cluster_document,
    cluster_from_mapping,
    cluster_names,
    load_cluster,
    resolve_cluster,
    simple_cluster,
)
from forerun.spaces.clusters.cluster import Cluster, NodeGroup, Overlap
from forerun.spaces.clusters.device import Device, device_from_mapping, device_names, load_device
from forerun.spaces.clusters.groups import grown, stage_groups
from forerun.spaces.clusters.levels import levels_from_spec
from forerun.spaces.clusters.spec import ClusterSpec, HostLinks, Network, ScaleUp, Tier
from forerun.spaces.clusters.topologies import TOPOLOGY_ENDINGS
from forerun.spaces.clusters.topology import build_graph

__all__ = [
    "TOPOLOGY_ENDINGS",
    "Cluster",
    "ClusterSpec",
    "Device",
    "HostLinks",
    "Network",
    "NodeGroup",
    "Overlap",
    "ScaleUp",
    "Tier",
    "build_graph",
    "cluster_document",
    "cluster_from_mapping",
    "cluster_names",
    "device_from_mapping",
    "device_names",
    "grown",
    "levels_from_spec",
    "load_cluster",
    "load_device",
    "resolve_cluster",
    "simple_cluster",
    "stage_groups",
]
