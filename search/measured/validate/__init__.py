"""Accuracy and order of predictions, checked against measured runs."""

from forerun.search.measured.validate.mapping import load_runs
from forerun.search.measured.validate.metrics import GroupOrder, Metrics, metrics_of, orders_of
from forerun.search.measured.validate.predict import Predictions, predict
from forerun.search.measured.validate.runs import RULES, MeasuredRun, RunSet, Skipped
from forerun.search.measured.validate.summary import Summary, summarise

__all__ = [
    "RULES",
    "GroupOrder",
    "MeasuredRun",
    "Metrics",
    "Predictions",
    "RunSet",
    "Skipped",
    "Summary",
    "load_runs",
    "metrics_of",
    "orders_of",
    "predict",
    "summarise",
]
