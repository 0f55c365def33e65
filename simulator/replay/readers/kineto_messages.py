"""Operation, bytes and ranks of NCCL kernels and gloo records, from their arguments; sizes of tensors."""

import re
from collections.abc import Mapping
from typing import Any

from forerun.simulator.replay.trace import SpanMessage
from forerun.spaces.errors import RequestError

_BYTES = {
    "float": 4,
    "float32": 4,
    "double": 8,
    "float64": 8,
    "half": 2,
    "float16": 2,
    "c10::half": 2,
    "bfloat16": 2,
    "c10::bfloat16": 2,
    "float8_e4m3fn": 1,
    "c10::float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "c10::float8_e5m2": 1,
    "long": 8,
    "long int": 8,
    "int64": 8,
    "int": 4,
    "int32": 4,
    "short": 2,
    "int16": 2,
    "byte": 1,
    "unsigned char": 1,
    "signed char": 1,
    "char": 1,
    "uint8": 1,
    "int8": 1,
    "bool": 1,
}


def dtype_bytes(value: Any) -> int:
    """Return the bytes of one element of the first known dtype in ``value`` (text or list); 0 for none."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str) and one.lower() in _BYTES:
            return _BYTES[one.lower()]
    return 0


def elements(value: Any) -> int:
    """Return the elements of the first operand with elements, summed over a list of tensors; 0 for none.

    >>> elements([[[2, 3], [4]], []])
    10
    """
    for one in value if isinstance(value, list) else ():
        count = _count(one, 3)
        if count:
            return count
    return 0


def _count(value: Any, depth: int) -> int:
    if not isinstance(value, list) or not value or not depth:
        return 0
    if all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**48 for one in value):
        product = 1
        for one in value:
            product = min(product * one, 2**62)
        return product
    return sum(_count(one, depth - 1) for one in value)


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
