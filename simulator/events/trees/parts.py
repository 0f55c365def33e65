"""What layers of one configuration do on every virtual stage, by the same rules as flat strategies.

A tree has few distinct configurations (flat strategies of its leaves). Each is costed once for all layers that have it;
stages add them up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.step.costs import Passes, strategy_passes
from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.layer.shard import shard_of
from forerun.simulator.layer.times import BLOCK_PARTS
from forerun.simulator.memory.peak import StageMemory, stage_memory
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, bucket_bytes, replica_costs
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import StageParameters, stage_parameters
from forerun.simulator.stages.plan import StagePlans
from forerun.spaces.models.model import Layer, Model
from forerun.spaces.models.modules import MODULES, module_of
from forerun.spaces.strategies import Context, Recompute, Strategy, chunks_of_stage, table_of
from forerun.spaces.trees import Leaf, TreeStrategies

Blocks = Mapping[Strategy, Floats]
"""Layers of each kind, embedding and head that every virtual stage has in each configuration, [kinds + 2, stages]."""


def with_modules(context: Context, strategies: TreeStrategies) -> Context:
    """Return a context whose model has, besides its layers, the modules of each as kinds of their own, where a tree
    configures modules apart. They stand first, for what follows the last layer is made like that."""
    model = context.model
    if not strategies.apart or any(layer.module for layer in model.layers):
        return context
    modules = (module_of(kind, module) for kind in layer_kinds(model) for module in MODULES)
    return replace(context, model=replace(model, layers=(*modules, *model.layers)))


@lru_cache(maxsize=64)
def _leaf_kinds(model: Model) -> Mapping[tuple[str, str], int]:
    """Return the number of the kind of every leaf that a tree may have, by the names of its layer and its module."""
    kinds, entries = layer_kinds(model), kind_of_entry(model)
    whole = [kind for kind, layer in zip(entries, model.layers, strict=True) if not layer.module]
    counts = [layer.count for layer in model.layers if not layer.module]
    numbers = {kind: number for number, kind in enumerate(kinds)}
    found = {}
    for place, kind in enumerate(np.repeat(whole, counts).tolist()):
        found[str(place), ""] = kind
        for module in MODULES:
            part = numbers.get(module_of(kinds[kind], module))
            if part is not None:
                found[str(place), module] = part
    return MappingProxyType(found | {("embedding", ""): len(kinds), ("head", ""): len(kinds) + 1})


def leaf_layer(context: Context, leaf: Leaf) -> Layer | None:
    """Return the kind of layer, or module, that a leaf stands for, in the context of ``with_modules``; None for
    embedding and head."""
    kinds = layer_kinds(context.model)
    number = _leaf_kinds(context.model)[leaf.layer, leaf.module]
    return kinds[number] if number < len(kinds) else None


def blocks_of(context: Context, strategies: TreeStrategies, chosen: Callable[[Leaf], bool] | None = None) -> Blocks:
    """Return which layers (those ``chosen``, None: all) every virtual stage has in which configuration; the context is
    that of ``with_modules``. MTP blocks count on the last layer's kind, in the configuration of the head."""
    model, kind_of = context.model, _leaf_kinds(context.model)
    rows = len(layer_kinds(model)) + 2
    count = len(strategies.of_leaf)
    blocks: dict[Strategy, Floats] = {}
    for number, (stage, row) in enumerate(zip(strategies.tree.stages, strategies.of_leaf, strict=True)):
        for leaf, strategy in zip(stage.leaves, row, strict=True):
            if chosen is not None and not chosen(leaf):
                continue
            held = blocks.get(strategy)
            if held is None:
                held = blocks[strategy] = np.zeros((rows, count))
            held[kind_of[leaf.layer, leaf.module], number] += 1.0
    if chosen is None or chosen(strategies.tree.stages[-1].leaves[-1]):
        blocks[strategies.of_leaf[-1][-1]][kind_of_entry(model)[-1], -1] += model.mtp_layers
    return blocks


def replica_blocks(blocks: Blocks) -> Blocks:
    """Return the same layers by what decides the traffic of replicas alone: not what is recomputed, nor how a
    microbatch is cut."""
    joined: dict[Strategy, Floats] = {}
    for strategy, held in blocks.items():
        key = replace(strategy, recompute=Recompute.NONE, mbs=1, sp=False)
        joined[key] = joined[key] + held if key in joined else held
    return joined


def homes_of(first: Strategy) -> list[tuple[int, ...]]:
    """Return the virtual stages of every device-stage."""
    return [chunks_of_stage(first.pp, first.vpp, first.schedule, stage) for stage in range(first.pp)]


def passes_of(context: Context, blocks: Blocks) -> Passes:
    """Return what all configurations together cost every virtual stage."""
    each = [
        strategy_passes(context, strategy, shard_of(context, table_of([strategy]), np.zeros(1, dtype=np.intp)), held)
        for strategy, held in blocks.items()
    ]
    first = each[0]
    for other in each[1:]:
        added: dict[str, object] = {
            entry.name: getattr(first, entry.name) + getattr(other, entry.name)
            for entry in fields(Passes)
            if entry.name not in ("parts", "working_bytes")
        }
        added["parts"] = {part: first.parts[part] + other.parts[part] for part in BLOCK_PARTS}
        # One layer is recomputed at a time.
        added["working_bytes"] = np.maximum(first.working_bytes, other.working_bytes)
        first = Passes(**added)  # type: ignore[arg-type]  # its own fields
    return first


