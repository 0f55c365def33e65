"""Accuracy and order of predictions, checked against measured runs."""

from forerun.search.validate.mapping import load_runs
from forerun.search.validate.metrics import GroupOrder, Metrics, metrics_of, orders_of
from forerun.search.validate.predict import Predictions, predict
from forerun.search.validate.runs import RULES, MeasuredRun, RunSet, Skipped
from forerun.search.validate.summary import Summary, summarise

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
