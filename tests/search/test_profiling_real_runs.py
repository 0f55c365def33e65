"""Splits of a small model that were really run, predicted from operators of one rank and messages of two."""

import csv
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ROWS = BENCHMARKS / "results" / "2026-11-21-layouts.csv"


@pytest.fixture(scope="module")
def layouts() -> Any:
    folder = BENCHMARKS / "real_runs"
    if not ROWS.exists():
        pytest.skip("benchmarks are not installed")
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("real_layouts", folder / "layouts.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["real_layouts"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def test_splits_that_were_run_are_predicted_from_two_ranks(layouts: Any) -> None:
    with ROWS.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    predicted = layouts.predicted(rows)
    figures = layouts.judged(predicted)
    assert figures["rows"] == 15
    assert figures["events_median_pct"] < 8
    assert figures["events_worst_pct"] < 20
    assert figures["events_order_pct"] == 100
    assert figures["closed_median_pct"] < 8
    assert figures["closed_worst_pct"] < 20
    assert max(abs(row.busy_error) for row in predicted) < 0.08
