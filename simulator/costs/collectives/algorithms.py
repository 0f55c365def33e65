"""Seconds of one collective by one algorithm, for arrays of groups: ring, tree, in-switch and pairwise exchange.

Every algorithm is latency plus bandwidth (Hockney, alpha-beta) under one of NCCL's three protocols: LL and LL128 have
short steps and less bandwidth, Simple the reverse; the rule takes the fastest, so the time is the lower envelope of a
few straight lines in the message size, like measured curves. Steps follow NCCL (src/graph/tuning.cc).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs.collectives.constants import PROTOCOLS, LinkConstants
from forerun.simulator.costs.collectives.groups import Floats, Span
from forerun.spaces.clusters.cluster import Level
from forerun.spaces.clusters.spec import NETWORK_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPath:
    """Use of one level by one array of groups. Arrays: one number per group."""

    level: Level
    constants: LinkConstants
    span: Span
    """Sizes of the groups and their division over the levels."""
    inner_size: int | None
    """Devices in one group of the preceding level; None where all groups work at once and share the level evenly. In
    that case there are no idle neighbours to gain from. All levels of a network start with the same links, the NICs of
    a node; other levels with those of a group of the preceding level."""
    below: Floats
    """Devices of the inner groups (each with links of its own, like a node with NICs) that a sub-group occupies."""
    crossing: Floats
    """Number of peers that a member reaches over the level, including those beyond further levels."""
    crowd: Floats
    """Number of such inner groups that one group of the level occupies."""

    def rate_bytes_per_s(self, collective: str) -> Floats:
        """Return the rate of one sub-group across this level: all its members' links (all NICs of a node) together."""
        rate = self.member_bytes_per_s() * self.constants.efficiency[collective] * self.span.inside
        if self.constants.alone_share and collective != "send_recv":
            # One communicator reaches only a part of a node's links, whatever their number; several reach the rest.
            rate = np.minimum(rate, self.constants.alone_share * self.level.bytes_per_s * self.below)
        return np.asarray(rate, dtype=np.float64)

    def member_bytes_per_s(self) -> Floats:
        """Return the line rate of one member, before efficiency; parallel groups of the same kind share the level."""
        rate: Floats = np.full_like(self.span.joined, self.level.bytes_per_s)
        if self.constants.mesh:
            # In a full mesh a member uses one port to each of its peers; the other ports lead to devices outside of the
            # group.
            ports = np.maximum(self.span.joined - 1.0, 1.0)
            rate = np.minimum(rate, ports * self.level.port_bytes_per_s)
        elif self.inner_size is not None:
            # One device inside: the level is a switch or a host that the present members share.
            idle = self.level.size / self.span.joined if self.inner_size == 1 else self.inner_size / self.span.inside
            rate = np.maximum(rate, np.minimum(self.level.port_bytes_per_s, rate * idle))
        if self.constants.crowding:
            # Rates are fitted to pairs, so the factor is 1 for two members.
            rate = rate * (2.0 / np.maximum(self.crowd, 2.0)) ** self.constants.crowding
        return np.asarray(rate, dtype=np.float64)


def _where_used(path: LevelPath, value: Floats | float) -> Floats:
    return np.asarray(np.where(path.span.used, value, 0.0), dtype=np.float64)


def _fastest_s(
    paths: Sequence[LevelPath],
    steps: Sequence[tuple[Floats, Sequence[float]]],
    moved: Sequence[Floats],
    rates: Sequence[Floats],
) -> Floats:
    """Return the seconds of the fastest protocol: base, steps and the data of the slowest level.

    ``steps``: pairs of their number and the seconds of one by protocol; ``moved``: data of every level at its rate.
    Inside, arrays have protocols as their first axis.
    """
    first = (len(PROTOCOLS), *(1,) * moved[0].ndim)

    def each(values: Sequence[float]) -> Floats:
        return np.reshape(values, first)

    # One kernel serves all levels: its start counts once, at the level where it takes longest. Steps are sequential and
    # summed; data on several levels are pipelined, so only the slowest level counts.
    base_s, taken_s, slowest_s = (np.zeros(first) for _ in range(3))
    for count, step_s in steps:
        taken_s = taken_s + count * each(step_s)
    for path, data, rate in zip(paths, moved, rates, strict=True):
        base_s = np.maximum(base_s, _where_used(path, each(path.constants.base_s)))
        slowest_s = np.maximum(slowest_s, _where_used(path, data / (rate * each(path.constants.fraction))))
    fastest_s: Floats = (base_s + taken_s + slowest_s).min(axis=0)
    return fastest_s


def _innermost(paths: Sequence[LevelPath]) -> list[Floats]:
    """Return 1.0 at the innermost level that a group uses, otherwise 0.0."""
    paths_of_rows, free = [], np.ones_like(paths[0].span.joined)
    for path in paths:
        here = free * path.span.used
        paths_of_rows.append(here)
        free = free - here
    return paths_of_rows


