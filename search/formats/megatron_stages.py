"""Megatron-LM's arguments of a pipeline: layouts, unequal stages and virtual stages, as a split."""

from typing import Any

from forerun.search.formats.contract import Launch
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.layers import counts_of, in_runs, split_of
from forerun.search.formats.layout import layout_text, parse_layout
from forerun.search.formats.megatron_hybrid import layers_of, stages_of
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Split

Stages = tuple[Split, int, tuple[int, ...] | None]
"""Split, virtual stages and layers per stage."""


def laid_out(launch: Launch) -> str | None:
    """Return the layout of the stages of a launch, None for a split by rule or layers by pattern."""
    s, model = launch.strategy, launch.model
    if model.hybrid or (s.layers_per_stage is None and s.split not in (Split.BALANCED, Split.LIGHT_MTP)):
        return None
    return layout_text(counts_of(s, model.layer_count), model.mtp_layers)


def read_stages(facts: LaunchFacts) -> None:
    """Determine virtual stages and split.

    Raises
    ------
    RequestError
        Arguments contradict each other, or the number of layers.
    """
    split, vpp, per_stage = _stages(facts)
    facts.values |= {"split": split, "vpp": vpp, "layers_per_stage": per_stage}


def _stages(facts: LaunchFacts) -> Stages:
    settings, source, notes, pp = facts.settings, facts.source.name, facts.notes, facts.get("pp", 1)
    layout = settings.raw("pipeline_model_parallel_layout")
    each = settings.whole("num_layers_per_virtual_pipeline_stage")
    first = settings.whole("decoder_first_pipeline_num_layers")
    last = settings.whole("decoder_last_pipeline_num_layers")
    embedding = settings.flag("account_for_embedding_in_pipeline_split") or False
    loss = settings.flag("account_for_loss_in_pipeline_split") or False
    count = facts.get("model.layers") if isinstance(facts.get("model.layers"), int) else None
    vpp = facts.get("vpp", 1)
    pattern = settings.text("hybrid_layer_pattern", "hybrid_override_pattern")
    layers, predicts = layers_of(pattern, source) if pattern is not None else ((), False)
    if pattern is not None:
        facts.values["model.layers"] = sum(layers)
    if pp == 1:
        return Split.EVEN, 1, None
    if pattern is not None and (len(layers) > 1 or first is last is None):
        counts = stages_of(layers, pp, source)
        return _of_counts(counts, pp, len(counts) // pp, "the layers' pattern", notes, predicts=predicts)
    if layout is not None:
        return _layout(layout, pp, source, notes)
    if each is not None:
        if count is None or count % (pp * each):
            raise RequestError(
                f"{source}: {each} layers per virtual stage and pp={pp} must divide num_layers, but it is {count}"
            )
        vpp = count // (pp * each)
    if first is not None or last is not None:
        return _edges(first, last, count, pp, vpp, source, notes)
    split = Split.LIGHT_ENDS if embedding and loss else Split.LIGHT_LAST if loss else Split.EVEN
    if embedding and not loss:
        if count is None or (count + 1) % (pp * vpp):
            raise RequestError(f"{source}: num_layers+1 must be divisible by pp*vpp = {pp * vpp}, but it is {count}")
        stage = (count + 1) // (pp * vpp)
        return _of_counts((stage - 1, *[stage] * (pp * vpp - 1)), pp, vpp, "the split", notes)
    if split == Split.LIGHT_ENDS and pp * vpp == 2:
        split = Split.EVEN  # both stages lose a layer
    return split, vpp, None


def _layout(layout: Any, pp: int, source: str, notes: list[str]) -> Stages:
    if isinstance(layout, list):
        stages = [stage if isinstance(stage, list) else [stage] for stage in layout]
        counts = tuple(sum(str(kind) in ("decoder", "t") for kind in stage) for stage in stages)
        predicts = any(str(kind) in ("mtp", "m") for kind in stages[-1])
    else:
        counts = parse_layout(str(layout), source)
        predicts = "m" in str(layout).rpartition("|")[2]
    if len(counts) % pp:
        raise RequestError(f"{source}: the layout has {len(counts)} stages, which pp={pp} does not divide")
    return _of_counts(counts, pp, len(counts) // pp, f"the layout {str(layout)[:60]}", notes, predicts=predicts)


def _edges(
    first: int | None, last: int | None, count: int | None, pp: int, vpp: int, source: str, notes: list[str]
) -> Stages:
    """Return the split with given layers on the first and last stage and equal stages between."""
    if count is None:
        stated = f"{first or 'the rest'} in the first and {last or 'the rest'} in the last stage"
        notes.append(f"layers: {stated}; without the number of all layers read as split=balanced")
        return Split.BALANCED, vpp, None
    middle = pp - (first is not None) - (last is not None)
    left = count - (first or 0) - (last or 0)
    if left < 0 or (left % middle if middle > 0 else left) or middle < 0:
        raise RequestError(
            f"{source}: {left} layers cannot be divided among the {middle} stages between first and last"
        )
    each = [left // middle] * middle if middle else []
    stages = [*([first] if first is not None else []), *each, *([last] if last is not None else [])]
    if any(layers % vpp for layers in stages):
        raise RequestError(f"{source}: layers per stage {stages} are not divisible by {vpp} virtual stages")
    return _of_counts(tuple(layers // vpp for layers in stages) * vpp, pp, vpp, "the split", notes)


def _of_counts(
    counts: tuple[int, ...], pp: int, vpp: int, what: str, notes: list[str], *, predicts: bool = False
) -> Stages:
    named = split_of(counts, pp=pp, vpp=vpp, predicts=predicts)
    if named is None:
        notes.append(
            f"{what} puts {in_runs(counts)} layers on {pp}*{vpp} virtual stages, for which a strategy has no name; "
            "read as split=balanced"
        )
        return Split.BALANCED, vpp, None
    return named[0], vpp, named[1]
