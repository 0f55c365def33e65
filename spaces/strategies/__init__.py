"""Strategies: values, their strings, tables of candidates, legality and the space.

Shapes: N candidates; K distinct combinations of some of their columns.
"""

from forerun.spaces.strategies.axes import (
    ALL_LAYERS,
    ALL_REPLICAS,
    AXES,
    MODULES,
    NAMED,
    SPELLING,
    Placement,
    Recompute,
    Schedule,
    Software,
    Split,
    first_layers,
    group_size,
    in_groups,
)
from forerun.spaces.strategies.context import Context, HeldMemory, by_context
from forerun.spaces.strategies.defaults import default_choices, restrict
from forerun.spaces.strategies.parsing import parse_named, parse_strategy
from forerun.spaces.strategies.rules import RULES, violations
from forerun.spaces.strategies.space import DEGREES, StrategySpace
from forerun.spaces.strategies.stage_choices import StageChoices, StageRecompute, in_second_half
from forerun.spaces.strategies.stage_offload import StageOffload, offload_of
from forerun.spaces.strategies.stages import (
    chunks_of_stage,
    devices_of_rank,
    explicit_layers_broken,
    layers_of_chunks,
    layers_per_virtual_stage,
    stage_layers,
)
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import COLUMNS, CUSTOM_SPLIT, StrategyTable, strategy_of, table_of

__all__ = [
    "ALL_LAYERS",
    "ALL_REPLICAS",
    "AXES",
    "COLUMNS",
    "CUSTOM_SPLIT",
    "DEGREES",
    "MODULES",
    "NAMED",
    "RULES",
    "SPELLING",
    "Context",
    "HeldMemory",
    "Placement",
    "Recompute",
    "Schedule",
    "Software",
    "Split",
    "StageChoices",
    "StageOffload",
    "StageRecompute",
    "Strategy",
    "StrategySpace",
    "StrategyTable",
    "by_context",
    "chunks_of_stage",
    "default_choices",
    "devices_of_rank",
    "explicit_layers_broken",
    "first_layers",
    "group_size",
    "in_groups",
    "in_second_half",
    "layers_of_chunks",
    "layers_per_virtual_stage",
    "offload_of",
    "parse_named",
    "parse_strategy",
    "restrict",
    "stage_layers",
    "strategy_of",
    "table_of",
    "violations",
]
