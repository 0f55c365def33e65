"""Search for strategies: drivers, leaderboards, reports and the command line.

Names below are loaded when first used (PEP 562): the command line imports this package also for ``--help``, which must
not wait for numpy. These names are stable; the modules below may move.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.search.answer.baseline import read_present, stand_beside
    from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
    from forerun.search.answer.explain.why import against
    from forerun.search.answer.searches import explore_request, search_request
    from forerun.search.api import explain, search, simulate
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.board.rows import Row
    from forerun.search.explore.samplers import Exploring
    from forerun.search.request.request import Request
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import legal_strategy
    from forerun.search.sweep import read_plan, run_sweep
    from forerun.search.workers import Choice

__all__ = [
    "Choice",
    "Exploring",
    "Leaderboard",
    "NothingFeasible",
    "Request",
    "Row",
    "against",
    "explain",
    "explore_request",
    "legal_strategy",
    "read_plan",
    "read_present",
    "resolve",
    "run_sweep",
    "search",
    "search_request",
    "simulate",
    "stand_beside",
]

_MODULES = {
    "Choice": "workers",
    "Exploring": "explore.samplers",
    "Leaderboard": "board.leaderboard",
    "NothingFeasible": "answer.diagnosis.diagnosis",
    "Request": "request.request",
    "Row": "board.rows",
    "against": "answer.explain.why",
    "explain": "api",
    "explore_request": "answer.searches",
    "legal_strategy": "request.setting",
    "read_plan": "sweep",
    "read_present": "answer.baseline",
    "resolve": "request.resolve",
    "run_sweep": "sweep",
    "search": "api",
    "search_request": "answer.searches",
    "simulate": "api",
    "stand_beside": "answer.baseline",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"forerun.search.{_MODULES[name]}"), name)


class _CallablePackage(ModuleType):
    """Package that can be called as the function ``forerun.search``.

    Otherwise an import of the package would hide a function of this name.
    """

    def __call__(self, model: str, **job: Any) -> Any:
        """Search; see ``forerun.jobs.search``."""
        from importlib import import_module

        return import_module("forerun.jobs").search(model, **job)


sys.modules[__name__].__class__ = _CallablePackage
