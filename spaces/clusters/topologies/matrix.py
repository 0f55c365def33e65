"""The matrix of ``nvidia-smi topo -m``, preceded or followed by the product names of ``nvidia-smi -L``."""

import re
from collections.abc import Callable

from forerun.spaces.clusters.topologies.names import device_of_product
from forerun.spaces.clusters.topologies.node import NodeTopology
from forerun.spaces.errors import RequestError

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_PRODUCT = re.compile(r"\s*GPU [0-9, ]+:(.+)|\|\s+[0-9]+\s+(\S.*?)\s+(?:On|Off)\s*\|")
"""A line of ``nvidia-smi -L``, or of the table of ``nvidia-smi``."""
_RELATION = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|NV[0-9]{1,3}")
_FAR = ("SYS", "SOC")
_NEAR = ("PIX", "PXB")
_MOST = 256
"""Largest number of devices and network ports of one node."""


def read_smi_matrix(text: str, *, source: str) -> NodeTopology:
    """Return the node of the matrix in ``text``.

    Raises
    ------
    RequestError
        There is no matrix, it is truncated, or a cell is not a relation or is not symmetric.
    """
    if "Weight between two GPUs" in text or "Link Type between two GPUs" in text:
        raise RequestError(
            f"{source} is the output of `rocm-smi --showtopo`, which does not say which ports are near; give the XML "
            "that RCCL writes (NCCL_TOPO_DUMP_FILE=topo.xml in a run), or write a cluster file with `device:`"
        )
    lines = _ESCAPE.sub("", text).splitlines()
    labels, first = _header(lines, source)
    cells, affinity = _rows(lines, labels, first, source)
    gpus = [label for label in labels if label.startswith("GPU")]
    ports = [label for label in labels if not label.startswith("GPU")]
    sockets = _sockets(gpus, affinity, cells)
    switches_of = _joined(gpus, cells, lambda relation: relation in _NEAR)
    order = sorted(range(len(gpus)), key=lambda number: (sockets[number], number))
    links, switches = _links([gpus[number] for number in order], cells)
    near = [port for port in ports if any(cells[gpu][port] in _NEAR for gpu in gpus)]
    all_near = all(any(cells[gpu][port] in _NEAR for port in ports) for gpu in gpus)
    return NodeTopology(
        source=source,
        device=_device(lines, source),
        socket_of=tuple(sockets[number] for number in order),
        switch_of=tuple(switches_of[number] for number in order),
        links=links,
        switch_links=switches,
        nics=len(ports),
        near=all_near and len(near) >= len(gpus),
    )


def _header(lines: list[str], source: str) -> tuple[list[str], int]:
    """Return the labels of the columns and the number of the next line."""
    for number, line in enumerate(lines):
        words = line.split()
        if words[:1] == ["GPU0"] and "X" not in words:
            end = next((at for at, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
            labels = words[:end]
            if len(set(labels)) < len(labels) or len(labels) > _MOST:
                raise RequestError(
                    f"{source}, line {number + 1}: a matrix has at most {_MOST} columns, all different, but this one "
                    f"has {len(labels)}, {len(set(labels))} of them different"
                )
            return labels, number + 1
    raise RequestError(
        f"{source}: no matrix of `nvidia-smi topo -m` in it (a line that begins with GPU0 GPU1 …); was it cut off?"
    )


def _rows(
    lines: list[str], labels: list[str], first: int, source: str
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the relation of every label to every other, and its nearby processors ("" if not stated)."""
    cells: dict[str, dict[str, str]] = {}
    affinity: dict[str, str] = {}
    for number, line in enumerate(lines[first:], start=first + 1):
        words = line.split()
        if not words or words[0] not in labels or words[0] in cells:
            continue
        relations = words[1 : len(labels) + 1]
        wrong = next((word for word in relations if not _RELATION.fullmatch(word)), None)
        if wrong is not None or len(relations) < len(labels):
            what = f"{wrong!r}" if wrong is not None else f"{len(relations)} cells"
            raise RequestError(
                f"{source}, line {number}: row {words[0]} needs {len(labels)} of X, SYS, NODE, PHB, PXB, PIX and NV1, "
                f"NV2, …, but got {what}"
            )
        cells[words[0]] = dict(zip(labels, relations, strict=True))
        affinity[words[0]] = "".join(word for word in words[len(labels) + 1 :][:1] if word != "N/A")
    missing = [label for label in labels if label not in cells]
    if missing:
        raise RequestError(f"{source}: the matrix has no row {missing[0]}; was it cut off?")
    for low in labels:
        for high in labels:
            if cells[low][high] != cells[high][low] or (low == high) != (cells[low][high] == "X"):
                raise RequestError(
                    f"{source}: the matrix must be the same both ways, but {low} to {high} is {cells[low][high]} and "
                    f"{high} to {low} is {cells[high][low]}"
                )
    return cells, affinity


def _device(lines: list[str], source: str) -> str | None:
    names = {(match[1] or match[2]).partition("(UUID")[0].strip() for line in lines if (match := _PRODUCT.match(line))}
    devices = {device_of_product(name) for name in names}
    if len(devices) > 1:
        raise RequestError(f"{source}: devices of a node must be equal, but got {', '.join(sorted(names))}")
    return devices.pop() if devices else None


def _sockets(gpus: list[str], affinity: dict[str, str], cells: dict[str, dict[str, str]]) -> list[int]:
    """Return the socket of every device: devices with the same processors, or without a route between sockets."""
    if all(affinity[gpu] for gpu in gpus):
        known = list(dict.fromkeys(affinity[gpu] for gpu in gpus))
        return [known.index(affinity[gpu]) for gpu in gpus]
    return _joined(gpus, cells, lambda relation: relation not in _FAR)


def _joined(gpus: list[str], cells: dict[str, dict[str, str]], near: Callable[[str], bool]) -> list[int]:
    """Return the group of every device; devices with a relation that is ``near`` are in one group."""
    group = list(range(len(gpus)))
    for low, first in enumerate(gpus):
        for high in range(low):
            if near(cells[first][gpus[high]]):
                old, new = group[low], group[high]
                group = [new if value == old else value for value in group]
    return [sorted(set(group)).index(value) for value in group]


def _links(gpus: list[str], cells: dict[str, dict[str, str]]) -> tuple[dict[tuple[int, int], int], tuple[int, ...]]:
    """Return NVLinks between devices, or of every device to a switch, for which every pair shows all links."""
    pairs = {
        (low, high): int(cells[gpus[low]][gpus[high]][2:])
        for low in range(len(gpus))
        for high in range(low + 1, len(gpus))
        if cells[gpus[low]][gpus[high]].startswith("NV")
    }
    counts = set(pairs.values())
    complete = len(pairs) == len(gpus) * (len(gpus) - 1) // 2
    # No device has more than 18 links (36 at half the rate): larger sums of links to several devices mean a switch.
    if complete and len(counts) == 1 and min(counts) * (len(gpus) - 1) > 18 and len(gpus) > 2:
        return {}, tuple(counts) * len(gpus)
    return pairs, (0,) * len(gpus)
