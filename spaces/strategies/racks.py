"""Placement of rank groups in racks whose nodes share switches of the fast fabric (NVL72).

Ranks are numbered node by node. A scheduler that fills racks one after the other divides every group whose size does
not divide a rack: of groups of 64, one in nine is in one rack of 72. A scheduler that places segments of nodes, each
inside a rack (Slurm: ``--segment``, topology/block), keeps groups in one rack; where segments do not divide a rack some
of its devices are idle. Segments are assumed where they need no more racks; otherwise racks are filled and groups are
divided.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, lcm
from typing import Any

import numpy as np

from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.divisors import divisors
from forerun.spaces.same import Same
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import Columns, IntArray

SPANS = ("tp", "cp", "ep", "etp", "gpus")
"""Columns that determine the placement of groups in racks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RackUse:
    """Placement of the devices of one strategy in racks."""

    segment: int
    """Devices placed together, each segment inside a rack; 0 if the scheduler has no segment size."""
    used: int
    """Devices used in every rack, possibly fewer in the last one."""
    racks: int
    """Number of racks in use."""
    domain: int
    """Consecutive ranks that certainly share a rack: groups whose span divides it are inside a rack."""


def rack_devices(cluster: Cluster) -> int:
    """Return the devices of a rack whose nodes share switches of the fast fabric; 0 if each node has its own."""
    racked = cluster.scale_up_size > cluster.devices_per_node and cluster.levels[0].kind == "nvswitch"
    return cluster.scale_up_size if racked else 0


def rack_use(cluster: Cluster, strategy: Strategy) -> RackUse | None:
    """Return the placement of a strategy's devices in racks; None where the cluster has none."""
    rack = rack_devices(cluster)
    if not rack:
        return None
    return use_of(rack, cluster.devices_per_node, strategy)


def use_of(rack: int, node: int, strategy: Strategy) -> RackUse:
    """Return the placement in racks of ``rack`` devices with nodes of ``node``, in as few racks as possible.

    >>> from forerun.spaces.strategies import parse_strategy
    >>> use_of(72, 4, parse_strategy("tp1 pp1 dp512 ep64 mbs1")).used
    64
    >>> use_of(72, 4, parse_strategy("tp1 pp1 dp576 ep64 mbs1")).domain
    32
    """
    s = strategy
    return _use(rack, node, s.devices, *_spans(s.tp, s.cp, s.ep, s.etp))


def _spans(tp: Any, cp: Any, ep: Any, etp: Any) -> tuple[Any, Any, Any]:
    """Return the number of consecutive ranks spanned by tensor, context and expert groups (numbers or arrays)."""
    return tp, tp * cp, ep * etp


@lru_cache(maxsize=1 << 14)
def _use(rack: int, node: int, devices: int, *spans: int) -> RackUse:
    if devices <= rack:
        return RackUse(segment=devices, used=devices, racks=1, domain=rack)
    filled = -(-devices // rack)
    segment = _segment(rack, node, devices, *spans)
    used = rack // segment * segment if segment else 0
    if segment and -(-devices // used) == filled:
        return RackUse(segment=segment, used=used, racks=filled, domain=used)
    cut = [_largest_part(rack, span) for span in spans if 1 < span <= rack and rack % span]
    segment = rack if devices % rack == 0 else 0
    return RackUse(segment=segment, used=rack, racks=filled, domain=min(cut, default=rack))


def _segment(rack: int, node: int, devices: int, *spans: int) -> int:
    """Return the segment size that keeps groups within racks in the fewest racks; 0 if none exists.

    Of several sizes the largest is returned, which is the most compact.
    """
    unit = lcm(node, *(span for span in spans if 1 < span <= rack))
    sizes = [node * count for count in divisors(devices // node)] if devices % node == 0 else []
    fitting = [size for size in sizes if size <= rack and size % unit == 0]
    return min(fitting, key=lambda size: (-(-devices // (rack // size * size)), -size), default=0)


def spread_use(cluster: Cluster, strategy: Strategy) -> RackUse | None:
    """Return the placement in more racks than the devices fill, so that no group is divided.

    Return None if no group is divided anyway, or there are too few racks.
    """
    rack, node, s = rack_devices(cluster), cluster.devices_per_node, strategy
    if not rack or not (segment := _segment(rack, node, s.devices, *_spans(s.tp, s.cp, s.ep, s.etp))):
        return None
    used = rack // segment * segment
    racks = -(-s.devices // used)
    if racks == -(-s.devices // rack) or racks > cluster.max_devices // rack:
        return None
    return RackUse(segment=segment, used=used, racks=racks, domain=used)


def _largest_part(rack: int, span: int) -> int:
    """Return the larger part of the most evenly divided group, where racks are filled one after the other."""
    step = gcd(rack, span)
    part = max(step, round(span / 2 / step) * step)
    return max(part, span - part)


def domains(cluster: Cluster, columns: Columns) -> IntArray:
    """Return the number of consecutive ranks that share the fast fabric, for every candidate, [N]."""
    if not rack_devices(cluster):
        return np.full(len(columns["tp"]), cluster.scale_up_size, dtype=np.int64)
    uses, inverse = _uses(cluster, columns)
    return np.array([use.domain for use in uses], dtype=np.int64)[inverse]


def _uses(cluster: Cluster, columns: Columns) -> tuple[list[RackUse], IntArray]:
    """Return the distinct uses of racks among candidates, and each candidate's index into them, [N]."""
    rack, node = rack_devices(cluster), cluster.devices_per_node
    tp, cp, ep, etp = (columns[axis].astype(np.int64) for axis in SPANS[:4])
    spans = np.stack([columns["gpus"], *_spans(tp, cp, ep, etp)])
    # One number per combination of columns: numbers sort much faster than columns. Pairs cannot overflow.
    pairs = [pair[0] * (pair[1].max(initial=0) + 1) + pair[1] for pair in (spans[:2], spans[2:])]
    _, number = np.unique(pairs[0], return_inverse=True)
    _, first, inverse = np.unique(
        number * (pairs[1].max(initial=0) + 1) + pairs[1], return_index=True, return_inverse=True
    )
    uses = [_use(rack, node, gpus, *spanned) for gpus, *spanned in spans[:, first].T.tolist()]
    return uses, inverse


def with_domain(context: Context, domain: int) -> Context:
    """Return a context in whose racks ``domain`` consecutive ranks share the fast fabric."""
    cluster = context.cluster
    if domain == cluster.scale_up_size or not cluster.levels:
        return context
    return replace(context, cluster=_narrowed(Same(cluster), domain))


@lru_cache(maxsize=64)
def _narrowed(cluster: Same[Cluster], domain: int) -> Cluster:
    """Return one object for a cluster and a domain, the cache key of block times."""
    first, *others = cluster.value.levels
    return replace(cluster.value, levels=(replace(first, size=domain), *others))


def on_racks(context: Context, strategy: Strategy) -> Context:
    """Return a context whose racks contain a strategy's groups in the placement of its ranks."""
    use = rack_use(context.cluster, strategy)
    return context if use is None else with_domain(context, use.domain)
