"""Assignment of a strategy tree."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from forerun.simulator.assignment.value import Assignment, Placed
from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.spaces.models.model import MODULES, Model, module_of
from forerun.spaces.schedules import PipelineShape
from forerun.spaces.strategies import Context
from forerun.spaces.trees import TreeStrategies


def assign_tree(context: Context, strategies: TreeStrategies) -> Assignment:
    """Return the assignment of a legal tree; its MTP blocks have the settings of the head, which they follow."""
    context = _with_modules(context, strategies)
    tree, first, numbers = strategies.tree, strategies.first, _leaf_kinds(context.model)
    rows = [
        [
            Placed(numbers[leaf.layer, leaf.module], settings, leaf.host)
            for leaf, settings in zip(stage.leaves, row, strict=True)
        ]
        for stage, row in zip(tree.stages, strategies.of_leaf, strict=True)
    ]
    rows[-1] += [replace(rows[-1][-1], kind=kind_of_entry(context.model)[-1])] * context.model.mtp_layers
    return Assignment(
        contexts=(context,),
        group_of_rank=(0,) * first.pp,
        schedule=tree.order,
        shape=PipelineShape(
            pp=first.pp, vpp=first.vpp, microbatches=tree.microbatches, ahead=context.framework.passes_ahead
        ),
        layers=tuple(map(tuple, rows)),
        devices=tuple(stage.devices for stage in tree.stages),
        in_flight=tree.in_flight[: first.pp],
    )


def _with_modules(context: Context, strategies: TreeStrategies) -> Context:
    """Return a context whose model has the modules of each layer as additional kinds, where a tree configures them.

    Modules come first, because blocks after the last layer copy the last kind.
    """
    return replace(context, model=_beside_modules(context.model)) if strategies.per_module else context


@lru_cache(maxsize=32)
def _beside_modules(model: Model) -> Model:
    """Return one object per model, so that equal models share the cached times of their blocks."""
    if any(layer.module for layer in model.layers):
        return model
    modules = (module_of(kind, module) for kind in layer_kinds(model) for module in MODULES)
    return replace(model, layers=(*modules, *model.layers))


@lru_cache(maxsize=64)
def _leaf_kinds(model: Model) -> Mapping[tuple[str, str], int]:
    """Return the number of the kind of every possible leaf of a tree, by the names of its layer and module."""
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