def parameters_of(context: Context, strategy: Strategy, blocks: Floats) -> StageParameters:
    """Return the parameters of each column of ``blocks`` on one device, [1, columns]."""
    count = blocks.shape[1]
    ones = np.ones((1, count))
    plans = StagePlans(multiplicity=ones, first=ones * 0.0, stage=ones * 0.0, lead=ones, blocks=blocks[:, None, :])
    tp, ep, etp = (np.full(count, float(degree)) for degree in (strategy.tp, strategy.ep, strategy.etp))
    return stage_parameters(context, plans, tp, ep, etp)


def on_stages(held: Floats, homes: Sequence[tuple[int, ...]]) -> Floats:
    """Return what device-stages hold, [B, stages], from what virtual stages hold."""
    return np.stack([held[:, list(chunks)].sum(axis=1) for chunks in homes], axis=1)


def present_on(blocks: Blocks, homes: Sequence[tuple[int, ...]]) -> Mapping[Strategy, Floats]:
    """Return 1.0 for every device-stage that has layers of a configuration, shape of stages; a stage without layers
    counts as one of the first."""
    present = {strategy: on_stages(held, homes).sum(axis=0) > 0 for strategy, held in blocks.items()}
    empty = ~np.any(list(present.values()), axis=0)
    first = next(iter(present))
    present[first] = present[first] | empty
    return {strategy: here.astype(np.float64) for strategy, here in present.items()}


def replicas_of(context: Context, strategy: Strategy, on: Floats, here: Floats) -> ReplicaCosts:
    """Return the once-per-step costs of the layers of one configuration on every device-stage; none where it is not
    ``here`` (``present_on``)."""
    count = on.shape[1]
    values = {axis: np.full(count, float(getattr(strategy, axis))) for axis in REPLICA_DEGREES}
    costs = replica_costs(context, Replicas(parameters=parameters_of(context, strategy, on), **values))
    return ReplicaCosts(**{entry.name: getattr(costs, entry.name) * here for entry in fields(ReplicaCosts)})


def all_replicas(context: Context, blocks: Blocks, homes: Sequence[tuple[int, ...]]) -> ReplicaCosts:
    """Return the sum over configurations; of the buckets of gradients, which they share, the largest set."""
    joined = replica_blocks(blocks)
    present = present_on(joined, homes)
    each = [
        (strategy, replicas_of(context, strategy, on_stages(held, homes), present[strategy]))
        for strategy, held in joined.items()
    ]
    total = each[0][1]
    if len(each) == 1:
        return total
    buckets = [_bucket_copies(context, strategy, costs) for strategy, costs in each]
    names = [entry.name for entry in fields(ReplicaCosts)]
    total = ReplicaCosts(**{name: sum(getattr(costs, name) for _, costs in each) for name in names})
    shared = np.sum(buckets, axis=0) - np.max(buckets, axis=0)
    tied_s = np.max([costs.tied_s for _, costs in each], axis=0)
    return replace(total, buffer_bytes=total.buffer_bytes - shared, tied_s=tied_s)


def _bucket_copies(context: Context, strategy: Strategy, costs: ReplicaCosts) -> Floats:
    """Return the bytes of the buckets that one configuration keeps on every device-stage."""
    ranks = np.full_like(costs.reduce_s, float(strategy.dp * strategy.cp))
    copies = context.framework.bucket_copies * bucket_bytes(context, ranks)
    return np.where((ranks > 1) & (costs.parameter_bytes[0] > 0), copies, 0.0)[None, :]


def moving_of(context: Context, blocks: Blocks, homes: Sequence[tuple[int, ...]], microbatches: int) -> StageMemory:
    """Return the activation memory of every device-stage by the core's closed forms, [1, stages] each."""
    found = [_moving(context, strategy, on_stages(held, homes), microbatches) for strategy, held in blocks.items()]
    total = found[0]
    for other in found[1:]:
        total = StageMemory(
            kept=total.kept + other.kept,
            working=np.maximum(total.working, other.working),
            logits=total.logits + other.logits,
            idle=total.idle + other.idle,
            stage=total.stage,
        )
    return total


def _moving(context: Context, strategy: Strategy, on: Floats, microbatches: int) -> StageMemory:
    shard = shard_of(context, table_of([strategy]), np.zeros(1, dtype=np.intp))
    count = on.shape[1]
    number = np.arange(count, dtype=np.float64)[None, :]
    given = (float(strategy.schedule), float(strategy.pp), float(strategy.vpp), float(microbatches))
    schedule, pp, vpp, total = (np.full(count, value) for value in given)
    same: NDArray[np.intp] = np.zeros(count, dtype=np.intp)
    return stage_memory(context, shard, same, on[:, None, :], number, schedule, pp, vpp, total)
