"""Splits of a small model that were really run, predicted from operators of one rank and messages of two."""

import csv
from pathlib import Path

from real_layouts import judged, predicted

ROWS = Path(__file__).with_name("real_layouts.csv")


def test_splits_that_were_run_are_predicted_from_two_ranks() -> None:
    with ROWS.open(encoding="utf-8", newline="") as stream:
        rows = predicted(list(csv.DictReader(stream)))
    figures = judged(rows)
    assert figures["rows"] == 15
    assert figures["events_median_pct"] < 8
    assert figures["events_worst_pct"] < 20
    assert figures["events_order_pct"] == 100
    assert figures["closed_median_pct"] < 8
    assert figures["closed_worst_pct"] < 20
    assert max(abs(row.busy_error) for row in rows) < 0.08
