"""The leaderboard as a value: its fields, its JSON and its CSV."""

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from forerun.search import Leaderboard, search, simulate
from forerun.search.board.leaderboard import NEAR_MARK, ranked
from forerun.search.board.rows import GIB, Row
from forerun.search.files.documents import dump_json
from forerun.search.order.ideas import ALIKE, FAR, degrees
from forerun.search.order.objectives import objective_named
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import MEMORY_PARTS, TIME_PARTS, score
from forerun.spaces.clusters import load_cluster
from forerun.spaces.models import load_model, train_flops_per_sequence
from forerun.spaces.strategies import table_of

FIELDS: dict[str, Any] = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096}
GPUS = 16

ROW_KEYS = {
    "rank",
    "strategy",
    "gpus",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "fits",
    "peak_memory_gib",
    "memory_limit_gib",
    "oom_risk",
    "allocated_memory_gib",
    "peak_stage",
    "breakdown_s",
    "memory_gib",
    "cost_usd_per_hour",
    "cost_usd_per_million_tokens",
    "train_days",
    "train_cost_usd",
    "marks",
    "variants",
    "train_gpu_hours",
    "watts_per_gpu",
    "joules_per_token",
    "train_mwh",
    "interval_level",
    "step_time_low_s",
    "step_time_high_s",
    "evidence",
    "same_as_rank",
    "peak_memory_low_gib",
    "peak_memory_high_gib",
}


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return search("llama3-8b", gpus=GPUS, usd_per_gpu_hour=2.0, tokens=1e12, top=30, **FIELDS)


def test_json_has_exactly_the_agreed_keys(board: Leaderboard) -> None:
    document = json.loads(dump_json(board.to_json()))

    assert list(document) == [
        "schema",
        "request",
        "space",
        "leaderboard",
        "why",
        "elapsed_s",
        "candidates_per_s",
        "versions",
    ]
    assert document["schema"] == 1
    assert set(document["space"]) == {"size", "legal", "feasible", "rejected"}
    assert {"forerun", "python", "numpy"} == set(document["versions"])
    assert all(set(row) == ROW_KEYS for row in document["leaderboard"])
    assert all(tuple(row["breakdown_s"]) == TIME_PARTS for row in document["leaderboard"])
    assert all(tuple(row["memory_gib"]) == MEMORY_PARTS for row in document["leaderboard"])


def test_rows_stand_in_rank_order(board: Leaderboard) -> None:
    assert [row.rank for row in board.rows] == list(range(1, 31))
    assert launch_worth(board.rows) == sorted(launch_worth(board.rows))


def test_ideas_near_the_best_have_a_row_each_before_any_has_two() -> None:
    rows, more = (search("llama3-8b", gpus=GPUS, top=top, **FIELDS).rows for top in (10, 30))
    (best, *_), every = launch_worth(rows), [degrees(row.strategy) for row in more]
    near = {idea for idea, worth in zip(every, launch_worth(more), strict=True) if worth <= (1 + FAR) * best}
    shown = [degrees(row.strategy) for row in rows]

    assert len(near) > 5 and near <= set(shown)


def test_few_ideas_have_rows_for_micro_batches_and_sharding_too() -> None:
    fields = FIELDS | {"framework": "fsdp", "cluster": "aws-p4d", "global_batch": 128}
    rows = search("llama2-7b", gpus=8, **fields).rows
    feasible = search("llama2-7b", gpus=8, all_variants=True, **fields).rows

    assert {row.strategy for row in feasible} == {one.strategy for row in rows for one in (row, *row.variants)}
    assert len({(row.strategy.mbs, row.strategy.zero) for row in rows}) == len(rows) > 1


def test_rows_that_differ_in_recompute_alone_are_one() -> None:
    fields = {"cluster": "dgx-a100-80", "global_batch": 4096, "seq_len": 512}
    rows = search("bert-large", gpus=64, **fields).rows

    assert len({(degrees(row.strategy), row.strategy.mbs, row.strategy.zero, row.strategy.sp) for row in rows}) == 10


@pytest.mark.slow
def test_variants_are_as_good_as_their_row_and_all_there_are() -> None:
    fields = FIELDS | {"gpus": GPUS, "overrides": {"pp": [1, 2], "mbs": [1, 2], "recompute": ["none"]}}
    every = search("llama3-8b", top=100_000, all_variants=True, **fields).rows
    worth = {row.strategy: value for row, value in zip(every, launch_worth(every), strict=True)}
    first = {degrees(row.strategy): row for row in reversed(search("llama3-8b", top=5, **fields).rows)}
    for row in first.values():
        alike = [one for one in worth if degrees(one) == degrees(row.strategy) and one != row.strategy]
        near = [one for one in alike if worth[one] <= (1 + ALIKE) * worth[row.strategy]]
        beaten = [one for one in row.variants if one.strategy not in near]  # as fast, and only more of a risk
        assert [variant.strategy for variant in row.variants if variant not in beaten] == near
        assert all(one.step_time_s <= (1 + ALIKE) * row.step_time_s for one in beaten)
        assert all(worth[row.strategy] <= worth[one] for one in alike)


