"""Chakra execution traces (MLCommons, ``et_def.proto``): one Protobuf file per rank.

The first message is the metadata, every other a node: its kind, its dependencies (``data_deps``, ``ctrl_deps``), its
start and duration in microseconds, and attributes (``comm_type``, ``comm_size``, ``comm_src``, ``comm_dst``,
``comm_tag``, ``pg_name``, ``is_cpu_op``). Files written by forerun have exact starts and durations
(``forerun_start_s``, ``forerun_s``) and the members of process groups (``forerun.groups.json`` in the same folder).
"""

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.replay.readers.json_stream import Progress
from forerun.simulator.replay.trace import Floats, Integers, Place, RankTrace, SpanKind, SpanMessage, SpanPhase
from forerun.spaces.documents import read_document
from forerun.spaces.errors import RequestError
from forerun.spaces.protobuf import FIXED32, FIXED64, fields, messages, packed
from forerun.spaces.reading import opened

GROUPS = "forerun.groups.json"
_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7
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
_STAMP_S = 1e-9
"""Seconds by which consecutive spans may overlap: rounding of stamps."""
_LANES = ("host", "computation", "communication")
_PLACES = (Place.HOST, Place.DEVICE, Place.NETWORK)
_KINDS = {
    _COMPUTE: SpanKind.COMPUTE,
    _SEND: SpanKind.SEND,
    _RECEIVE: SpanKind.RECEIVE,
    _COLLECTIVE: SpanKind.COLLECTIVE,
}


def read_chakra(path: Path, progress: Progress | None = None) -> tuple[RankTrace, int]:
    """Return the rank of one file (``NAME.RANK.et``) and its origin in microseconds.

    Raises:
        RequestError: the file is torn, empty or not a Chakra trace, or its nodes have no durations or wait for nodes
            that do not exist.
    """
    match = re.search(r"(\d{1,6})\D*$", path.stem) or re.search(r"(\d{1,6})", path.name)
    if match is None:
        raise RequestError(f"the name of a Chakra trace must contain its rank, like trace.0.et, but got {path.name}")
    nodes: list[dict[str, Any]] = []
    version = ""
    with opened(path) as file:
        stated = 0
        for number, data in enumerate(messages(file, str(path))):
            if number:
                nodes.append(_node(data, str(path)))
            else:
                version = _version(data, str(path))
            if progress is not None and number % 1000 == 0:
                progress(file.tell() - stated)
                stated = file.tell()
    if not nodes:
        raise RequestError(f"{path} has no nodes; was the trace written to its end?")
    for node in nodes:
        if isinstance(node.get("forerun_start_s"), float) and isinstance(node.get("forerun_s"), float):
            node["start"], node["duration"] = node["forerun_start_s"] * 1e6, max(node["forerun_s"], 0.0) * 1e6
    if not any(node["duration"] for node in nodes):
        raise RequestError(
            f"a replay needs measured durations, but no node of {path} has one; write the trace from a profiled run"
        )
    return _trace(nodes, path, int(match.group(1)), version, _groups(path.parent / GROUPS))


