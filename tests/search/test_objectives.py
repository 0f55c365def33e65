"""Objectives against rankings made by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from forerun.search import search
from forerun.search.order.objectives import OBJECTIVES, objective_named
from forerun.search.request.setting import Setting
from forerun.simulator import MEMORY_PARTS, TIME_PARTS, ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy, StrategyTable, table_of


def scored(*rows: tuple[int, float, float]) -> tuple[ScoreTable, StrategyTable]:
    """Return tables of GPUs, step times and peaks."""
    step_s = np.array([seconds for _, seconds, _ in rows])
    zero = np.zeros(len(rows))
    scores = ScoreTable(
        step_time_s=step_s,
        time_s=dict.fromkeys(TIME_PARTS, zero),
        peak_memory_bytes=np.array([peak for *_, peak in rows]),
        allocated_bytes=zero,
        memory_bytes=dict.fromkeys(MEMORY_PARTS, zero),
        peak_stage=zero.astype(np.int64),
        fits=zero == 0,
    )
    return scores, table_of([Strategy(dp=gpus) for gpus, *_ in rows])


@pytest.mark.parametrize(
    "objective,order",
    [
        ("throughput", [2, 1, 3, 0]),
        ("cost", [1, 0, 2, 3]),  # 6, 8, 9 and 16 GPU-seconds
        ("gpus", [0, 1, 2, 3]),
        ("headroom", [3, 0, 2, 1]),
    ],
)
def test_order(objective: str, order: list[int], make_setting: Callable[..., Setting]) -> None:
    keys = OBJECTIVES[objective].keys(
        make_setting().context, *scored((2, 4.0, 2e9), (4, 1.5, 4e9), (9, 1.0, 3e9), (10, 1.6, 1e9))
    )

    assert np.lexsort(keys[::-1]).tolist() == order


def test_a_misspelt_objective_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean throughput"):
        objective_named("thoughput")


@pytest.mark.slow
def test_fewest_gpus_that_fit(make_setting: Callable[..., Setting]) -> None:
    fields = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096}
    board = search("llama3-8b", gpus="1..8", objective="gpus", **fields)
    fewest = board.rows[0].gpus

    assert search("llama3-8b", gpus=fewest, **fields).space.feasible > 0
    assert fewest == min(n for n in (1, 2, 4, 8) if _feasible(n, fields))


def _feasible(gpus: int, fields: dict[str, object]) -> bool:
    from forerun.search.answer.diagnosis.diagnosis import NothingFeasible

    try:
        search("llama3-8b", gpus=gpus, **fields)
    except NothingFeasible:
        return False
    return True


def test_a_sum_per_hour_bounds_the_devices() -> None:
    board = search(
        "llama3-8b", cluster="dgx-h100", usd_per_hour=100.0, usd_per_gpu_hour=2.5, global_batch=64, seq_len=4096
    )

    assert max(board.request["gpu_counts"]) == 40
    assert all(row.cost_usd_per_hour == pytest.approx(2.5 * row.gpus) for row in board.rows)
    assert all(row.cost_usd_per_hour is not None and row.cost_usd_per_hour <= 100 for row in board.rows)


@pytest.mark.slow
def test_price_changes_no_order() -> None:
    fields = {"cluster": "dgx-h100", "gpus": "8..32", "global_batch": 64, "seq_len": 4096, "objective": "cost"}
    cheap = search("llama3-8b", usd_per_gpu_hour=1.0, **fields)
    free = search("llama3-8b", **fields)

    assert [row.strategy for row in cheap.rows] == [row.strategy for row in free.rows]
    assert all(row.usd_per_million is not None for row in cheap.rows)
