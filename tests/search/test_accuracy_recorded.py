"""Accuracy on the committed runs is no worse, source by source, than what was recorded.

``FORERUN_REGENERATE_GOLDEN=1 pytest tests/search/test_accuracy_recorded.py`` records anew; a figure that got worse
belongs into the same commit as its reason.
"""

import json
import os
from pathlib import Path

import pytest

from forerun.search.measured.validate import Metrics, load_runs, predict, summarise

MEASURED = Path(__file__).resolve().parents[2] / "benchmarks" / "measured"
RECORDED = Path(__file__).parent / "recorded_accuracy.json"
REGENERATE = os.environ.get("FORERUN_REGENERATE_GOLDEN") == "1"
LESS_IS_BETTER = ("median_ape_pct", "memory_median_ape_pct")
MORE_IS_BETTER = ("covered_pct", "kendall_tau", "pair_order_pct", "oom_recall_pct", "oom_specificity_pct")
SHARE, POINTS = 0.02, 0.05
"""By what share, and how many points, a figure may be worse than recorded: what another machine's arithmetic moves."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures() -> dict[str, Metrics]:
    runs = load_runs(sorted(MEASURED.glob("*.csv")))
    summary = summarise(runs, predict(runs.runs))
    found = {name: metrics for name, metrics in summary.parts.items() if metrics.rows} | {"all": summary.overall}
    if REGENERATE:
        names = (*LESS_IS_BETTER, *MORE_IS_BETTER)
        document = {
            source: {n: round(v, 3) for n in names if (v := getattr(metrics, n)) is not None}
            for source, metrics in found.items()
        }
        RECORDED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return found


def recorded() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def test_every_source_that_can_be_predicted_is_recorded(figures: dict[str, Metrics]) -> None:
    assert set(recorded()) == set(figures)


def test_no_figure_is_worse(figures: dict[str, Metrics]) -> None:
    """Of all sources in one test: the figures are computed once."""
    worse = []
    for source, figure, then in ((source, *each) for source, kept in recorded().items() for each in kept.items()):
        now = getattr(figures[source], figure)
        loss = now - then if figure in LESS_IS_BETTER else then - now
        if loss > SHARE * abs(then) + (POINTS if figure.endswith("pct") else 0.0):
            worse.append(f"{source}, {figure}: {now:.3f}, was {then}")
    assert not worse


def test_intervals_hold_what_they_say(figures: dict[str, Metrics]) -> None:
    """They were made from these runs and others, so that a little more than four of five lie within."""
    overall = figures["all"].within_interval_pct
    assert overall is not None and 78 <= overall <= 92
    for source, metrics in figures.items():
        if metrics.rows >= 20:
            assert metrics.within_interval_pct is not None and metrics.within_interval_pct >= 60, source
