"""The figures of a validation against their definitions, computed here by brute force."""

import tracemalloc
from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.measured.validate.intervals import Intervals
from forerun.search.measured.validate.metrics import STRATEGY_COLUMNS, metrics_of, order_of, orders_of
from forerun.search.measured.validate.predict import Predictions


def predictions_of(rows: list[dict[str, Any]]) -> Predictions:
    """Predictions for made-up runs; a row names what it measured (m), predicted (p), its group and so on."""
    runs = [
        SimpleNamespace(
            run_id=f"made-{number:04}",
            group=row.get("group", "g"),
            outcome=row.get("outcome", "ok"),
            step_time_s=row.get("m"),
            peak_memory_bytes=row.get("memory"),
            cells=dict.fromkeys(STRATEGY_COLUMNS, "") | {"strategy": str(row.get("strategy", number))},
        )
        for number, row in enumerate(rows)
    ]
    column = lambda name: np.array([row.get(name, np.nan) for row in rows], dtype=float)  # noqa: E731 - one use
    return Predictions(
        runs=cast(Any, tuple(runs)),
        step_time_s=column("p"),
        peak_memory_bytes=column("predicted_memory"),
        comparable_memory_bytes=column("predicted_memory"),
        oom=np.array([row.get("oom", False) for row in rows]),
        time_s={},
        memory_bytes={},
        laws=((),) * len(rows),
        errors={},
    )


def brute_tau(p: list[float], m: list[float]) -> float:
    """Kendall's tau-b by counting pairs."""
    score = ties_p = ties_m = 0
    pairs = list(combinations(range(len(p)), 2))
    for i, j in pairs:
        score += int(np.sign(p[i] - p[j]) * np.sign(m[i] - m[j]))
        ties_p += p[i] == p[j]
        ties_m += m[i] == m[j]
    return score / float(np.sqrt((len(pairs) - ties_p) * (len(pairs) - ties_m)))


def test_accuracy_of_three_runs() -> None:
    m = metrics_of(predictions_of([{"m": 1.0, "p": 1.1}, {"m": 2.0, "p": 1.0}, {"m": 4.0, "p": 4.4}]), measured=6)
    assert (m.rows, m.covered_pct) == (3, 50.0)
    assert m.mape_pct == pytest.approx(100 * (0.1 + 0.5 + 0.1) / 3)
    assert m.median_ape_pct == pytest.approx(10)
    assert m.bias_pct == pytest.approx(10)
    assert (m.groups, m.kendall_tau, m.pair_order_pct, m.regret1_pct) == (0, None, None, None)


def test_regret_is_what_the_first_pick_costs() -> None:
    rows = [{"m": 3.0, "p": 1.0}, {"m": 2.0, "p": 2.0}, {"m": 5.0, "p": 3.0}, {"m": 1.0, "p": 4.0}]
    m = metrics_of(predictions_of(rows))
    assert m.regret1_pct == pytest.approx(200)  # 3.0 against 1.0
    assert m.regret3_pct == pytest.approx(100)  # 2.0 is the best of the first three
    assert m.regret1_max_pct == m.regret1_median_pct == m.regret1_pct


def test_pairs_within_the_noise_are_not_judged() -> None:
    rows = [{"m": 1.0, "p": 2.0}, {"m": 1.04, "p": 1.0}, {"m": 2.0, "p": 3.0}, {"m": 4.0, "p": 4.0}]
    close = metrics_of(predictions_of(rows), noise=0.05)
    exact = metrics_of(predictions_of(rows), noise=0.0)
    assert close.pair_order_pct == 100
    assert exact.pair_order_pct == pytest.approx(100 * 5 / 6)


def test_groups_of_three_are_not_ranked_and_other_groups_not_mixed() -> None:
    rows = [{"m": 1.0, "p": 3.0, "group": "a"}] * 3 + [{"m": m, "p": m, "group": "b"} for m in (1.0, 2.0, 3.0, 4.0)]
    assert [order.group for order in orders_of(predictions_of(rows), range(7))] == ["b"]


def test_a_group_predicted_all_alike_has_no_tau_and_does_not_hide_others() -> None:
    flat = [{"m": m, "p": 1.0, "group": "a"} for m in (1.0, 2.0, 3.0, 4.0)]
    right = [{"m": m, "p": m, "group": "b"} for m in (1.0, 2.0, 3.0, 4.0)]
    assert metrics_of(predictions_of(flat)).kendall_tau is None
    assert metrics_of(predictions_of(flat + right)).kendall_tau == pytest.approx(1.0)


