"""Operation, bytes and ranks of NCCL kernels and gloo records, from their arguments."""

import re
from collections.abc import Mapping
from typing import Any

from forerun.simulator.replay.readers.sizes import dtype_bytes, elements
from forerun.simulator.replay.trace import SpanMessage
from forerun.spaces.errors import RequestError

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allreducesparse": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allgatherinto": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgathercoalesced": "all_gather",
    "allgathersingle": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "reducescattersingle": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "alltoallvsingle": "all_to_all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "receive",
    "recvanysource": "receive",
}
"""Names of collectives in lower case without marks, in the current and former spellings of gloo, c10d and NCCL."""


MOST_RANKS = 1 << 20
"""Largest number of ranks of a group: a larger size is an error."""


def operation_of(text: str) -> str | None:
    """Return forerun's name of a collective (from ``gloo:all_reduce`` or ``c10d::recv_``), None for other texts."""
    return _OPERATIONS.get(re.sub(r"[^a-z]", "", text.split(":")[-1].lower()))


def kernel_message(
    name: str,
    arguments: Mapping[str, Any],
    rank: int,
    groups: Mapping[str, tuple[int, ...]],
    source: str,
) -> SpanMessage | None:
    """Return the message of a kernel, None if it is not NCCL's (RCCL's); ``groups``: ranks by group name.

    Raises:
        RequestError: the kernel does not name its collective.
    """
    if "nccl" not in name.lower():
        return None
    operation = operation_of(str(arguments.get("Collective name", "")).lstrip("_"))
    if operation is None:
        match = re.search(r"(AllReduce|AllGather|ReduceScatter|Broadcast|AllToAll|Reduce)", name)
        operation = operation_of(match.group(1)) if match else None
    if operation is None:
        raise RequestError(
            f"an NCCL kernel names its collective, but {name[:60]!r} in {source} does not; profile with PyTorch 2.2 or "
            "later, which writes the arguments of collectives"
        )
    width = dtype_bytes(arguments.get("dtype")) or float("nan")
    sides = [whole(arguments.get(key)) for key in ("In msg nelems", "Out msg nelems")]
    label = str(arguments.get("Process Group Name", ""))[:80]
    ranks = numbers(arguments.get("Process Group Ranks")) or groups.get(label) or _strided(arguments)
    if operation in ("send", "receive"):
        peer = whole(arguments.get("Dst Rank" if operation == "send" else "Src Rank"))
        ranks = None if peer < 0 else (rank, peer) if operation == "send" else (peer, rank)
    size = max(sides) * width if max(sides) >= 0 else float("nan")
    return SpanMessage(operation=operation, size_bytes=size, ranks=ranks, label=label)


def _strided(arguments: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the ranks of a group by its first rank, stride and size; None where one is missing."""
    keys = ("Global rank start", "Global rank stride", "Group size")
    first, stride, size = (whole(arguments.get(key)) for key in keys)
    if first < 0 or stride < 1 or not 1 <= size <= MOST_RANKS:
        return None
    return tuple(range(first, first + stride * size, stride))


def is_grouped(name: str, arguments: Mapping[str, Any]) -> bool:
    """Check whether a kernel is NCCL's for several sends and receives, which it does not list."""
    known = operation_of(str(arguments.get("Collective name", "")).lstrip("_"))
    return known is None and "nccl" in name.lower() and "sendrecv" in name.lower()


def host_message(operation: str, own: Mapping[str, Any], asking: Mapping[str, Any], rank: int) -> SpanMessage:
    """Return the message of a gloo record, from its arguments and the arguments of the requesting call."""
    size = float("nan")
    for arguments in (own, asking):
        count, width = elements(arguments.get("Input Dims")), dtype_bytes(arguments.get("Input type"))
        if count and width and not size == size:
            size = count * width
    ranks = None
    inputs = asking.get("Concrete Inputs")
    if operation in ("send", "receive") and isinstance(inputs, list):
        peers = [int(one) for one in inputs if isinstance(one, str) and re.fullmatch(r"\d{1,7}", one)]
        if peers:
            ranks = (rank, peers[0]) if operation == "send" else (peers[0], rank)
    return SpanMessage(operation=operation, size_bytes=size, ranks=ranks)


def numbers(value: Any) -> tuple[int, ...] | None:
    """Return a list of ranks, also from text like ``[0, 1]``; None where it is missing or shortened."""
    if isinstance(value, str) and re.fullmatch(r"\[\s*\d{1,7}(\s*,\s*\d{1,7})*\s*\]", value):
        value = [int(word) for word in re.findall(r"\d+", value)]
    if not isinstance(value, list) or not value or not all(whole(one) >= 0 for one in value):
        return None
    return tuple(sorted(set(value)))


def whole(value: Any) -> int:
    """Return an integer, -1 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else -1
