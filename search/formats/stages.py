"""Limits on stages that differ in tp, recompute or offload, which configurations can express in two cases only.

Megatron-LM's block method recomputes the first layers of every stage, the same number on each. Shares on the host equal
on all stages are switches of the software.
"""

import dataclasses

from forerun.search.formats.contract import Launch, Limit
from forerun.spaces.strategies import ALL_LAYERS, Recompute, StageOffload, Strategy
from forerun.spaces.strategies.stage_offload import OFFLOAD_WORDS


def _one_tp(launch: Launch) -> Launch:
    """Return the launch with the larger tp on all stages: it needs the least memory per device."""
    s = launch.strategy
    second = s.second_tp is not None and s.second_tp > s.tp
    return dataclasses.replace(launch, strategy=s.half(second))


def _one_recompute(launch: Launch) -> Launch:
    """Return the launch with the most memory-saving recompute of any stage on all stages."""
    s = launch.strategy
    most = max(entry.kind for entry in s.stage_recompute or ())
    strategy = dataclasses.replace(s, recompute=most, recompute_layers=ALL_LAYERS, stage_recompute=None)
    return dataclasses.replace(launch, strategy=strategy)


def switches_of_all(strategy: Strategy) -> dict[str, str]:
    """Return the switches for the common host shares of all stages; {} if shares differ or are unset."""
    entries = strategy.stage_offload
    if entries is None or len(set(entries)) > 1:
        return {}
    return {word: f"{share:g}" for word, share in zip(OFFLOAD_WORDS, entries[0], strict=True)}


def _one_offload(launch: Launch) -> Launch:
    """Return the launch with the largest host share of any stage on all stages."""
    most = StageOffload(*(max(column) for column in zip(*(launch.strategy.stage_offload or ()), strict=True)))
    strategy = dataclasses.replace(launch.strategy, stage_offload=(most,) * launch.strategy.pp)
    switches = {**launch.switches, **switches_of_all(strategy)}
    return dataclasses.replace(launch, strategy=dataclasses.replace(strategy, stage_offload=None), switches=switches)


def _whole_stages(launch: Launch) -> Launch:
    """Return the launch that recomputes all layers instead of some."""
    return dataclasses.replace(launch, strategy=dataclasses.replace(launch.strategy, recompute_layers=ALL_LAYERS))


def no_modules(reason: str) -> Limit:
    """Return the limit "only the attention core is recomputed as a module".

    Its fix is full recompute, which keeps less.
    """
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
ONE_OFFLOAD = Limit(
    broken=lambda launch: launch.strategy.stage_offload is not None,
    reason=lambda launch: "shares on the host differ between stages: its configuration has one for all stages",
    fix=_one_offload,
)
WHOLE_STAGES = Limit(
    broken=lambda launch: launch.strategy.recompute_layers != ALL_LAYERS,
    reason=lambda launch: f"recompute={launch.strategy.recompute_name}: it recomputes all layers or none",
    fix=_whole_stages,
)
NO_MODULES = no_modules("it recomputes whole layers, the attention core or nothing")
