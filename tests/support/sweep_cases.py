"""A sweep of eight searches, searches that take no time, and what is compared of a run."""

import math
from pathlib import Path
from typing import Any

from forerun.search.board.rows import Row
from forerun.search.explore.flat.slicing import Cuts
from forerun.search.request.request import Request
from forerun.search.sweep import ChunkTimes, SweepSearch
from forerun.search.sweep.chunks import search_piece
from forerun.search.workers import Choice
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.spaces.strategies import parse_strategy

RESULTS = ("leaderboard.json", "leaderboard.csv", "pieces.csv")
PLAN = """\
models: [llama3-8b, llama3-70b]
clusters: [dgx-h100]
workloads: [{global_batch: 32, seq_len: 2048}, {global_batch: 32, seq_len: 2048, precision: fp8}]
budgets: [{gpus: 8}, {gpus: 16}]
axes: {mbs: 1, vpp: 1, recompute: [full]}
top: 2
"""
SERIAL = Choice(kind="serial")
TINY = ChunkTimes(whole_s=0.0, part_s=0.02, first=400)
"""Cuts every search of ``PLAN`` into many parts."""


def results(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in RESULTS]


def fake(chunk_times: ChunkTimes, piece: SweepSearch) -> dict[str, Any]:
    """A search that takes no time."""
    request = piece.request
    assert request.gpus is not None
    tokens_per_s = 32.0 * request.seq_len
    row = Row(
        rank=1,
        strategy=parse_strategy("dp" + request.gpus),
        gpus=int(request.gpus),
        step_time_s=1.0,
        throughput=tokens_per_s,
        throughput_per_gpu=tokens_per_s / int(request.gpus),
        mfu=0.1,
        fits=True,
        peak_memory_gib=1.0,
        memory_limit_gib=2.0,
        oom_risk=0.0,
        allocated_memory_gib=1.0,
        peak_stage=0,
        breakdown_s=dict.fromkeys(TIME_PARTS, 0.0),
        memory_gib=dict.fromkeys(MEMORY_PARTS, 0.0),
        cost_usd_per_hour=None,
        usd_per_million=None,
        train_days=None,
        train_cost_usd=None,
        marks=("a", "b"),
    )
    return {"status": "done", "rows": [row.to_json()]}


def searched(piece: SweepSearch) -> dict[str, Any]:
    """The record of a search that nobody cuts."""
    record = search_piece(ChunkTimes(whole_s=math.inf), piece)
    assert isinstance(record, dict)
    return record


class Counted:
    """``fake``, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def __call__(self, chunk_times: ChunkTimes, piece: SweepSearch) -> dict[str, Any]:
        self.asked.append(piece.request)
        return fake(chunk_times, piece)


class SameCuts(Cuts):
    """Cuts parts of one width, whatever they take."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**fields, "width": TINY.first, "workers": 1})

    def steer(self, low: int, high: int, seconds: float) -> None:
        """Stay."""


def records(folder: Path) -> int:
    path = folder / "pieces.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
