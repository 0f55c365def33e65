"""Chakra execution traces (MLCommons, ``et_def.proto``): one file of protocol buffers per rank.

The first message is the metadata, every other a node: what it is, what it waits for (``data_deps``, ``ctrl_deps``),
when it started and how long it took in microseconds, and attributes (``comm_type``, ``comm_size``, ``comm_src``,
``comm_dst``, ``comm_tag``, ``pg_name``, ``is_cpu_op``).
"""

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.replay.readers.json_stream import Progress
from forerun.simulator.replay.trace import Kind, Message, Phase, Place, RankTrace
from forerun.spaces.errors import RequestError
from forerun.spaces.protobuf import FIXED32, FIXED64, fields, messages, packed
from forerun.spaces.reading import opened

_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7
_COPIES = (2, 3)
_OPERATIONS = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",
    "barrier",
)
_LANES = ("host", "computation", "communication")
_PLACES = (Place.HOST, Place.DEVICE, Place.NETWORK)
_KINDS = {_COMPUTE: Kind.COMPUTE, _SEND: Kind.SEND, _RECEIVE: Kind.RECEIVE, _COLLECTIVE: Kind.COLLECTIVE}


def read_chakra(path: Path, progress: Progress | None = None) -> tuple[RankTrace, int]:
    """Return the rank of one file (``NAME.RANK.et``) and its origin in microseconds.

    Raises:
        RequestError: the file is torn, empty or no Chakra trace, its nodes have no durations, or wait for nodes that do
            not exist.
    """
    found = re.search(r"(\d{1,6})\D*$", path.stem) or re.search(r"(\d{1,6})", path.name)
    if found is None:
        raise RequestError(f"a Chakra trace says its rank in its name, as trace.0.et, but got {path.name}")
    nodes: list[dict[str, Any]] = []
    version = ""
    with opened(path) as file:
        told = 0
        for number, data in enumerate(messages(file, str(path))):
            if number:
                nodes.append(_node(data, str(path)))
            else:
                version = _version(data, str(path))
            if progress is not None and number % 1000 == 0:
                progress(file.tell() - told)
                told = file.tell()
    if not nodes:
        raise RequestError(f"{path} holds no nodes; was the trace written to its end?")
    if not any(node["duration"] for node in nodes):
        raise RequestError(
            f"a replay needs measured durations, but no node of {path} has one; write the trace from a profiled run"
        )
    return _trace(nodes, path, int(found.group(1)), version)


def _trace(nodes: list[dict[str, Any]], path: Path, rank: int, version: str) -> tuple[RankTrace, int]:
    place_of = {node["id"]: place for place, node in enumerate(nodes)}
    after = []
    for node in nodes:
        missing = [one for one in node["after"] if one not in place_of]
        if missing:
            raise RequestError(f"{path} is torn: node {node['id']} waits for node {missing[0]}, which is not there")
        after.append(tuple(sorted({place_of[one] for one in node["after"]} - {place_of[node["id"]]})))
    origin = min(node["start"] for node in nodes)
    start = np.array([node["start"] - origin for node in nodes]) * 1e-6
    names: dict[str, int] = {}
    kind = np.array([_KINDS.get(node["type"], Kind.COPY) for node in nodes], dtype=np.int64)
    host = np.array([bool(node.get("is_cpu_op")) and node["type"] == _COMPUTE for node in nodes])
    lane = np.where(kind >= Kind.COLLECTIVE, 2, np.where(host, 0, 1)).astype(np.int64)
    # With operators of the host only, that host computes itself.
    if not (lane == 1).any():
        lane[lane == 0] = 1
    kind[lane == 0] = Kind.HOST
    return RankTrace(
        rank=rank,
        host="",
        source=str(path),
        version=f"Chakra schema {version or 'unknown'}",
        lanes=_LANES,
        places=_PLACES,
        names=tuple(names) if names else tuple(dict.fromkeys(node["name"] for node in nodes)),
        start_s=start,
        end_s=start + np.array([node["duration"] for node in nodes]) * 1e-6,
        lane=lane,
        name=_numbered([node["name"] for node in nodes]),
        kind=kind,
        phase=np.full(len(nodes), Phase.OTHER, dtype=np.int64),
        step=np.zeros(len(nodes), dtype=np.int64),
        cause=np.full(len(nodes), -1, dtype=np.int64),
        synced=np.zeros(len(nodes), dtype=bool),
        variant=np.zeros(len(nodes), dtype=np.int64),
        variants=("",),
        messages={
            place: _message(node, rank) for place, node in enumerate(nodes) if node["type"] in _KINDS and _moves(node)
        },
        after=tuple(after),
    ), origin


def _numbered(names: list[str]) -> "np.ndarray[Any, Any]":
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _moves(node: dict[str, Any]) -> bool:
    return node["type"] in (_SEND, _RECEIVE, _COLLECTIVE)


def _message(node: dict[str, Any], rank: int) -> Message:
    """Return what a communication node exchanges."""
    size = float(node.get("comm_size", float("nan")))
    if node["type"] == _COLLECTIVE:
        operation = node.get("comm_type", 0)
        return Message(
            operation=_OPERATIONS[operation] if 0 <= operation < len(_OPERATIONS) else "all_reduce",
            size_bytes=size,
            ranks=None,
            label=str(node.get("pg_name", "")),
        )
    ends = (int(node.get("comm_src", rank)), int(node.get("comm_dst", rank)))
    operation = "send" if node["type"] == _SEND else "receive"
    return Message(operation=operation, size_bytes=size, ranks=ends, label=str(node.get("comm_tag", "")))


def _version(data: bytes, source: str) -> str:
    for number, _, value in fields(data, source):
        if number == 1 and isinstance(value, bytes):
            return value.decode("utf-8", "replace")[:40]
    return ""


def _node(data: bytes, source: str) -> dict[str, Any]:
    """Return one node as plain data."""
    node: dict[str, Any] = {"id": 0, "name": "", "type": 0, "after": [], "start": 0, "duration": 0}
    for number, _, value in fields(data, source):
        if number == 1 and isinstance(value, int):
            node["id"] = value
        elif number == 2 and isinstance(value, bytes):
            node["name"] = value.decode("utf-8", "replace")[:200]
        elif number == 3 and isinstance(value, int):
            node["type"] = value
        elif number in (4, 5):
            node["after"] += packed(value, source)
        elif number in (6, 7) and isinstance(value, int):
            node["start" if number == 6 else "duration"] = min(value, 2**60)
        elif number == 10 and isinstance(value, bytes):
            name, found = _attribute(value, source)
            if name not in ("id", "name", "type", "after", "start", "duration"):
                node[name] = found
    return node


def _attribute(data: bytes, source: str) -> tuple[str, Any]:
    """Return name and value of an attribute; lists and bytes are left out."""
    name = ""
    found: Any = None
    for number, wire, value in fields(data, source):
        if number == 1 and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")[:80]
        elif number == 29 and isinstance(value, bytes):
            found = value.decode("utf-8", "replace")[:200]
        elif isinstance(value, int):
            # sint32 and sint64 are zigzag; the others two's complement in 64 bits.
            found = (value >> 1) ^ -(value & 1) if number in (15, 17) else value - (value >> 63 << 64)
        elif wire in (FIXED32, FIXED64) and isinstance(value, bytes):
            form = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}.get(number)
            found = struct.unpack(form, value)[0] if form and struct.calcsize(form) == len(value) else None
    return name, found
