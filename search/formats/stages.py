"""Limits on stages that differ in tp or recompute: no framework's configuration has words for that, but for one case.

Megatron-LM's block method recomputes the first layers of every stage, the same number on each.
"""

import dataclasses

from forerun.search.formats.contract import Launch, Limit
from forerun.spaces.strategies import Recompute, StageRecompute, Strategy


def layers_of_every_stage(strategy: Strategy) -> int | None:
    """Return how many layers every stage recomputes; None where that is none, all, or not the same."""
    entries = strategy.stage_recompute
    if entries is None or len(set(entries)) > 1 or entries[0].kind != Recompute.FULL:
        return None
    return entries[0].layers


def every_stage(strategy: Strategy, layers: int) -> Strategy:
    """Return the strategy whose stages each recompute their first ``layers``."""
    entries = (StageRecompute(Recompute.FULL, layers),) * strategy.pp
    return dataclasses.replace(strategy, recompute=Recompute.NONE, stage_recompute=entries)


def _one_tp(launch: Launch) -> Launch:
    """Return the launch with the larger tp on all stages: it keeps least on a device."""
    s = launch.strategy
    second = s.second_tp is not None and s.second_tp > s.tp
    return dataclasses.replace(launch, strategy=s.half(second))


def _one_recompute(launch: Launch) -> Launch:
    """Return the launch that recomputes on all stages what the stage does that saves most."""
    s = launch.strategy
    most = max(entry.kind for entry in s.stage_recompute or ())
    return dataclasses.replace(launch, strategy=dataclasses.replace(s, recompute=most, stage_recompute=None))


ONE_TP = Limit(
    broken=lambda launch: launch.strategy.second_tp is not None,
    reason=lambda launch: (
        f"tp={launch.strategy.tp} in the first half of the stages and {launch.strategy.second_tp} in the second: its "
        "configuration has one tensor-parallel degree for all stages"
    ),
    fix=_one_tp,
)
ONE_RECOMPUTE = Limit(
    broken=lambda launch: (
        launch.strategy.stage_recompute is not None and layers_of_every_stage(launch.strategy) is None
    ),
    reason=lambda launch: "recompute differs between stages: its configuration has one choice for all stages",
    fix=_one_recompute,
)
WHOLE_STAGES = Limit(
    broken=lambda launch: layers_of_every_stage(launch.strategy) is not None,
    reason=lambda launch: (
        f"recompute={launch.strategy.stage_recompute[0] if launch.strategy.stage_recompute else ''}: it recomputes all "
        "layers or none"
    ),
    fix=_one_recompute,
)
