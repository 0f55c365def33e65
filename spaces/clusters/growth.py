"""Extension of a catalogued cluster: more of the same nodes, under further tiers of the same switches.

A non-blocking tree of switches with r ports has 2 (r/2)^t end points in t tiers; a catalogued network of 16,384 devices
is one pod of a wider network. Every further tier connects up to 32 of the pods below it (half of the 64 ports of a
switch; NVIDIA Quantum-2 QM9700, Broadcom Tomahawk 4) and adds the latency of two switches. Bisection is full unless a
document says otherwise (``network: tiers:``): Llama 3 was trained on pods of 3,072 GPUs with 7 times less between them
(arXiv 2407.21783, section 3.3.1).
"""

from dataclasses import replace

from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.levels import levels_from_spec
from forerun.spaces.clusters.spec import Tier

GROWS_FROM = 16_000
"""Devices of an entry that is a pod: smaller entries are existing machines of known size."""
PODS = 32
MOST = 10_000_000


def grown(cluster: Cluster, devices: int) -> Cluster:
    """Return a catalogued cluster extended to at least ``devices`` devices, where its network has a rule.

    Clusters that are large enough, users' clusters, and clusters of fixed size or without a network are unchanged. The
    assumptions are in ``defaults``.
    """
    spec = cluster.spec
    small = spec is None or spec.network is None or cluster.max_devices < GROWS_FROM or cluster.groups
    if small or not cluster.catalogued or not cluster.max_devices < devices <= MOST:
        return cluster
    assert spec is not None
    assert spec.network is not None
    pod = cluster.max_devices // spec.devices_per_node
    tiers, nodes = [Tier(nodes=pod)], pod * PODS
    while nodes * spec.devices_per_node < devices:
        tiers.append(Tier(nodes=nodes))
        nodes *= PODS
    network = replace(spec.network, tiers=(*spec.network.tiers, *tiers))
    wider = replace(spec, max_devices=nodes * spec.devices_per_node, network=network)
    said = f"network.tiers: {len(tiers)} above {cluster.max_devices} devices (full bisection, as none are stated)"
    return replace(
        cluster,
        spec=wider,
        max_devices=wider.max_devices,
        levels=levels_from_spec(wider),
        defaults=(*cluster.defaults, said),
    )