def test_out_of_memory_verdicts() -> None:
    rows = [
        {"outcome": "oom", "p": 1.0, "oom": True},
        {"outcome": "oom", "p": 1.0, "oom": False},
        {"outcome": "oom", "oom": False},  # not predicted: not counted
        {"m": 1.0, "p": 1.0, "oom": False},
        {"m": 1.0, "p": 1.0, "oom": False},
        {"m": 1.0, "p": 1.0, "oom": True},
    ]
    m = metrics_of(predictions_of(rows))
    assert (m.oom_rows, m.oom_recall_pct) == (2, 50.0)
    assert m.oom_specificity_pct == pytest.approx(100 * 2 / 3)
    assert metrics_of(predictions_of(rows[3:])).oom_specificity_pct is None


def test_memory_error_leaves_out_runs_without_a_peak() -> None:
    rows = [
        {"m": 1.0, "p": 1.0, "memory": 10.0, "predicted_memory": 11.0},
        {"m": 1.0, "p": 1.0, "memory": 10.0, "predicted_memory": 7.0},
        {"m": 1.0, "p": 1.0, "predicted_memory": 7.0},
    ]
    m = metrics_of(predictions_of(rows))
    assert (m.memory_rows, m.memory_mape_pct, m.memory_median_ape_pct) == (2, pytest.approx(20), pytest.approx(20))


@settings(max_examples=tries(60))
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=4, max_size=12))
def test_order_equals_brute_force(times: list[tuple[int, int]]) -> None:
    p, m = [float(a) for a, _ in times], [float(b) for _, b in times]
    if len(set(p)) == 1 or len(set(m)) == 1:
        return
    order = order_of("g", np.array(p), np.array(m), 0.1)
    apart = [(i, j) for i, j in combinations(range(len(p)), 2) if max(m[i], m[j]) / min(m[i], m[j]) - 1 > 0.1]
    right = [(i, j) for i, j in apart if (p[i] < p[j]) == (m[i] < m[j]) and p[i] != p[j]]
    ranked = sorted(range(len(p)), key=lambda i: (p[i], i))
    assert order.tau == pytest.approx(brute_tau(p, m))
    assert (order.pairs, order.right) == (len(apart), len(right))
    assert order.regret1 == pytest.approx(m[ranked[0]] / min(m) - 1)
    assert order.regret3 == pytest.approx(min(m[i] for i in ranked[:3]) / min(m) - 1)


def test_a_large_group_takes_little_memory() -> None:
    times = np.random.default_rng(0).uniform(1.0, 2.0, 3000)
    tracemalloc.start()
    found = order_of("large", times, times, 0.05)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.right == found.pairs > 3_000_000
    assert peak < 2e7  # all pairs at once are 36 MB for each number that is kept of them


def test_repeats_of_a_strategy_count_once_with_their_medians() -> None:
    rows = [{"m": m, "p": p, "strategy": name} for name, m, p in (("a", 1, 1), ("b", 2, 2), ("c", 3, 3), ("d", 9, 4))]
    assert metrics_of(predictions_of(rows)).groups == 1
    repeats = [{"m": m, "p": 1.5, "strategy": "a"} for m in (1.0, 8.0, 1.2)]
    (order,) = orders_of(predictions_of(repeats + rows[1:]), range(6))
    assert (order.runs, order.tau, order.pairs) == (4, pytest.approx(1.0), 6)
    assert metrics_of(predictions_of(repeats + rows[1:3])).groups == 0


def test_runs_within_their_interval_are_counted() -> None:
    predictions = predictions_of([{"m": 1.0, "p": 2.0}, {"m": 3.0, "p": 2.0}, {"p": 2.0}, {"m": 5.0, "p": 2.0}])
    bounds = Intervals(
        low_s=np.full(4, 1.0), high_s=np.full(4, 3.0), memory_low_bytes=np.zeros(4), memory_high_bytes=np.zeros(4)
    )
    assert metrics_of(predictions, intervals=bounds).within_interval_pct == pytest.approx(200 / 3)
    assert metrics_of(predictions).within_interval_pct is None
