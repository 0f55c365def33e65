"""Conversion between strategies and numbers of layers per virtual stage."""

import itertools
from collections.abc import Sequence

from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import Split, Strategy, layers_per_virtual_stage
from forerun.spaces.strategies.stages import split_is_legal

NAMED_SPLITS = (Split.EVEN, Split.BALANCED, Split.LIGHT_LAST, Split.LIGHT_ENDS)
"""Splits by the number of layers alone, for any model; ``BY_COST`` also needs the work of layers."""
BY_NUMBER = (*NAMED_SPLITS, Split.LIGHT_MTP)
"""Splits by the number of layers, the last one for models with multi-token prediction."""


def virtual_stages(strategy: Strategy) -> int:
    """Return the number of virtual stages of a strategy."""
    return schedule_of(strategy.schedule).virtual_stages(strategy.pp, strategy.vpp)


def counts_of(strategy: Strategy, layers: int) -> tuple[int, ...]:
    """Return the layers of every virtual stage in model order; the split must be legal and not ``BY_COST``.

    >>> counts_of(Strategy(pp=4, split=Split.LIGHT_ENDS), 30)
    (7, 8, 8, 7)
    """
    if strategy.layers_per_stage is not None:
        return strategy.layers_per_stage
    return layers_per_virtual_stage(layers, virtual_stages(strategy), strategy.split)


def split_of(
    counts: Sequence[int], *, pp: int, vpp: int, predicts: bool = False
) -> tuple[Split, tuple[int, ...] | None] | None:
    """Return the split, or else ``layers_per_stage``, from the layers of every virtual stage.

    ``predicts``: the last one has a multi-token-prediction block.

    None: no strategy has these stages (irregular layers with virtual stages).

    >>> split_of((7, 8, 8, 7), pp=4, vpp=1), split_of((5, 8, 8, 9), pp=4, vpp=1)
    ((<Split.LIGHT_ENDS: 3>, None), (<Split.EVEN: 0>, (5, 8, 8, 9)))
    """
    layers = sum(counts)
    for split in BY_NUMBER if predicts else NAMED_SPLITS:
        if split_is_legal(layers, pp * vpp, split) and layers_per_virtual_stage(layers, pp * vpp, split) == tuple(
            counts
        ):
            return split, None
    return (Split.EVEN, tuple(counts)) if vpp == 1 else None


def nearest_split(layers: int, stages: int) -> Split | None:
    """Return the first split by rule that divides ``layers`` among ``stages``; None without one."""
    return next((split for split in NAMED_SPLITS if split_is_legal(layers, stages, split)), None)


def in_runs(counts: Sequence[int]) -> str:
    """Return numbers as text, with equal neighbours joined.

    >>> in_runs((1, 2, 2, 2, 0))
    '1, 3x2, 0'
    """
    runs = [(value, len(list(run))) for value, run in itertools.groupby(counts)]
    return ", ".join(str(value) if times == 1 else f"{times}x{value}" for value, times in runs)