def launch_worth(rows: Sequence[Row]) -> list[float]:
    """Return what the first objective ranks by."""
    context = resolve(Request(model="llama3-8b", gpus=str(GPUS), **FIELDS)).context
    table = table_of([row.strategy for row in rows])
    (keys,) = objective_named("throughput").keys(context, score(context, table), table)
    return [float(key) for key in keys]


def test_parts_add_up(board: Leaderboard) -> None:
    for row in board.rows:
        assert sum(row.breakdown_s.values()) == pytest.approx(row.step_time_s)
        assert sum(row.memory_gib.values()) == pytest.approx(row.peak_memory_gib)
        assert row.peak_memory_gib <= row.memory_limit_gib


def test_derived_figures(board: Leaderboard) -> None:
    row = board.rows[0]
    tokens = 64 * 4096
    device = load_cluster("dgx-h100").device
    flops = 64 * train_flops_per_sequence(load_model("llama3-8b"), 4096, causal_half=True)

    assert row.throughput == pytest.approx(tokens / row.step_time_s)
    assert row.throughput_per_gpu == pytest.approx(row.throughput / GPUS)
    assert row.mfu == pytest.approx(flops / row.step_time_s / GPUS / 989e12)
    assert row.memory_limit_gib == device.memory_bytes / GIB
    assert row.cost_usd_per_hour == 32.0
    assert row.train_days == pytest.approx(1e12 / row.throughput / 86400)
    assert row.train_cost_usd == pytest.approx(row.train_days * 24 * 32.0)
    assert row.joules_per_unit is not None
    assert row.train_mwh == pytest.approx(1e12 * row.joules_per_unit / 3.6e9)
    assert row.usd_per_million == pytest.approx(row.train_cost_usd / 1e6)


def test_a_strategy_string_names_its_own_row(board: Leaderboard) -> None:
    for row in board.rows:
        strategy = row.strategy
        assert strategy.devices == GPUS
        alone = simulate("llama3-8b", strategy=row.strategy, usd_per_gpu_hour=2.0, tokens=1e12, **FIELDS)
        marks = tuple(mark for mark in row.marks if mark != NEAR_MARK)
        assert dataclasses.replace(row, rank=None, marks=marks, variants=()) == alone


def test_csv_is_flat_and_complete(board: Leaderboard) -> None:
    lines = list(csv.DictReader(io.StringIO(board.to_csv())))

    assert len(lines) == 30
    assert lines[0]["strategy"] == board.rows[0].name
    assert float(lines[0]["time_bubble_s"]) == board.rows[0].breakdown_s["bubble"]
    assert float(lines[0]["memory_activations_gib"]) == board.rows[0].memory_gib["activations"]


def test_the_same_request_gives_the_same_rows(board: Leaderboard) -> None:
    again = search("llama3-8b", gpus=GPUS, usd_per_gpu_hour=2.0, tokens=1e12, top=30, **FIELDS)

    assert again.rows == board.rows
    assert again.space == board.space
    assert again.why == board.why


def test_every_default_is_named(board: Leaderboard) -> None:
    named = " ".join(board.defaults)

    assert "precision bf16" in named and "framework megatron-lm" in named and "objective throughput" in named
    assert "top" not in [word for default in board.defaults for word in default.split()[:1]]
    full = search(
        "llama3-8b", gpus=GPUS, precision="bf16", framework="megatron-lm", objective="throughput", top=1, **FIELDS
    )
    assert not {"precision", "framework", "objective", "top"} & {default.split()[0] for default in full.defaults}


def test_rows_within_one_percent_are_marked(board: Leaderboard) -> None:
    first = dataclasses.replace(board.rows[0], marks=(), step_time_s=1.0)
    others = [dataclasses.replace(first, step_time_s=seconds) for seconds in (1.0, 1.009, 1.011)]

    marked = [NEAR_MARK in row.marks for row in ranked((first, *others), "throughput")]

    assert marked == [False, True, True, False]


@pytest.mark.parametrize(
    "model,cluster,strategy,mark",
    [
        ("llama3-70b", "dgx-h100", "tp16 pp2 sp", "tp crosses nodes"),
        ("llama3-70b", "dgx-h100", "tp8 cp2 pp2 sp", "cp crosses nodes"),
        ("mixtral-8x7b", "dgx-a100-80", "tp4 dp8 ep8 etp4 sp zero1", "ep crosses nodes"),
        ("llama3-70b", "dgx-h100", "dp8", "does not fit"),
    ],
)
def test_marks(model: str, cluster: str, strategy: str, mark: str) -> None:
    row = simulate(model, cluster=cluster, strategy=strategy, global_batch=64, seq_len=4096)

    assert mark in row.marks


def test_a_wide_scale_up_domain_is_not_crossed() -> None:
    row = simulate("llama3-70b", cluster="gb200-nvl72", strategy="tp8 pp2 sp", global_batch=64, seq_len=4096)

    assert not [mark for mark in row.marks if "crosses" in mark]
