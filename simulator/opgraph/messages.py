"""Gradient messages: filled into buckets during the backward pass, sent one after the other.

This module has the only rule for the gradient exchange of a data-parallel step, used by closed forms, training modes,
improvements and events.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs import collective_time_s
from forerun.simulator.costs.slowest import slowest
from forerun.simulator.opgraph.layers import Floats, added
from forerun.spaces.clusters.cluster import Cluster, Overlap
from forerun.spaces.opgraph.profile import GraphProfile

ALONE = Overlap()
"""Computation and traffic that do not slow each other down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Rule of filling: a bucket closes once it has ``cap_bytes``, the first one ``first_bytes``.

    ``strict``: a bucket closes before it would exceed the limit.
    """

    cap_bytes: float
    first_bytes: float
    strict: bool = False

    @staticmethod
    def of(profile: GraphProfile) -> "Filling":
        """Return the rule of a framework."""
        first, cap = profile.first_bucket_bytes, profile.bucket_bytes
        return Filling(
            cap_bytes=cap, first_bytes=cap if first is None else min(first, cap), strict=profile.strict_buckets
        )

    def buckets(self, sizes: Sequence[float]) -> list[list[int]]:
        """Return the indices of each bucket's entries in ``sizes``, which are in the order of sending, without empty
        entries.
        """
        members: list[list[int]] = []
        filled = full = 0.0
        for place, size in enumerate(sizes):
            if not size:
                continue
            if not members or (filled + size > full if self.strict else filled >= full):
                full = self.cap_bytes if members else self.first_bytes
                members.append([])
                filled = 0.0
            members[-1].append(place)
            filled += size
        return members


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The buckets of N rows, at most B each.

    Bytes (0 after the last bucket), and seconds from the start of the backward pass until the last gradient of each is
    ready.
    """

    bytes_NB: Floats
    ready_NB: Floats

    @property
    def sent_NB(self) -> Floats:
        """1 for every existing bucket."""
        return np.where(self.bytes_NB > 0, 1.0, 0.0)


def fill(filling: Filling, sizes_NL: Floats, backward_NL: Floats) -> Messages:
    """Return the buckets of rows with gradients of ``sizes_NL`` bytes and backward passes of ``backward_NL`` seconds.

    Operators are in the order of the forward pass.
    """
    wanted_NL = sizes_NL > 0
    counts = np.count_nonzero(wanted_NL, axis=1)
    rows, most = len(sizes_NL), max(int(counts.max(initial=0)), 1)
    # Only operators with gradients, right-aligned per row: stages of a pipeline have few of them each.
    row, operator = np.nonzero(wanted_NL)
    column = np.cumsum(wanted_NL, axis=1)[row, operator] - 1 + most - counts[row]
    size_NL, now_NL = np.zeros((rows, most)), np.zeros((rows, most))
    size_NL[row, column] = sizes_NL[row, operator]
    # The backward pass runs right to left: a gradient is ready after its operator and all operators to its right.
    now_NL[row, column] = np.cumsum(backward_NL[:, ::-1], axis=1)[:, ::-1][row, operator]
    sizes, ready = np.zeros((rows, most)), np.zeros((rows, most))
    number = np.full(rows, -1)
    filled, full = np.zeros(rows), np.zeros(rows)
    every = np.arange(rows)
    for size, now in zip(size_NL.T[::-1], now_NL.T[::-1], strict=True):
        wanted = size > 0
        # ``Filling.buckets`` for all rows at once: ``filled`` is the fill of the current bucket, ``full`` its bound
        # (smaller for the first), ``number`` the started buckets minus one.
        over = filled + size > full if filling.strict else filled >= full
        begins = wanted & ((number < 0) | over)
        full = np.where(begins, np.where(number < 0, filling.first_bytes, filling.cap_bytes), full)
        number = number + begins
        filled = np.where(begins, 0.0, filled) + size
        place = np.maximum(number, 0)
        sizes[every, place] = np.where(wanted, filled, sizes[every, place])
        ready[every, place] = np.where(wanted, now, ready[every, place])
    used = max(int(number.max(initial=0)) + 1, 1)
    return Messages(bytes_NB=sizes[:, :used], ready_NB=ready[:, :used])


def exposed_s(
    messages: Messages, wire_NB: Floats, blocked_N: Floats, backward_N: Floats, overlap: Overlap = ALONE
) -> Floats:
    """Return the seconds by which messages prolong the backward pass, per row.

    A message starts when its gradients are ready and the preceding message has arrived. The seconds include
    ``blocked_N``, for which every message stops computation, and the slowdown of computation and traffic while both run
    (``overlap``).
    """
    sent = messages.sent_NB
    # seconds, and the computation completed by then, in undisturbed seconds
    now, done = np.zeros(len(wire_NB)), np.zeros(len(wire_NB))
    # Message i starts at max(end of i - 1, ready_i). Exposed = end of the last message - backward pass, with the
    # slowdown of both while they overlap.
    computed = backward_N + blocked_N * added(sent)
    for number in range(wire_NB.shape[1]):
        wanted = sent[:, number] > 0
        ready = messages.ready_NB[:, number] + (number + 1) * blocked_N
        wire, left = wire_NB[:, number], computed - np.maximum(done, ready)
        waited = np.maximum(ready - done, 0.0)
        # During computation, traffic runs at 1/communication of its pace and computation at 1/computation of its own.
        shared_s = np.minimum(wire * overlap.communication, left * overlap.computation)
        took = shared_s + wire - shared_s / overlap.communication
        now = np.where(wanted, now + waited + took, now)
        done = np.where(wanted, np.maximum(done, ready) + shared_s / overlap.computation, done)
    return np.asarray(now + computed - done - backward_N)


def reduce_s(cluster: Cluster, size: Floats, ranks: Floats, stride: Floats, share: float) -> Floats:
    """Seconds of an all-reduce of ``size`` bytes between ``ranks``, ``stride`` devices apart.

    ``share``: share of the rate between nodes that the framework reaches.
    """
    seconds = collective_time_s(cluster, "all_reduce", size, ranks, stride)
    away = np.asarray(ranks * stride > cluster.devices_per_node)
    return np.asarray(np.where(away, seconds / share, seconds))


def rendezvous_s(profile: GraphProfile, nodes: Floats | float, groups: Floats | float = 1.0) -> Floats:
    """Seconds in which nodes agree on an exchange; ``groups`` of replicas use common ports in turn."""
    nodes = np.asarray(nodes, dtype=np.float64)
    return np.where(nodes > 1, profile.rendezvous_s + profile.node_step_s * groups * (nodes - 1.0), 0.0)


def straggler_wait_s(profile: GraphProfile, busy_s: Floats | float, devices: Floats | float) -> Floats:
    """Seconds that all devices wait for the slowest one; step times vary by the profile's jitter."""
    counts = np.asarray(devices, dtype=np.float64)
    factors = np.array([slowest(profile.jitter, int(count)) for count in counts.reshape(-1)]).reshape(counts.shape)
    return np.asarray(busy_s * (factors - 1.0))
