"""Peaks and copies of FSDP2, measured on one H100 alone and among simulated ranks (benchmarks/measured/h100)."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.search.measured.calibrate.machine import memory_runs_of
from forerun.search.measured.validate import MeasuredRun
from forerun.simulator import ScoreTable, score
from forerun.simulator.assignment.memory import cached_bytes, stage_memory
from forerun.simulator.assignment.of_strategy import assign
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import FrameworkProfile, load_framework, switched
from forerun.spaces.models.shapes import transformer
from forerun.spaces.strategies import Context, Strategy, parse_strategy, table_of
from forerun.spaces.workload import Workload

MEASURED = Path(__file__).resolve().parents[2] / "benchmarks" / "measured" / "h100"
SHAPES = {
    "1b": (16, 2048, 8192, 32),
    "3b": (28, 3072, 8192, 24),
    "8b": (32, 4096, 14336, 32),
    "70b": (80, 8192, 28672, 64),
    "405b": (126, 16384, 53248, 128),
}
"""Layers, width, width of the feed-forward, heads (benchmarks/gpu/llama.py)."""
RECOMPUTE = {"none": "none", "op": "selective", "selective": "selective", "full": "full"}
GIB = 2.0**30


def rows(name: str) -> Iterator[dict[str, str]]:
    with (MEASURED / f"{name}.csv").open(encoding="utf-8") as text:
        yield from csv.DictReader(text)


def context(row: dict[str, str], framework: FrameworkProfile, batch: int) -> Context:
    layers, hidden, inner, heads = SHAPES[row["model"]]
    model = transformer(
        row["model"],
        layers=int(row["layers"]) or layers,
        hidden=hidden,
        ffn_hidden=inner,
        heads=heads,
        kv_heads=8,
        vocab=128256,
    )
    work = Workload(global_batch=batch, seq_len=int(row["seq"]))
    return Context(model=model, cluster=load_cluster("dgx-h100"), workload=work, framework=framework)


def of_rank(row: dict[str, str]) -> tuple[Context, Strategy]:
    """Of one rank among simulated ones, as torchtitan cuts them."""
    dp, tp, mbs = int(row["dp"]), int(row["tp"]), int(row["mbs"])
    framework = switched(load_framework("torchtitan"), {"compile": "on" if row["compiled"] == "1" else "off"})
    if row["loss_parallel"] == "0":
        framework = replace(framework, gathered_logits=True, cut_logit_bytes=0.0)
    if row["stored_parameters"] == "bf16":
        framework = replace(framework, master_bytes=0.0, optimizer_bytes=4.0)
    text = f"tp{tp} dp{dp} mbs{mbs} zero3 recompute={RECOMPUTE[row['recompute']]}{' sp' if tp > 1 else ''}"
    return context(row, framework, dp * mbs * int(row["microbatches"])), parse_strategy(text)


def of_one(row: dict[str, str]) -> tuple[Context, Strategy]:
    """Of a trainer on one GPU; both reduce in fp32."""
    framework = load_framework("torchtitan" if row["software"] == "titan" else "fsdp")
    framework = replace(framework, reduce_bytes=4.0, drops_ends=False)
    text = f"tp1 dp1 mbs{row['mbs']} zero3 recompute={RECOMPUTE[row['ac']]}"
    return context(row, framework, int(row["batch"])), parse_strategy(text)


def scores(made: tuple[Context, Strategy]) -> ScoreTable:
    return score(made[0], table_of([made[1]]))


def test_ranks_of_llamas_of_8_to_405b() -> None:
    """Eager layers that recompute nothing keep less than their kernels one by one would (17 % here)."""
    known = [
        row for row in rows("fsdp_ranks") if row["recompute"] in ("op", "full") and row["reshard_after_forward"] == "1"
    ]
    made = [float(scores(of_rank(row)).allocated_bytes[0]) / GIB for row in known]
    error = np.array(made) / [float(row["peak_allocated_gib"]) for row in known] - 1
    assert len(known) > 15
    assert np.median(np.abs(error)) < 0.015
    assert np.abs(error).max() < 0.09


def test_trainers_on_one_gpu() -> None:
    """Any micro-batch and recompute: what fits takes as much as predicted, and what is predicted not to fit did not."""
    known = [row for row in rows("one_gpu") if row["software"] != "hf" and row["model"] != "moe"]
    for row in known:
        made = scores(of_one(row))
        if row["outcome"] == "oom":
            assert not made.fits[0], row
        else:
            assert made.allocated_bytes[0] / GIB == pytest.approx(float(row["peak_allocated_gib"]), rel=0.03), row


def test_copies_of_units_come_with_every_microbatch() -> None:
    """Short runs of one Llama are 10 to 20 % faster than long ones, by the same share for any microbatch."""
    for model in ("1b", "3b", "8b"):
        known = [row for row in rows("one_gpu") if (row["software"], row["outcome"]) == ("titan", "ok")]
        made = [(float(scores(of_one(row)).step_time_s[0]), row) for row in known if row["model"] == model]
        ratios = [predicted / float(row["step_time_s"]) for predicted, row in made]
        assert max(ratios) / min(ratios) < 1.03


def test_streams_of_communication_keep_what_they_once_had() -> None:
    """Allocators of these ranks have reserved 2 to 10 GiB more than is live; they have no gap of 16-bit logits."""
    known = [row for row in rows("fsdp_ranks") if row["loss_parallel"] == "0" and row["allocator_retries"] == "0"]
    known = [row for row in known if row["recompute"] == "full"]
    error = []
    for row in known:
        memory = stage_memory(assign(*of_rank(row)))
        gap = 2 * int(row["mbs"]) * int(row["seq"]) * 128256
        reserved = float(memory.allocated_bytes[0] + memory.cached_bytes[0]) - gap
        error.append(reserved / GIB / float(row["peak_reserved_gib"]) - 1)
    assert len(known) > 5
    assert np.median(np.abs(error)) < 0.04
    assert np.abs(error).max() < 0.2


def test_a_calibration_takes_reserved_memory_for_what_is_needed() -> None:
    """What a trainer logs as reserved holds blocks that are given back before it fails."""
    row = next(row for row in rows("fsdp_ranks") if row["recompute"] == "full")
    made, strategy = of_rank(row)
    named = {"run_id": "own-0", "file": "own", "source": "", "group": "", "filled": (), "cells": {}}
    reserved, allocated = (
        MeasuredRun(
            context=made,
            strategy=strategy,
            step_time_s=1.0,
            peak_memory_bytes=60 * GIB,
            memory_kind=kind,
            outcome="ok",
            **named,  # type: ignore[arg-type]  # of its fields
        )
        for kind in ("reserved", "allocated")
    )
    (first, second) = memory_runs_of([reserved, allocated])
    assert first.peak_bytes == pytest.approx(60 * GIB - cached_bytes(made, strategy))
    assert second.peak_bytes == 60 * GIB
