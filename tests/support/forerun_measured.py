"""Measured runs for tests: a table of few rows, and a scorer that needs no cost model."""

import csv
from pathlib import Path

import numpy as np

from forerun.search.measured.validate import MeasuredRun, load_runs
from forerun.search.measured.validate.columns import OPTIONAL, REQUIRED
from forerun.simulator import MEMORY_PARTS, TIME_PARTS, ScoreTable
from forerun.spaces.strategies import Context, StrategyTable

ROW = {
    "run_id": "lab-0000",
    "source": "lab notebook",
    "device": "a100-sxm4-80",
    "gpus": "8",
    "gpus_per_node": "8",
    "model": "small",
    "layers": "12",
    "hidden": "1024",
    "ffn_hidden": "4096",
    "heads": "16",
    "kv_heads": "16",
    "vocab": "51200",
    "seq_len": "1024",
    "gated_mlp": "0",
    "precision": "bf16",
    "framework": "megatron-lm",
    "dp": "2",
    "tp": "2",
    "pp": "2",
    "cp": "1",
    "ep": "1",
    "virtual_pp": "1",
    "schedule": "1f1b",
    "sequence_parallel": "0",
    "zero_stage": "0",
    "micro_batch": "1",
    "global_batch": "64",
    "recompute": "none",
    "step_time_s": "2.0",
    "peak_mem_gib": "10",
    "outcome": "ok",
    "group": "lab|small",
    "notes": "memory=allocated",
}
"""A row that states everything."""


def write_runs(path: Path, *changes: dict[str, str], columns: tuple[str, ...] = (*REQUIRED, *OPTIONAL)) -> Path:
    """Write one row per set of changes to ``ROW`` (run_ids count up) and return the path."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for number, change in enumerate(changes):
            cells = ROW | {"run_id": f"lab-{number:04}"} | change
            writer.writerow([cells.get(column, "") for column in columns])
    return path


def mapped(tmp_path: Path, **change: str) -> MeasuredRun:
    """The run of one changed row."""
    result = load_runs([write_runs(tmp_path / "runs.csv", change)])
    assert not result.skipped, result.skipped
    return result.runs[0]


def reason(tmp_path: Path, **change: str) -> str:
    """Why one changed row is skipped."""
    result = load_runs([write_runs(tmp_path / "runs.csv", change)])
    assert not result.runs
    return result.skipped[0].reason


def fake_score(context: Context, table: StrategyTable) -> ScoreTable:
    """Step time is tp seconds, all of it compute; memory is pp GiB allocated and 2 more on the device."""
    count = len(table)
    tp, pp = table.column("tp").astype(float), table.column("pp").astype(float)
    zeros = np.zeros(count)
    return ScoreTable(
        step_time_s=tp,
        time_s={part: tp if part == "compute" else zeros for part in TIME_PARTS},
        peak_memory_bytes=(pp + 2.0) * 2.0**30,
        allocated_bytes=pp * 2.0**30,
        memory_bytes={part: pp * 2.0**30 if part == "parameters" else zeros for part in MEMORY_PARTS},
        peak_stage=np.zeros(count, dtype=np.int64),
        fits=np.ones(count, dtype=bool),
    )
