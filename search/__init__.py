"""Which split to take: drivers, leaderboard, reports and the command line.

Names below are loaded when first used (PEP 562): the command line imports this package for ``--help`` as well, which
must not wait for numpy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.search.api import search, search_request, simulate
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.board.rows import Row
    from forerun.search.request.request import Request
    from forerun.search.samplers import Exploring
    from forerun.search.stages import explore_request
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
    "Exploring": "samplers",
    "explore_request": "stages",
    "read_plan": "sweep",
    "run_sweep": "sweep",
    "Leaderboard": "board.leaderboard",
    "Request": "request.request",
    "Row": "board.rows",
    "search": "api",
    "search_request": "api",
    "simulate": "api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"forerun.search.{_MODULES[name]}"), name)
