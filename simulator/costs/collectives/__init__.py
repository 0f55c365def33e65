"""Cost rules of collectives: groups on levels, algorithms, fitted constants."""

from forerun.simulator.costs.collectives.groups import members_per_level
from forerun.simulator.costs.collectives.rule import (
    Collective,
    collective_provenance,
    collective_time_s,
    point_to_point_time_s,
)

__all__ = [
    "Collective",
    "collective_provenance",
    "collective_time_s",
    "members_per_level",
    "point_to_point_time_s",
]
