"""Search over strategies whose stages differ."""

from forerun.search.stages.searching import explore_request

__all__ = ["explore_request"]
