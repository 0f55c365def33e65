"""Which split to take: drivers, leaderboard, reports and the command line.

Names below are loaded when first used (PEP 562): the command line imports this package for ``--help`` as well, which
must not wait for numpy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.search.answer.searches import explore_request, search_request
    from forerun.search.api import search, simulate
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.board.rows import Row
    from forerun.search.explore.samplers import Exploring
    from forerun.search.request.request import Request
    from forerun.search.sweep import read_plan, run_sweep
    from forerun.search.workers import Choice

__all__ = [
    "Choice",
    "Exploring",
    "Leaderboard",
    "Request",
    "Row",
    "explore_request",
    "read_plan",
    "run_sweep",
    "search",
    "search_request",
    "simulate",
]

_MODULES = {
    "Choice": "workers",
    "Exploring": "explore.samplers",
    "explore_request": "answer.searches",
    "read_plan": "sweep",
    "run_sweep": "sweep",
    "Leaderboard": "board.leaderboard",
    "Request": "request.request",
    "Row": "board.rows",
    "search": "api",
    "search_request": "answer.searches",
    "simulate": "api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"forerun.search.{_MODULES[name]}"), name)
