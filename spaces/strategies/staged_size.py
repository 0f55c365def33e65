"""Number of candidates of a space with different stages, without enumeration."""

import math
from typing import Protocol

from forerun.spaces.schedules.catalogue import schedule_of, virtual
from forerun.spaces.strategies.axes import AXES
from forerun.spaces.strategies.space import StrategySpace


class Countable(Protocol):
    """The facts of a ``StagedSpace`` that determine its size."""

    @property
    def flat(self) -> StrategySpace: ...
    @property
    def reach(self) -> int: ...
    @property
    def recompute(self) -> bool: ...
    @property
    def halves(self) -> bool: ...
    @property
    def offload(self) -> bool: ...
    @property
    def kinds(self) -> tuple[int, ...]: ...
    @property
    def partial(self) -> bool: ...
    @property
    def hosted(self) -> tuple[range, range]: ...
    def places(self, boundary: int, pp: int) -> range: ...


def staged_size(space: Countable) -> int:
    """Count the candidates of a space, as defined by ``StagedSpace.size``."""
    choices = space.flat.choices
    rest = math.prod(len(choices[axis]) for axis in AXES if axis not in ("pp", "vpp", "schedule", "split"))
    schedules = sum(not virtual(schedule) for schedule in choices["schedule"])
    size = space.flat.size + rest * schedules * sum(layouts_of(space, pp) for pp in choices["pp"])
    staged = sum(schedule_of(number).whole_stages for number in choices["schedule"])
    by_rule = rest * len(choices["split"])
    each = {pp: by_rule + rest * layouts_of(space, pp) for pp in choices["pp"] if pp > 1}
    if space.recompute:
        others = rest // (len(choices["recompute"]) * len(choices["recompute_layers"]))
        for pp in each:
            more = others * layouts_of(space, pp, recompute=True)
            size, each[pp] = size + staged * more, each[pp] + more
    if space.offload:
        for pp in choices["pp"]:
            more = each.get(pp, by_rule) * (math.prod(map(len, space.hosted)) ** pp - 1)
            size, each[pp] = size + staged * more, each.get(pp, 0) + more
    if space.halves:
        size += staged * (len(choices["tp"]) - 1) * sum(each[pp] for pp in each if pp > 1)
    return size


def layouts_of(space: Countable, pp: int, *, recompute: bool = False) -> int:
    """Count the assignments of the layers to ``pp`` non-empty stages.

    With ``recompute`` they are multiplied by the choices of recompute on the stages (also for layers assigned by rule).
    """
    if pp == 1 or (space.reach == 0 and not recompute):
        return 0
    kinds = len(space.kinds)

    def times(layers: int) -> int:
        return kinds + (layers - 1 if space.partial else 0) if recompute else 1

    counts = {0: 1}
    for boundary in range(1, pp + 1):
        places = space.places(boundary, pp)
        counts = {p: sum(n * times(p - before) for before, n in counts.items() if before < p) for p in places}
    return sum(counts.values())
