"""Prediction of the fastest way to train a model on a set of accelerators, without renting them.

>>> import forerun
>>> board = forerun.search("llama3-8b", cluster="dgx-h100", gpus=64, global_batch="4M tokens", seq_len="8k")
>>> board.rows[0].gpus
64

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun import errors
    from forerun.jobs import SearchJob, TrainingJob, TuningJob, compare, explain, search, simulate, tune
    from forerun.results import SearchResult, SimulationResult
    from forerun.search.answer.explain.comparison import Comparison
    from forerun.search.answer.explain.explain import Explanation
    from forerun.search.board.rows import Row
    from forerun.search.files.release import VERSION as __version__
    from forerun.search.request.request import Request
    from forerun.search.tune.summary import TuneSummary
    from forerun.search.workers import Choice

__all__ = [
    "Choice",
    "Comparison",
    "Explanation",
    "Request",
    "Row",
    "SearchJob",
    "SearchResult",
    "SimulationResult",
    "TrainingJob",
    "TuneSummary",
    "TuningJob",
    "__version__",
    "compare",
    "errors",
    "explain",
    "search",
    "simulate",
    "tune",
]

_MODULES = {
    "Choice": "search.workers",
    "Comparison": "search.answer.explain.comparison",
    "Explanation": "search.answer.explain.explain",
    "TrainingJob": "jobs",
    "Request": "search.request.request",
    "Row": "search.board.rows",
    "SearchJob": "jobs",
    "SearchResult": "results",
    "SimulationResult": "results",
    "TuningJob": "jobs",
    "TuneSummary": "search.tune.summary",
    "compare": "jobs",
    "explain": "jobs",
    "simulate": "jobs",
    "tune": "jobs",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("errors", "search"):
        return import_module(f"forerun.{name}")
    if name == "__version__":
        return import_module("forerun.search.files.documents").VERSION
    if name not in _MODULES:
        raise AttributeError(f"module 'forerun' has no attribute {name!r}")
    return getattr(import_module(f"forerun.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
