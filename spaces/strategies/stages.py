"""Division of layers among pipeline stages.

Layers are assigned in order to the virtual stages of a schedule (``PipelineSchedule.chunks_of_rank``).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from forerun.spaces.errors import RequestError
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies.axes import Placement, Split
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import CUSTOM_SPLIT

PREDICTING = 3
"""Layers removed from a last stage with a multi-token-prediction block and two heads."""


def split_is_legal(layers: int, virtual_stages: int, split: int) -> bool:
    """Check whether ``split`` can assign ``layers`` to ``virtual_stages`` without an empty one.

    Where two rules give the same stages only one is legal, so that no assignment has two names.

    >>> [split_is_legal(30, 4, split) for split in (Split.EVEN, Split.BALANCED, Split.LIGHT_LAST, Split.LIGHT_ENDS)]
    [False, False, False, True]
    """
    if split == Split.EVEN:
        return layers % virtual_stages == 0
    if virtual_stages == 1:
        return False
    if split == Split.BALANCED:
        return layers >= virtual_stages and layers % virtual_stages not in (0, virtual_stages - 2, virtual_stages - 1)
    if split == Split.LIGHT_LAST:
        return (layers + 1) % virtual_stages == 0
    if split == Split.BY_COST:
        return layers >= virtual_stages
    if split == Split.LIGHT_MTP:
        each, left = divmod(layers + PREDICTING, virtual_stages)
        return left == 0 and each >= (PREDICTING if virtual_stages == 2 else PREDICTING - 1)
    return split == Split.LIGHT_ENDS and virtual_stages > 2 and (layers + 2) % virtual_stages == 0


def layers_per_virtual_stage(layers: int, virtual_stages: int, split: int, head_layers: float = 1.0) -> tuple[int, ...]:
    """Return the number of layers of every virtual stage, in model order.

    ``split``: number of a ``Split``; ``head_layers``: work of the head relative to a layer.

    >>> layers_per_virtual_stage(30, 4, Split.LIGHT_ENDS), layers_per_virtual_stage(30, 8, Split.BALANCED)
    ((7, 8, 8, 7), (3, 4, 4, 4, 4, 4, 4, 3))
    """
    if split == Split.EVEN:
        return (layers // virtual_stages,) * virtual_stages
    if split == Split.BALANCED:
        return _balanced(layers, virtual_stages)
    if split == Split.BY_COST:
        return _by_cost(layers, virtual_stages, head_layers)
    if split == Split.LIGHT_MTP:
        return _predicting(layers, virtual_stages)
    extra = 1 if split == Split.LIGHT_LAST else 2
    each = (layers + extra) // virtual_stages
    counts = [each] * virtual_stages
    counts[-1] -= 1
    counts[0] -= extra - 1
    return tuple(counts)


@lru_cache(maxsize=1024)
def splits_by_layers(
    layers: int, stages: int, splits: tuple[int, ...], head_layers: float
) -> Mapping[tuple[int, ...], Split]:
    """Return the first of the ``splits`` for each possible sequence of layers per stage."""
    splits_of: dict[tuple[int, ...], Split] = {}
    for split in splits:
        if split_is_legal(layers, stages, split):
            splits_of.setdefault(layers_per_virtual_stage(layers, stages, split, head_layers), Split(split))
    return splits_of


def _balanced(layers: int, stages: int) -> tuple[int, ...]:
    """Assign layers with counts that differ by at most one: most in the middle, fewest on the last stage."""
    base, larger = divmod(layers, stages)
    counts = [base] * stages
    order = [*range(1, stages - 1), 0, stages - 1]
    for stage in order[:larger]:
        counts[stage] += 1
    return tuple(counts)


def _predicting(layers: int, stages: int) -> tuple[int, ...]:
    """Take ``PREDICTING`` layers from the last stage, and if it has one fewer, one from the first for the embedding.

    >>> _predicting(61, 16)[::5], _predicting(61, 32)[::31]
    ((4, 4, 4, 1), (1, 0))
    """
    # Both cases are layouts of Megatron-Bridge's recipe of DeepSeek-V3: Et*4|(t*4|)*14tmL and Et|(tt|)*30mL.
    counts = [(layers + PREDICTING) // stages] * stages
    short = max(PREDICTING - counts[-1], 0)
    counts[-1] -= PREDICTING - short
    counts[0] -= short
    return tuple(counts)


def _by_cost(layers: int, stages: int, head_layers: float) -> tuple[int, ...]:
    """Close a stage with the layer at which the running total reaches its share (nanotron's ``build_model``).

    >>> _by_cost(16, 8, 4.0), _by_cost(16, 2, 4.0)
    ((3, 2, 3, 2, 3, 2, 1, 0), (10, 6))
    """
    counts, stage, share = [0] * stages, 0, (layers + head_layers) / stages
    for done in range(1, layers + 1):
        counts[stage] += 1
        if done >= share * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(counts)


def explicit_layers_broken(strategy: Strategy, layers: int) -> str | None:
    """Return the error in the explicit layers per stage of a strategy, None if they are legal."""
    named = strategy.layers_per_stage
    if named is None:
        return None
    if sum(named) != layers:
        return f"layers={','.join(map(str, named))} names {sum(named)} layers, but the model has {layers}"
    if strategy.vpp > 1 or schedule_of(strategy.schedule).fewest_virtual > 1:
        return f"layers= names whole stages and does not go with vpp={strategy.vpp}; use vpp=1 or a split"
    return None


def chunks_of_stage(pp: int, vpp: int, schedule: int, stage: int) -> tuple[int, ...]:
    """Return the virtual stages of one pipeline rank, in model order.

    >>> chunks_of_stage(4, 2, 1, 1), chunks_of_stage(4, 2, 4, 1)  # interleaved, zb-v
    ((1, 5), (1, 6))
    >>> chunks_of_stage(4, 1, 5, 1)  # dualpipe
    (1, 2)
    """
    return schedule_of(schedule).chunks_of_rank(pp, vpp, stage)


def stage_layers(
    layers: int, pp: int, vpp: int, split: int, custom: tuple[tuple[int, ...], ...], head_layers: float
) -> tuple[int, ...]:
    """Return layers per virtual stage, by rule or (``split`` >= CUSTOM_SPLIT) by the numbers of ``custom``.

    ``head_layers``: see ``layers_per_virtual_stage``.
    """
    if split >= CUSTOM_SPLIT:
        return custom[split - CUSTOM_SPLIT]
    return layers_per_virtual_stage(layers, pp * vpp, split, head_layers)


def layers_of_chunks(strategy: Strategy, layers: int, head_layers: float) -> tuple[int, ...]:
    """Return the layers of every virtual stage of one strategy, in model order.

    ``head_layers``: see ``layers_per_virtual_stage``.

    Raises:
        RequestError: its split does not assign all layers.
    """
    if strategy.layers_per_stage is not None:
        return strategy.layers_per_stage
    counts = layers_per_virtual_stage(layers, strategy.pp * strategy.vpp, strategy.split, head_layers)
    if sum(counts) != layers:
        raise RequestError(f"{strategy} splits {sum(counts)} layers, but the model has {layers}; use another split")
    return counts


def devices_of_rank(strategy: Strategy, rank: int) -> Sequence[int]:
    """Return the device numbers of a pipeline rank, with tensor ranks adjacent.

    >>> list(devices_of_rank(Strategy(tp=2, pp=2, dp=2), 1))
    [4, 5, 6, 7]
    """
    inner = strategy.tp * strategy.cp
    if strategy.placement != Placement.TP_CP_EP_PP_DP:
        return range(rank * inner * strategy.dp, (rank + 1) * inner * strategy.dp)
    starts = [(replica * strategy.pp + rank) * inner for replica in range(strategy.dp)]
    return tuple(device for start in starts for device in range(start, start + inner))
