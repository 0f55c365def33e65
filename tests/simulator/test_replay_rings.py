"""Rings of NCCL's log: whom the pieces of a message go to."""

import json
from pathlib import Path

import pytest

from forerun.simulator.replay.readers.dpro import read_dpro, rings_beside
from forerun.spaces.errors import RequestError

LOG = """\
host0:71:90 [0] NCCL INFO Channel 00/02 :    0   2   1
host0:71:90 [0] NCCL INFO Ring 01 : 1 -> 0 -> 2
host0:71:90 [0] NCCL INFO Trees [0] -1/-1/-1->0->1 [1] 1/-1/-1->0->-1
host0:71:90 [0] NCCL INFO Connected all rings
"""


def pieces(tmp_path: Path, channel: int) -> list[tuple[int, ...] | None]:
    """Ranks of a SEND of rank 0 and a RECV of rank 2 on one channel."""

    def event(name: str, rank: int) -> dict[str, object]:
        piece = {"step": 0, "name": f"1.{name}~>0_{channel}_0_0"}
        return {"ph": "X", "name": f"Comm.1.{name}", "pid": f"host0.rank{rank}", "ts": 10, "dur": 5, "args": piece}

    other = {"ph": "X", "name": "BW.conv", "pid": "host0.rank1", "ts": 0, "dur": 5, "args": {"step": 0}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [event("SEND", 0), event("RECV", 2), other]}), encoding="utf-8")
    return [message.ranks for trace, _ in read_dpro(path) for message in trace.messages.values()]


def test_pieces_follow_the_ring_of_their_channel(tmp_path: Path) -> None:
    assert pieces(tmp_path, 0) == [(0, 1), (1, 2)]  # nothing says it: the next rank
    (tmp_path / "nccl.log").write_text(LOG, encoding="utf-8")
    assert rings_beside(tmp_path / "trace.json") == {0: {0: 2, 2: 1, 1: 0}, 1: {1: 0, 0: 2}}
    assert pieces(tmp_path, 0) == [(0, 2), (0, 2)]
    assert pieces(tmp_path, 1)[0] == (0, 2)
    assert pieces(tmp_path, 7) == [(0, 1), (1, 2)]


def test_logs_of_two_communicators_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nccl-0.txt").write_text(f"{LOG}x NCCL INFO Ring 00 : 2 -> 0 -> 1\n", encoding="utf-8")
    with pytest.raises(RequestError, match=r"nccl-0\.txt:5: rank 2 sends to 0 here and to 1 before"):
        rings_beside(tmp_path / "trace.json")
