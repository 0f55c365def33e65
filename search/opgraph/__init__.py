"""Searching, explaining and limits for operator graphs."""

from forerun.search.opgraph.api import GraphBoard, NothingFits, search_graph
from forerun.search.opgraph.bottleneck import Bottleneck, bottlenecks
from forerun.search.opgraph.limits import FamilyLimits, Limits, limits_of
from forerun.search.opgraph.request import GraphRequest, GraphSetting, resolve_request
from forerun.search.opgraph.rows import GraphRow
from forerun.search.opgraph.scoring import scored_rows
from forerun.search.opgraph.what_if import Doubling, congestion, doublings

__all__ = [
    "Bottleneck",
    "Doubling",
    "FamilyLimits",
    "GraphBoard",
    "GraphRequest",
    "GraphRow",
    "GraphSetting",
    "Limits",
    "NothingFits",
    "bottlenecks",
    "congestion",
    "doublings",
    "limits_of",
    "resolve_request",
    "scored_rows",
    "search_graph",
]
