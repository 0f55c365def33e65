"""NCCL's rings from its log (``NCCL_DEBUG=INFO``): the next rank of every rank on every channel.

Two kinds of lines have it: ``Channel 00/02 : 0 2 1 3`` lists all ranks in order, ``Ring 00 : 3 -> 0 -> 2`` the
neighbours of one rank.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from forerun.spaces.errors import RequestError
from forerun.spaces.reading import opened

_CHANNEL = re.compile(r"NCCL INFO Channel (\d{1,3})/\d{1,3} ?: +(\d{1,6}(?: +\d{1,6})*)\s*$")
_RING = re.compile(r"NCCL INFO Ring (\d{1,3}) ?: (\d{1,6}) -> (\d{1,6}) -> (\d{1,6})")
_MOST_LINES = 10_000_000

Rings = Mapping[int, Mapping[int, int]]
"""Next rank of every rank, by channel."""


def rings_beside(trace: Path) -> Rings:
    """Return the rings in the logs in the folder of a trace, named like ``nccl.log`` or ``nccl-host0.txt``.

    Raises:
        RequestError: a log cannot be read, or two lines contradict each other.
    """
    logs = sorted({*trace.parent.glob("nccl*.log"), *trace.parent.glob("nccl*.txt")})
    rings: dict[int, dict[int, int]] = {}
    for log in logs:
        with opened(log) as stream:
            for number, line in enumerate(stream):
                if number > _MOST_LINES:
                    raise RequestError(
                        f"{log} has more than {_MOST_LINES:,} lines; keep those that begin a communicator"
                    )
                _read(line.decode("utf-8", "replace"), rings, f"{log}:{number + 1}")
    return rings


def _read(line: str, rings: dict[int, dict[int, int]], where: str) -> None:
    match = _CHANNEL.search(line)
    if match is not None:
        ranks = [int(rank) for rank in match[2].split()]
        pairs = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))
    else:
        match = _RING.search(line)
        if match is None:
            return
        before, rank, behind = int(match[2]), int(match[3]), int(match[4])
        pairs = [(before, rank), (rank, behind)]
    ring = rings.setdefault(int(match[1]), {})
    for rank, following in pairs:
        if ring.setdefault(rank, following) != following:
            raise RequestError(
                f"{where}: rank {rank} sends to {following} here and to {ring[rank]} before; keep the log of one "
                "communicator"
            )
