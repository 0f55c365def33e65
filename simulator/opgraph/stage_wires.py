"""Messages between the stages of pipelines on the links: seconds of each, and of all on one port.

Shapes: M messages of all pipelines; W ways of messages between two stages in the replicas of a pipeline.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forerun.simulator.costs import point_to_point_time_s
from forerun.simulator.layouts.price import crossing_senders, sent_s
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.shared_ports import crossed_ports
from forerun.simulator.opgraph.stage_cuts import Ints
from forerun.spaces.clusters.cluster import Cluster, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessages:
    """Messages of ``bytes_M`` from a stage to a reader, in all replicas of a pipeline (``row_M``).

    ``places_P``: replicas of a pipeline whose devices differ in their places on the links; ``ports_P``: in their places
    in the nodes.
    """

    parts_P: Ints
    places_P: Ints
    ports_P: Ints
    row_M: Ints
    stage_M: Ints
    reader_M: Ints
    bytes_M: Floats


def message_seconds(cluster: Cluster, sent: SentMessages) -> Floats:
    """Return the seconds of every message in the slowest replica."""
    if not len(sent.bytes_M):
        return sent.bytes_M
    places_M, parts_M = sent.places_P[sent.row_M], sent.parts_P[sent.row_M]
    span = int(parts_M.max()) + 1
    key = ((places_M * span + parts_M) * span + sent.stage_M) * span + sent.reader_M
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    columns = (one[first].tolist() for one in (places_M, parts_M, sent.stage_M, sent.reader_M))
    for places, parts, stage, reader in zip(*columns, strict=True):
        edges.setdefault((places, parts), []).append((stage, reader))
    # Distinct keys are sorted, so keys of one shape are adjacent.
    ways = [way for shape, messages in edges.items() for way in _ways(cluster.levels, *shape, tuple(messages))]
    counts = np.array([len(each) for each in ways])
    table = np.concatenate(ways)
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    each = counts[which]
    starts = np.cumsum(each) - each
    way = np.repeat(begins[which] - starts, each) + np.arange(int(each.sum()))
    distance, share = table[way].T
    return np.maximum.reduceat(sent_s(cluster, np.repeat(sent.bytes_M, each), distance, share), starts)


@lru_cache(maxsize=16384)
def _ways(
    levels: tuple[Level, ...], replicas: int, parts: int, edges: tuple[tuple[int, int], ...]
) -> tuple[Floats, ...]:
    """Return the distances between two stages in all replicas, each with the used share of its link.

    One table of distinct (distance, share) for each of ``edges`` (source, target).
    """
    first = parts * np.arange(replicas)
    source, target = (np.array(end)[:, None] + first for end in zip(*edges, strict=True))
    edge = np.broadcast_to(np.arange(len(edges))[:, None], source.shape).reshape(-1)
    distance, senders = crossing_senders(levels, source.reshape(-1), target.reshape(-1), edge)
    many = replicas * parts + 1
    ways = np.unique((edge * many + distance) * many + senders)
    distance, senders = ways // many % many, ways % many
    table = np.stack([distance, senders / distance], axis=1)
    return tuple(np.split(table, np.searchsorted(ways // many // many, np.arange(1, len(edges)))))


def port_seconds(cluster: Cluster, sent: SentMessages) -> Floats:
    """Return the seconds of all messages of a segment on the fullest port of every message."""
    if not len(sent.bytes_M):
        return sent.bytes_M
    count_M = sent.ports_P[sent.row_M]
    message = np.repeat(np.arange(len(count_M)), count_M)
    begin, row = np.cumsum(count_M) - count_M, sent.row_M[message]
    first = (np.arange(len(message)) - begin[message]) * sent.parts_P[row]
    # Numbers of devices, from a new node for every pipeline.
    node = cluster.spec.unit if cluster.spec else cluster.devices_per_node
    size_P = -(-sent.ports_P * sent.parts_P // node) * node
    base = (np.cumsum(size_P) - size_P)[row]
    source, target = (first + end[message] for end in (sent.stage_M, sent.reader_M))
    seconds = np.zeros(len(message))
    for number, here, port, rate in crossed_ports(cluster, source, target, base):
        total = np.bincount(port, _line_bytes(cluster, number, sent.bytes_M)[message[here]])
        seconds[here] = np.maximum(seconds[here], total[port] / rate)
    return np.asarray(np.maximum.reduceat(seconds, begin))


def _line_bytes(cluster: Cluster, number: int, bytes_M: Floats) -> Floats:
    """Return the bytes that a level could send at its line rate in the time of messages, without latency."""
    lone_s = point_to_point_time_s(
        cluster, np.append(bytes_M, 1.0), cluster.levels[number - 1].size if number else 1, lone=True
    )
    return np.asarray(np.maximum(lone_s[:-1] - lone_s[-1], 0.0) * cluster.levels[number].port_bytes_per_s)
