"""Clusters with groups of different nodes, and larger networks of catalogued clusters.

A non-blocking tree of switches with r ports has 2 (r/2)^t end points in t tiers; a catalogued network of 16,384 devices
is one pod of a wider network. Every further tier connects up to 32 of the pods below it (half of the 64 ports of a
switch; NVIDIA Quantum-2 QM9700, Broadcom Tomahawk 4) and adds the latency of two switches. Bisection is full unless a
document says otherwise (``network: tiers:``): Llama 3 was trained on pods of 3,072 GPUs with 7 times less between them
(arXiv 2407.21783, section 3.3.1).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from forerun.spaces.clusters.cluster import Cluster, NodeGroup
from forerun.spaces.clusters.levels import levels_from_spec
from forerun.spaces.clusters.spec import Tier
from forerun.spaces.documents import Document, validate
from forerun.spaces.errors import RequestError


class Described(Protocol):
    """Makes a cluster from the keys of its document."""

    def __call__(self, data: Mapping[str, Any], *, name: str) -> Cluster:
        """Return the cluster of ``data``."""


def groups_from_document(document: Document, *, named: Callable[[str], Cluster], described: Described) -> Cluster:
    """Return the cluster of a document with groups.

    ``named``: reader of a name or path; ``described``: reader of the keys of a cluster.

    Raises
    ------
    RequestError
        A group is invalid, is not whole nodes, or cannot reach the others.
    """
    from forerun.spaces.clusters.schema import GroupsDocument  # imports pydantic, which a catalogue name does not need

    listed = validate(document, GroupsDocument)
    folder, groups = Path(document.source).parent, []
    for number, entry in enumerate(listed.groups):
        where = document.where(("groups", number))
        if isinstance(entry.cluster, str):
            neighbour = folder / entry.cluster
            cluster = named(str(neighbour) if neighbour.suffix and neighbour.is_file() else entry.cluster)
        elif entry.cluster.topology is not None:
            raise RequestError(f"{where}: a topology needs a cluster file of its own; name that file as cluster:")
        else:
            keys = entry.cluster.model_dump(exclude_none=True)
            cluster = described(keys, name=keys.get("name", f"group {number}"))
        if cluster.groups:
            raise RequestError(f"{where}: a group has equal nodes, but {cluster.name} has groups of its own")
        unit = max(cluster.devices_per_node, cluster.scale_up_size)
        if entry.devices % cluster.devices_per_node or entry.devices > cluster.max_devices:
            nearest = min(max(1, round(entry.devices / unit)) * unit, cluster.max_devices)
            raise RequestError(
                f"{where}: a group has whole nodes of {cluster.devices_per_node} devices, {cluster.max_devices} at most"
                f", but got {entry.devices}; use {nearest}"
            )
        if cluster.spec is None or cluster.spec.network is None:
            raise RequestError(f"{where}: groups meet over their networks, but {cluster.name} has none; add network:")
        groups.append(NodeGroup(cluster=cluster, devices=entry.devices, stages=entry.stages))
    if any((group.stages is None) != (groups[0].stages is None) for group in groups):
        raise RequestError(f"{document.where(('groups',))}: either all groups have stages: or none")
    prices = [group.cluster.usd_per_device_hour for group in groups]
    devices = sum(group.devices for group in groups)
    price = sum((price or 0.0) * group.devices for price, group in zip(prices, groups, strict=True)) / devices
    name = listed.name or Path(document.source).stem
    return replace(
        groups[0].cluster,
        name=name,
        title=listed.title or " and ".join(f"{group.devices} x {group.cluster.device.title}" for group in groups),
        source=listed.source or "the user's own description",
        max_devices=devices,
        usd_per_device_hour=None if None in prices else price,
        defaults=tuple(f"{group.cluster.name}: {text}" for group in groups for text in group.cluster.defaults),
        groups=tuple(groups),
    )


def stage_groups(cluster: Cluster, pp: int, devices_per_stage: int) -> tuple[int, ...]:
    """Return the group of every pipeline stage: groups are filled in order.

    Raises
    ------
    RequestError
        The groups cannot fit ``pp`` undivided stages of ``devices_per_stage`` devices.
    """
    group_of_stage: list[int] = []
    for number, group in enumerate(cluster.groups):
        stages = group.devices // devices_per_stage if group.stages is None else group.stages
        if stages * devices_per_stage > group.devices or (
            group.stages is None and stages * devices_per_stage < group.devices
        ):
            raise RequestError(
                f"group {number} ({group.cluster.name}) of {group.devices} devices cannot run "
                f"{'whole stages' if group.stages is None else f'{stages} stages'} of {devices_per_stage} devices "
                f"(dp * tp * cp); change the degrees, devices: or stages:"
            )
        group_of_stage += [number] * stages
    if len(group_of_stage) != pp:
        raise RequestError(
            f"the groups of {cluster.name} have space for {len(group_of_stage)} stages of {devices_per_stage} devices "
            f"(dp * tp * cp), but got pp={pp}; use pp={len(group_of_stage)} or say stages: of every group"
        )
    return tuple(group_of_stage)


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
