"""Sweeps of operator graphs, alone and beside transformers: the same searches, folder and resumption."""

import csv
import json
from pathlib import Path

import pytest

from forerun.search.answer.searches import search_request
from forerun.search.sweep.chunks import ChunkTimes
from forerun.search.sweep.plan import SweepPlan, read_plan
from forerun.search.sweep.run import run_sweep
from forerun.spaces.errors import RequestError

SWEEP = """
models: [alexnet, dlrm-516m]
clusters: [dgx1-v100]
workloads: [{global_batch: 32/gpu}, {global_batch: 128}]
budgets: [{gpus: 4, oom_risk: 5%}]
"""


def plan(tmp_path: Path, text: str = SWEEP) -> SweepPlan:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return read_plan(path)


def test_a_sweep_has_the_rows_of_its_searches_and_goes_on(tmp_path: Path) -> None:
    made = plan(tmp_path)
    found = run_sweep(made, tmp_path / "out")
    rows = found.document["leaderboard"]
    assert found.counts["done"] == len(made.pieces) == 4
    for piece in made.pieces:
        assert piece.request.framework == "pytorch-ddp"
        own = [row for row in rows if row["search"] == piece.number + 1]
        board = search_request(piece.request).to_json()["leaderboard"]
        assert [(row["strategy"], row["samples_per_s"]) for row in own] == [
            (row["strategy"], row["samples_per_s"]) for row in board
        ]
    best = list(csv.DictReader((tmp_path / "out" / "pieces.csv").read_text().splitlines()))
    assert float(best[0]["best_samples_per_s"]) == max(row["samples_per_s"] for row in rows if row["search"] == 1)
    again = run_sweep(made, tmp_path / "out", resume=True)
    assert (again.searched, again.document) == (0, found.document)


@pytest.mark.slow
def test_parts_of_a_search_merge_into_the_same(tmp_path: Path) -> None:
    made = plan(tmp_path)
    whole = run_sweep(made, tmp_path / "whole").document
    parts = run_sweep(made, tmp_path / "parts", chunk_times=ChunkTimes(whole_s=0.0, part_s=0.001, first=7)).document
    assert json.dumps(parts) == json.dumps(whole)


def test_both_kinds_of_models_stand_in_one_sweep(tmp_path: Path) -> None:
    text = "{models: [alexnet, gpt2], clusters: [dgx1-v100], workloads: [{global_batch: 64}], budgets: [{gpus: 4}]}"
    (done, refused) = run_sweep(plan(tmp_path, text), tmp_path / "out").document["searches"]
    assert (done["status"], refused["status"]) == ("done", "refused")
    assert "say how long they are with --seq-len" in refused["message"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("32/gpu", "32/node", "one per GPU like 64/gpu"),
        ("clusters:", "frameworks: megatron-lm\nclusters:", "unknown framework for operator graphs"),
        ("clusters:", "per_stage: layers\nclusters:", "stages that differ are searched for transformers"),
        ("clusters:", "axes: {mode: [data, width]}\nclusters:", "unknown mode 'width'"),
    ],
)
def test_wrong_sweeps_are_refused_with_their_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        plan(tmp_path, SWEEP.replace(old, new))
