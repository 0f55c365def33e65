"""Accuracy and order of predictions, checked against measured runs."""

from forerun.search.measured.validate.mapping import load_runs
from forerun.search.measured.validate.metrics import Metrics, metrics_of
from forerun.search.measured.validate.predict import Predictions, predict
from forerun.search.measured.validate.runs import RULES, MeasuredRun, RunSet
from forerun.search.measured.validate.summary import Summary, summarise

__all__ = [
    "RULES",
    "MeasuredRun",
    "Metrics",
    "Predictions",
    "RunSet",
    "Summary",
    "load_runs",
    "metrics_of",
    "predict",
    "summarise",
]