def ring_s(paths: Sequence[LevelPath], collective: str, full_bytes: Floats, ranks: Floats, passes: int) -> Floats:
    """Seconds of a ring: ``passes`` times ranks - 1 steps (all-reduce: 2) at the slowest level's pace."""
    # Each rank starts with 1/ranks of the tensor and passes on ranks - 1 such parts, in every pass.
    wire = passes * full_bytes * (ranks - 1.0) / ranks
    return _fastest_s(
        paths,
        [(passes * path.span.ring_steps, path.constants.steps_s(path.level.latency_s)) for path in paths],
        [
            wire + inner * path.constants.own_share * full_bytes / ranks
            for path, inner in zip(paths, _innermost(paths), strict=True)
        ],
        [path.rate_bytes_per_s(collective) for path in paths],
    )


def tree_s(paths: Sequence[LevelPath], full_bytes: Floats, ranks: Floats) -> Floats:
    """Seconds of a double binary tree over outer levels, with chains inside the innermost level (all-reduce).

    The message goes up and down, twice over every link (Sanders et al. 2009; NCCL 2.4). Two sub-groups could exchange
    it once in full duplex; training with tensor ranks on two nodes shows no sign of this (vTrain: 91 of 100 GB/s, as in
    a ring). Where the switch of the innermost level reduces, it replaces the chain (NVLS tree). Nodes of one device
    have no chain: their network is a tree from the first level on.
    """
    chained = paths[0].level.kind not in NETWORK_KINDS
    steps = []
    for number, path in enumerate(paths):
        if chained and number == 0:
            count = 2.0 * _where_used(path, path.span.joined - 1.0)
        else:
            count = _tree_steps(path)
        steps.append((count, path.constants.steps_s(path.level.latency_s, tree=number > 0 or not chained)))
    rates = [path.rate_bytes_per_s("all_reduce") for path in paths]
    return _fastest_s(paths, steps, [2.0 * full_bytes] * len(paths), rates)


def _tree_steps(path: LevelPath) -> Floats:
    """Return the steps up and down a tree over the sub-groups of a level."""
    return np.asarray(2.0 * np.ceil(np.log2(np.maximum(path.span.joined, 1.0)) - 1e-9))


def in_switch_s(paths: Sequence[LevelPath], full_bytes: Floats, ranks: Floats) -> Floats:
    """Seconds of a reduction in the switch of the innermost level (NVLink SHARP), with the tree over outer levels.

    Arrays have one number per group, of ``ranks`` members that reduce ``full_bytes`` (also below).

    Infinite where the switch cannot reduce, or the group is smaller than the library's tuner requires.
    """
    inner = paths[0]
    row = inner.constants
    usable = inner.level.in_switch and row.in_switch_efficiency > 0.0
    members = inner.span.joined
    allowed = (members >= row.in_switch_members) & usable
    if not np.any(allowed):
        return np.full_like(full_bytes, np.inf)
    wire = 2.0 * full_bytes * (members - 1.0) / members
    slowest = wire / (inner.member_bytes_per_s() * row.in_switch_efficiency)
    # The base was fitted on a link of nominal latency, which it includes.
    steps = np.full_like(full_bytes, row.in_switch_base_s + inner.level.latency_s - row.nominal_latency_s)
    for path in paths[1:]:
        step_s = path.constants.steps_s(path.level.latency_s, tree=True)[-1]
        steps = steps + _tree_steps(path) * step_s
        slowest = np.maximum(slowest, _where_used(path, 2.0 * full_bytes / path.rate_bytes_per_s("all_reduce")))
    return np.where(allowed, steps + slowest, np.inf)


def exchange_s(paths: Sequence[LevelPath], full_bytes: Floats, ranks: Floats) -> Floats:
    """Seconds of a pairwise exchange (all-to-all): each level carries the traffic out of its sub-groups.

    The slowest level sets the pace. Traffic over a spine leaves its node by the same NICs as traffic within the leaf.
    """
    steps: list[tuple[Floats, Sequence[float]]] = []
    moved, rates = [], []
    for path, inner in zip(paths, _innermost(paths), strict=True):
        # Each peer costs the start of one message of any size.
        peers = path.span.inside * (path.span.joined - 1.0)
        steps.append((peers, (path.constants.peer_s,) * len(PROTOCOLS)))
        steps.append((_where_used(path, 1.0), path.constants.steps_s(path.level.latency_s)))
        moved.append(full_bytes / ranks * (path.crossing + inner * path.constants.own_share))
        rates.append(path.rate_bytes_per_s("all_to_all") / path.span.inside)
    return _fastest_s(paths, steps, moved, rates)


def broadcast_s(paths: Sequence[LevelPath], full_bytes: Floats, ranks: Floats) -> Floats:
    """Seconds of a pipelined ring from one root: every link carries the message once."""
    return _fastest_s(
        paths,
        [(path.span.ring_steps, path.constants.steps_s(path.level.latency_s)) for path in paths],
        [full_bytes] * len(paths),
        [path.rate_bytes_per_s("all_gather") for path in paths],
    )
