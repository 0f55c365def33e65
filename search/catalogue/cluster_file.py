"""A cluster as a file that ``--cluster`` accepts: its keys, and derived values as comments."""

from collections.abc import Iterator

import yaml

from forerun.spaces.clusters import Cluster, cluster_document, resolve_cluster
from forerun.spaces.escaping import shown
from forerun.spaces.units import format_rate, format_seconds

HEADER = "# cluster: save this as mine.yaml, edit it, and pass it as --cluster mine.yaml\n"


def cluster_file(name: str) -> str:
    """Write the cluster that ``name`` means (a catalogue name, a file or a topology) as a YAML document.

    Raises
    ------
    RequestError
        If there is no such cluster or its file is wrong.
    """
    cluster = resolve_cluster(name, groups=True)
    keys = yaml.safe_dump(
        cluster_document(name), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )
    return HEADER + keys + "".join(f"# {line}\n" for line in _consequences(cluster))


def _consequences(cluster: Cluster) -> Iterator[str]:
    """Yield the links of every level in units, and their assumptions."""
    if not cluster.groups:
        yield "links of one device, one direction:"
    for level in cluster.levels if not cluster.groups else ():
        rate, latency = format_rate(level.bytes_per_s), format_seconds(level.latency_s)
        yield f"  {level.name}: {level.kind}, {level.size:,} devices, {rate}, {latency}"
    if cluster.defaults:
        yield "assumed, because no key says otherwise:"
    for default in cluster.defaults:
        yield f"  {shown(default)}"