def _groups(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Return the ranks of every process group that a file in the folder of the traces names.

    Raises:
        RequestError: the file is not a map of names to lists of ranks.
    """
    if not path.is_file():
        return {}
    named = read_document(path).data
    if not isinstance(named, dict) or not all(
        isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks) for ranks in named.values()
    ):
        raise RequestError(f'{path} names the ranks of groups, like {{"1": [0, 8]}}; it has another form')
    return {str(name): tuple(ranks) for name, ranks in named.items()}


def _trace(
    nodes: list[dict[str, Any]], path: Path, rank: int, version: str, groups: Mapping[str, tuple[int, ...]]
) -> tuple[RankTrace, int]:
    nodes = _in_order(nodes)
    place_of = {node["id"]: place for place, node in enumerate(nodes)}
    after = []
    for node in nodes:
        missing = [one for one in node["after"] if one not in place_of and one not in node["controls"]]
        if missing:
            raise RequestError(f"{path} is torn: node {node['id']} waits for node {missing[0]}, which is not there")
        parents = {place_of[one] for one in node["after"] if one in place_of}
        after.append(tuple(sorted(parents - {place_of[node["id"]]})))
    origin = min(node["start"] for node in nodes)
    start, end = _times(nodes)
    names: dict[str, int] = {}
    lane, kind = _lanes_and_kinds(nodes)
    lane, lanes, places = _disjoint_lanes(lane, start, end)
    return RankTrace(
        rank=rank,
        host="",
        source=str(path),
        version=f"Chakra schema {version or 'unknown'}",
        lanes=lanes,
        places=places,
        names=tuple(names) if names else tuple(dict.fromkeys(node["name"] for node in nodes)),
        start_s=start,
        end_s=end,
        lane=lane,
        name=_numbered([node["name"] for node in nodes]),
        kind=kind,
        phase=np.full(len(nodes), SpanPhase.OTHER, dtype=np.int64),
        step=np.zeros(len(nodes), dtype=np.int64),
        cause=np.full(len(nodes), -1, dtype=np.int64),
        synced=np.zeros(len(nodes), dtype=bool),
        variant=np.zeros(len(nodes), dtype=np.int64),
        variants=("",),
        messages={place: _message(node, rank, groups) for place, node in enumerate(nodes) if _moves(node)},
        after=tuple(after),
    ), origin


def _times(nodes: list[dict[str, Any]]) -> tuple[Floats, Floats]:
    """Return start and end of every node in seconds from the first start."""
    origin = min(node["start"] for node in nodes)
    start = np.array([node["start"] - origin for node in nodes]) * 1e-6
    return start, start + np.array([node["duration"] for node in nodes]) * 1e-6


def _lanes_and_kinds(nodes: list[dict[str, Any]]) -> tuple[Integers, Integers]:
    """Return the number of every node's lane among ``_LANES``, and its kind."""
    kind = np.array([_KINDS.get(node["type"], SpanKind.COPY) for node in nodes], dtype=np.int64)
    host = np.array([bool(node.get("is_cpu_op")) and node["type"] == _COMPUTE for node in nodes])
    lane = np.where(kind >= SpanKind.COLLECTIVE, 2, np.where(host, 0, 1)).astype(np.int64)
    # With host operators only, the host itself computes.
    if not (lane == 1).any():
        lane[lane == 0] = 1
    kind[lane == 0] = SpanKind.HOST
    return lane, kind


def _in_order(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return nodes in order of their lanes and starts."""
    lane = _disjoint_lanes(_lanes_and_kinds(nodes)[0], *_times(nodes))[0]
    return [nodes[place] for place in sorted(range(len(nodes)), key=lambda place: (lane[place], nodes[place]["start"]))]


def _disjoint_lanes(
    lane: Integers, start_s: Floats, end_s: Floats
) -> tuple[Integers, tuple[str, ...], tuple[Place, ...]]:
    """Return lanes without overlap: spans measured at the same time ran on several lanes."""
    names, places = list(_LANES), list(_PLACES)
    free: dict[int, list[tuple[int, float]]] = {number: [(number, 0.0)] for number in range(len(_LANES))}
    lanes = lane.copy()
    timed = bool(np.ptp(start_s) > 0)
    for span in np.argsort(start_s, kind="stable").tolist() if timed else ():
        base, begin_s = int(lane[span]), float(start_s[span]) + _STAMP_S
        free_lanes = free[base]
        place = next((place for place, (_, until_s) in enumerate(free_lanes) if until_s <= begin_s), len(free_lanes))
        if place == len(free_lanes):
            free_lanes.append((len(names), 0.0))
            names.append(f"{_LANES[base]} {place + 1}")
            places.append(_PLACES[base])
        lanes[span] = free_lanes[place][0]
        free_lanes[place] = (free_lanes[place][0], float(end_s[span]))
    return lanes, tuple(names), tuple(places)


def _numbered(names: list[str]) -> "np.ndarray[Any, Any]":
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _moves(node: dict[str, Any]) -> bool:
    return node["type"] in (_SEND, _RECEIVE, _COLLECTIVE)


def _message(node: dict[str, Any], rank: int, groups: Mapping[str, tuple[int, ...]]) -> SpanMessage:
    """Return the message of a communication node."""
    size = float(node.get("comm_size", float("nan")))
    if node["type"] == _COLLECTIVE:
        operation = node.get("comm_type", 0)
        return SpanMessage(
            operation=_OPERATIONS[operation] if 0 <= operation < len(_OPERATIONS) else "all_reduce",
            size_bytes=size,
            ranks=groups.get(str(node.get("pg_name", ""))),
            label=str(node.get("pg_name", "")),
        )
    ends = (int(node.get("comm_src", rank)), int(node.get("comm_dst", rank)))
    operation = "send" if node["type"] == _SEND else "receive"
    return SpanMessage(operation=operation, size_bytes=size, ranks=ends, label=str(node.get("comm_tag", "")))


def _version(data: bytes, source: str) -> str:
    for number, _, value in fields(data, source):
        if number == 1 and isinstance(value, bytes):
            return value.decode("utf-8", "replace")[:40]
    return ""


def _node(data: bytes, source: str) -> dict[str, Any]:
    """Return one node as plain data."""
    node: dict[str, Any] = {"id": 0, "name": "", "type": 0, "after": [], "controls": [], "start": 0, "duration": 0}
    for number, _, value in fields(data, source):
        if number == 1 and isinstance(value, int):
            node["id"] = value
        elif number == 2 and isinstance(value, bytes):
            node["name"] = value.decode("utf-8", "replace")[:200]
        elif number == 3 and isinstance(value, int):
            node["type"] = value
        elif number in (4, 5):
            parents = packed(value, source)
            node["after"] += parents
            node["controls"] += parents if number == 4 else []  # void where the tracer did not record their parents
        elif number in (6, 7) and isinstance(value, int):
            node["start" if number == 6 else "duration"] = min(value, 2**60)
        elif number == 10 and isinstance(value, bytes):
            name, setting = _attribute(value, source)
            if name not in ("id", "name", "type", "after", "controls", "start", "duration"):
                node[name] = setting
    return node


def _attribute(data: bytes, source: str) -> tuple[str, Any]:
    """Return name and value of an attribute; lists and bytes are left out."""
    name = ""
    setting: Any = None
    for number, wire, value in fields(data, source):
        if number == 1 and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")[:80]
        elif number == 29 and isinstance(value, bytes):
            setting = value.decode("utf-8", "replace")[:200]
        elif isinstance(value, int):
            # sint32 and sint64 are zigzag; the others two's complement in 64 bits.
            setting = (value >> 1) ^ -(value & 1) if number in (15, 17) else value - (value >> 63 << 64)
        elif wire in (FIXED32, FIXED64) and isinstance(value, bytes):
            form = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}.get(number)
            setting = struct.unpack(form, value)[0] if form and struct.calcsize(form) == len(value) else None
    return name, setting
