"""Limits on stages that differ in tp or recompute: no framework's configuration has words for that, but for one case.

Megatron-LM's block method recomputes the first layers of every stage, the same number on each.
"""

import dataclasses

from forerun.search.formats.contract import Launch, Limit
from forerun.spaces.strategies import ALL_LAYERS, Recompute


def _one_tp(launch: Launch) -> Launch:
    """Return the launch with the larger tp on all stages: it keeps least on a device."""
    s = launch.strategy
    second = s.second_tp is not None and s.second_tp > s.tp
    return dataclasses.replace(launch, strategy=s.half(second))


def _one_recompute(launch: Launch) -> Launch:
    """Return the launch that recomputes on all stages what the stage does that saves most."""
    s = launch.strategy
    most = max(entry.kind for entry in s.stage_recompute or ())
    strategy = dataclasses.replace(s, recompute=most, recompute_layers=ALL_LAYERS, stage_recompute=None)
    return dataclasses.replace(launch, strategy=strategy)


def _whole_stages(launch: Launch) -> Launch:
    """Return the launch that recomputes all layers of which it recomputed some."""
    return dataclasses.replace(launch, strategy=dataclasses.replace(launch.strategy, recompute_layers=ALL_LAYERS))


def no_modules(reason: str) -> Limit:
    """Return the limit "no modules but the attention core are recomputed"; whole layers keep less."""
    return Limit(
        broken=lambda launch: launch.strategy.recompute > Recompute.FULL,
        reason=lambda launch: f"recompute={launch.strategy.recompute_name}: {reason}",
        fix=lambda launch: dataclasses.replace(
            launch, strategy=dataclasses.replace(launch.strategy, recompute=Recompute.FULL)
        ),
    )


ONE_TP = Limit(
    broken=lambda launch: launch.strategy.second_tp is not None,
    reason=lambda launch: (
        f"tp={launch.strategy.tp} in the first half of the stages and {launch.strategy.second_tp} in the second: its "
        "configuration has one tensor-parallel degree for all stages"
    ),
    fix=_one_tp,
)
ONE_RECOMPUTE = Limit(
    broken=lambda launch: launch.strategy.stage_recompute is not None,
    reason=lambda launch: "recompute differs between stages: its configuration has one choice for all stages",
    fix=_one_recompute,
)
WHOLE_STAGES = Limit(
    broken=lambda launch: launch.strategy.recompute_layers != ALL_LAYERS,
    reason=lambda launch: f"recompute={launch.strategy.recompute_name}: it recomputes all layers or none",
    fix=_whole_stages,
)
NO_MODULES = no_modules("it recomputes whole layers, the attention core or nothing")
