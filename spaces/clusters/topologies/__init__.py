"""Topologies of one node from files of NCCL and ``nvidia-smi``."""

from forerun.spaces.clusters.topologies.describe import TOPOLOGY_ENDINGS, read_topology, topology_document
from forerun.spaces.clusters.topologies.node import NodeTopology

__all__ = ["TOPOLOGY_ENDINGS", "NodeTopology", "read_topology", "topology_document"]
