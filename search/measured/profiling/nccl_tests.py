"""Reader of the output of NVIDIA's nccl-tests, text or JSON (``-J``), as measured collectives.

Text: lines of size, count, type, redop, root, then time (microseconds), algbw, busbw and #wrong, out of place and in
place. The kind is in "Collective test starting: all_reduce_perf" (from 2.17 on) or in the file's name. JSON: a list
``results`` with ``out_of_place`` and ``in_place`` (``time`` in microseconds). Sizes: nccl-tests counts the bytes of the
larger of the two buffers of a rank, called the full tensor in the cost rules.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.measured.profiling.messages import KIND_OF_TEST
from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import MAX_BYTES, read_text

_LARGEST = 16 * MAX_BYTES
MOST_READINGS = 4_000
"""Measurements of a file at most; a run of all sizes has some dozens."""
_MOST_BYTES, _LONGEST_S = 1 << 60, 1e5
"""Largest bytes of a rank's buffer, and largest seconds of a message."""
_TIME = r"(\d{1,15}(?:\.\d{0,15})?(?:e[+-]?\d{1,2})?)"
_ROW = re.compile(rf"^\s*(\d{{1,18}})\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+{_TIME}\s+[\d.e+]+\s+[\d.e+]+\s+\S+(.*)$")
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)\s+device")
_PREFIX = re.compile(r"^[ \t]*\d+: ?", re.MULTILINE)
"""Rank prefix of lines by ``srun -l`` and ``mpirun``."""
_KIND = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|sendrecv)_perf", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclReading:
    """One line: seconds of a collective (the better of out of place and in place) over ``ranks`` on ``nodes``."""

    kind: str
    full_bytes: int
    ranks: int
    nodes: int
    seconds: float


def read_nccl_tests(path: Path) -> list[NcclReading]:
    """Return the measurements of a file.

    Raises:
        RequestError: the file cannot be read, lacks the collective or the number of ranks, or has no measurement.
    """
    text = read_text(path, most=_LARGEST, kind="the output of nccl-tests")
    text = _PREFIX.sub("", text) if all(map(_PREFIX.match, filter(None, text.splitlines()))) else text
    readings = _json(path, text) if text.lstrip().startswith("{") else _text(path, text)
    if not readings:
        raise RequestError(f"{path}: no line of measurements as nccl-tests prints them")
    if len(readings) > MOST_READINGS:
        raise RequestError(f"{path} has {len(readings):,} measurements; a file has at most {MOST_READINGS:,}")
    return readings


def _text(path: Path, text: str) -> list[NcclReading]:
    kind = _kind(path, text)
    hosts = [match[2] for line in text.splitlines() if (match := _RANK.match(line))]
    ranks = _ranks(path, len(hosts), kind)
    nodes = max(len(set(hosts)), 1)
    readings = []
    for line in text.splitlines():
        if not (match := _ROW.match(line)):
            continue
        times = [float(match[6])]
        rest = match[7].split()
        if rest and re.fullmatch(_TIME, rest[0]):
            times.append(float(rest[0]))
        if int(match[1]) and min(times) > 0:
            readings.append(_reading(path, kind, int(match[1]), ranks, nodes, min(times) * 1e-6))
    return readings


def _json(path: Path, text: str) -> list[NcclReading]:
    data: Mapping[str, Any] = read_json(text, str(path))
    try:
        devices = data.get("config", {}).get("devices", [])
        per_process = int(data["config"].get("ngpus", 1)) * int(data["config"].get("nthreads", 1))
        hosts = [str(device["hostname"]) for device in devices]
        arguments = " ".join(map(str, data.get("args", [])))
        readings = []
        for line in data["results"]:
            kind = _kind(path, f"{line.get('experiment_name') or ''} {arguments}")
            times = [
                float(line[way]["time"])
                for way in ("out_of_place", "in_place")
                if isinstance(line.get(way), dict) and float(line[way].get("time", 0)) > 0
            ]
            # Without MPI one process reports itself, and has all devices.
            ranks = _ranks(path, len(hosts) if len(hosts) > 1 else per_process, kind)
            if times and int(line["size"]):
                readings.append(
                    _reading(path, kind, int(line["size"]), ranks, max(len(set(hosts)), 1), min(times) * 1e-6)
                )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f" ({error} is missing)" if isinstance(error, KeyError) else ""
        raise RequestError(f"{path}: not what nccl-tests write with -J{missing}") from None
    return readings


def _reading(path: Path, kind: str, size: int, ranks: int, nodes: int, seconds: float) -> NcclReading:
    if not (0 < size < _MOST_BYTES and seconds < _LONGEST_S):
        raise RequestError(f"{path}: no {kind} moves {size:.4g} bytes in {seconds:.4g} s; was the file changed?")
    return NcclReading(kind=kind, full_bytes=size, ranks=ranks, nodes=nodes, seconds=seconds)


def _kind(path: Path, text: str) -> str:
    match = _KIND.search(text) or _KIND.search(path.name)
    if match is None:
        raise RequestError(
            f"{path} does not say which collective it measured; name it like all_reduce_perf.txt "
            f"(known: {', '.join(sorted(KIND_OF_TEST))})"
        )
    return KIND_OF_TEST[match[1].lower().replace("_", "")]


def _ranks(path: Path, count: int, kind: str) -> int:
    if count < 2:
        raise RequestError(
            f"{path}: {kind} over {count} ranks says nothing; its lines '# Rank 0 ... on HOST' are missing"
        )
    return count
