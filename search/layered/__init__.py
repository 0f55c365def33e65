"""Searching, explaining and limits for models that are written operator by operator."""

from forerun.search.layered.api import LayeredBoard, NothingFits, search_layered
from forerun.search.layered.bottleneck import Bottleneck, bottlenecks
from forerun.search.layered.limits import FamilyLimits, Limits, limits_of
from forerun.search.layered.request import LayeredRequest, LayeredSetting, resolve_request
from forerun.search.layered.rows import LayeredRow
from forerun.search.layered.scoring import scored_rows
from forerun.search.layered.what_if import Doubling, congestion, doublings

__all__ = [
    "Bottleneck",
    "Doubling",
    "FamilyLimits",
    "LayeredBoard",
    "LayeredRequest",
    "LayeredRow",
    "LayeredSetting",
    "Limits",
    "NothingFits",
    "bottlenecks",
    "congestion",
    "doublings",
    "limits_of",
    "resolve_request",
    "scored_rows",
    "search_layered",
]
