"""Cost rules of collectives: groups on levels, algorithms, fitted constants."""

from forerun.simulator.costs.collectives.groups import block_stride, members_per_level, stride_of
from forerun.simulator.costs.collectives.rule import (
    Collective,
    collective_time_s,
    point_to_point_time_s,
)

__all__ = [
    "Collective",
    "block_stride",
    "collective_time_s",
    "members_per_level",
    "point_to_point_time_s",
    "stride_of",
]
