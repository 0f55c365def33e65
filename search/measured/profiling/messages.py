"""Collectives to measure: names in forerun and nccl-tests, and the list for some ranks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
SMALLEST, LARGEST = 1 << 10, 1 << 30

KIND_OF_TEST: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
}
"""Names of the programs of nccl-tests, without ``_perf`` and underscores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """One collective to measure between ``ranks`` devices ``stride`` apart; ``full_bytes`` as in the cost rule."""

    kind: str
    full_bytes: int
    ranks: int
    stride: int

    @property
    def key(self) -> str:
        """Key of the collective in files."""
        return f"{self.kind} {self.full_bytes} {self.ranks} {self.stride}"


def messages(world: int, per_node: int, smallest: int = SMALLEST, largest: int = LARGEST) -> list[MeasuredCollective]:
    """Return the collectives to measure between ``world`` ranks, ``per_node`` on every node.

    Sizes grow from ``smallest`` to ``largest`` bytes by factors of four; groups are inside a node, one rank per node,
    and all ranks.
    """
    groups = {(ranks, 1) for ranks in _halves(min(world, per_node))}
    if world > per_node:
        nodes = world // per_node
        groups |= {(world, 1)} | ({(nodes, per_node), (2, per_node)} if nodes > 1 else set())
    sizes = [smallest << shift for shift in range(0, 64, 2) if smallest << shift <= largest]
    return [
        MeasuredCollective(kind=kind, full_bytes=size, ranks=ranks, stride=stride)
        for size in sizes
        for ranks, stride in sorted(groups)
        for kind in KINDS
        if kind != "send_recv" or ranks == 2
    ]


def _halves(count: int) -> Iterator[int]:
    while count > 1:
        yield count
        count //= 2
