"""Topologies of one node from files of NCCL and ``nvidia-smi``."""

from forerun.spaces.clusters.topologies.describe import TOPOLOGY_ENDINGS, read_topology, topology_document

__all__ = ["TOPOLOGY_ENDINGS", "read_topology", "topology_document"]
