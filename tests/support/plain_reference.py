"""Slow and plain: the score of one strategy, every stage visited, one number at a time.

The differential partner of ``forerun.simulator.core.score``. It shares the cost rules and the facts of
``forerun.spaces`` with it and nothing else: no table, no distinct keys, no representative stages.
"""

import math
from dataclasses import dataclass, replace

from plain_blocks import PlainBlock, PlainBlocks, launched
from plain_laps import PlainChunk, lap_path_s
from plain_memory import add_memory, room_bytes, with_reserve
from plain_pipeline import bubble_s_of, p2p_s, pipeline_parts, spared_s
from plain_replicas import replica_parts
from plain_stage import PlainStage
from plain_zero_bubble import PlainPass, zb_v_s

from forerun.simulator.score_table import MEMORY_PARTS, TIME_PARTS
from forerun.spaces.models import embedding_parameters, layer_parameters, mtp_block_parameters
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.strategies import Context, Recompute, Schedule, Strategy, layers_per_virtual_stage


@dataclass(kw_only=True)
class PlainScore:
    step_time_s: float
    time_s: dict[str, float]
    peak_memory_bytes: float
    memory_bytes: dict[str, float]
    peak_stage: int
    stages: list[PlainStage]


def _kinds(model: Model) -> list[int]:
    """Of every entry of layers the first one that is equal but for its name and count."""
    shapes = [replace(layer, name="", count=1) for layer in model.layers]
    return [shapes.index(shape) for shape in shapes]


def plain_scores(context: Context, strategy: Strategy) -> list[PlainScore]:
    """Time and memory of one strategy.

    There is one answer for every stage that is the slowest up to rounding: stages that wait for their host all take
    the time of their launches, and each is made of other parts.
    """
    kinds = _kinds(context.model)
    layers = [kind for kind, layer in zip(kinds, context.model.layers, strict=True) for _ in range(layer.count)]
    device = PlainBlocks(context, strategy)
    blocks = [device.layer(layer) for layer in context.model.layers]
    ends = device.embedding(), device.head()
    microbatches = context.workload.global_batch / (strategy.dp * strategy.mbs)
    stages = [_stage(context, strategy, number, layers) for number in range(strategy.pp)]
    for number, stage in enumerate(stages):
        _add_times(context, strategy, stage, blocks, ends)
        _count_parameters(context, strategy, stage, device)
        dummies = device.dummy_bytes(context.model.layers[kind] for kind in stage.layers)
        add_memory(context, strategy, stage, number, microbatches, blocks, ends, dummies)
    peak = max(range(strategy.pp), key=lambda number: stages[number].live_bytes)
    memory = with_reserve(context, stages[peak])
    each_hop_s = p2p_s(context, strategy)
    scores = []
    bubbles_s = [bubble_s_of(strategy, stages, stage, microbatches) for stage in stages]
    least_s = 0.0
    if strategy.schedule == Schedule.INTERLEAVED:
        least_s = lap_path_s(context, strategy, microbatches, _chunks(context, strategy, layers, blocks, ends))
    if strategy.schedule == Schedule.ZB_V:
        least_s = zb_v_s(strategy, _halves(context, strategy, layers, blocks, ends), microbatches)
    for slowest, own_bubble_s in _last(stages, bubbles_s, microbatches):
        bubble_s = max(0.0, least_s - microbatches * slowest.pace_s) if least_s else own_bubble_s
        time_s = pipeline_parts(context, strategy, slowest, microbatches) | {"bubble": bubble_s}
        time_s["pipeline"] *= each_hop_s
        more_s = 0.0
        if (
            strategy.pp > 1 and context.framework.overlap_pipeline
        ):  # however well hidden, a device sends one transfer after the other
            sends = strategy.vpp * microbatches * (1 if strategy.pp == 2 and strategy.vpp == 1 else 2)
            more_s = max(sends * each_hop_s - microbatches * slowest.pace_s - bubble_s - time_s["pipeline"], 0.0)
            time_s["pipeline"] += more_s
        elif strategy.pp > 1:
            time_s["pipeline"] -= spared_s(strategy, stages, microbatches, each_hop_s)
        pace_s = slowest.pace_s + more_s / microbatches
        pace = (pace_s, more_s / microbatches)
        time_s |= replica_parts(context, strategy, stages, slowest, pace, bubble_s, microbatches)
        time_s["host"] += context.framework.host_step_s + context.framework.host_microbatch_s * microbatches
        doublings = math.log2(max(strategy.dp * strategy.cp / 8, 1))  # of replicas, each waiting for the slowest
        time_s["host"] += 0.0075 * doublings * (time_s["compute"] + time_s["recompute"])
        if stages[peak].idle_bytes > room_bytes(context, stages[peak]):
            passes_s = microbatches * slowest.pace_s + bubble_s
            time_s["host"] += context.framework.allocator_stall * passes_s
        score = PlainScore(
            step_time_s=sum(time_s.values()),
            time_s={part: time_s[part] for part in TIME_PARTS},
            peak_memory_bytes=sum(memory.values()),
            memory_bytes={part: memory[part] for part in MEMORY_PARTS},
            peak_stage=peak,
            stages=stages,
        )
        scores.append(score)
    return scores


def _chunks(
    context: Context,
    strategy: Strategy,
    layers: list[int],
    blocks: list[PlainBlock],
    ends: tuple[PlainBlock, PlainBlock],
) -> list[PlainChunk]:
    """Virtual stages in model order, with the times of a microbatch."""
    counts = layers_per_virtual_stage(len(layers), strategy.pp * strategy.vpp, strategy.split, context.head_layers)
    chunks = []
    for number, count in enumerate(counts):
        held = layers[sum(counts[:number]) : sum(counts[:number]) + count]
        last = number == len(counts) - 1
        held += [_kinds(context.model)[-1]] * context.model.mtp_layers if last else []
        present = [blocks[kind] for kind in held] + ([ends[0]] if number == 0 else []) + ([ends[1]] if last else [])
        launch = launches_s(context, strategy, held)
        forward_s = max(sum(block.forward_s for block in present), launch[0])
        backward_s = max(sum(block.backward_s for block in present), launch[1])
        chunks.append(PlainChunk(layers=held, head=last, forward_s=forward_s, backward_s=backward_s))
    return chunks


def _halves(
    context: Context,
    strategy: Strategy,
    layers: list[int],
    blocks: list[PlainBlock],
    ends: tuple[PlainBlock, PlainBlock],
) -> list[PlainPass]:
    """Virtual stages of a V in model order, with both gradients apart."""
    passes = []
    chunks = _chunks(context, strategy, layers, blocks, ends)
    for number, chunk in enumerate(chunks):
        present = [blocks[kind] for kind in chunk.layers]
        present += ([ends[0]] if number == 0 else []) + ([ends[1]] if chunk.head else [])
        launch_s = launches_s(context, strategy, chunk.layers)[0]
        weight_s = max(sum(block.weight_s for block in present), launch_s)
        held = (sorted(chunk.layers), number == 0, chunk.head)
        input_s = chunk.backward_s - weight_s
        passes.append(PlainPass(held=held, forward_s=chunk.forward_s, input_s=input_s, weight_s=weight_s))
    return passes


def _last(stages: list[PlainStage], bubbles_s: list[float], microbatches: float) -> list[tuple[PlainStage, float]]:
    """Stages (with their bubbles) that finish last up to rounding, those of different content once each."""
    finish = [microbatches * stage.pace_s + bubble_s for stage, bubble_s in zip(stages, bubbles_s, strict=True)]
    found = {}
    for stage, bubble_s, end_s in zip(stages, bubbles_s, finish, strict=True):
        if end_s >= max(finish) * (1 - 1e-11):
            found[(*stage.layers, stage.embedding, stage.head)] = stage, bubble_s
    return list(found.values())


def _stage(context: Context, strategy: Strategy, number: int, layers: list[int]) -> PlainStage:
    """What pipeline rank ``number`` holds; MTP blocks stand behind the last layer."""
    pp, vpp, schedule = strategy.pp, strategy.vpp, strategy.schedule
    counts = strategy.layers_per_stage
    if counts is None:
        counts = layers_per_virtual_stage(len(layers), pp * vpp, strategy.split, context.head_layers)
    held: list[int] = []
    chunks: list[int] = []
    embedding = head = False
    for virtual in range(len(counts)):
        homes = [virtual % pp]
        if schedule == Schedule.ZB_V:
            homes = [virtual if virtual < pp else 2 * pp - 1 - virtual]
        if schedule == Schedule.DUALPIPE:
            homes = [virtual, pp - 1 - virtual]
        if number in homes:
            first = sum(counts[:virtual])
            held += layers[first : first + counts[virtual]]
            chunks.append(counts[virtual])
            embedding = embedding or virtual == 0
            if virtual == len(counts) - 1:
                head = True
                held += [_kinds(context.model)[-1]] * context.model.mtp_layers
    return PlainStage(layers=held, chunks=chunks, embedding=embedding, head=head, parts_s={}, memory_bytes={})


def launches_s(context: Context, strategy: Strategy, layers: list[int]) -> tuple[float, float]:
    """Seconds of the host for some layers, forward and backward: a third of a layer's launches are its forward pass."""
    profile, host_s, again_s = context.framework, 0.0, 0.0
    launches_s = 0.0 if context.compiled else profile.host_layer_s / context.cluster.device.host_speed
    for kind in layers:
        layer = context.model.layers[kind]
        own_s = launches_s * launched(layer, context.model.hidden, profile.graphed)
        each = own_s + profile.host_rank_s * (strategy.tp - 1)
        if strategy.pp > 1:
            each += profile.pipeline_rank_s * (strategy.tp - 1)
        if isinstance(layer.mlp, MixtureOfExperts):
            each += profile.host_expert_s
        host_s += each / 3
        again_s += own_s / 3 if strategy.recompute == Recompute.FULL else 0.0
    return host_s, 2 * host_s + again_s


def _add_times(
    context: Context,
    strategy: Strategy,
    stage: PlainStage,
    blocks: list[PlainBlock],
    ends: tuple[PlainBlock, PlainBlock],
) -> None:
    """Seconds of one microbatch; a DualPipe device sees half of all microbatches on either of its two stages."""
    share = 0.5 if strategy.schedule == Schedule.DUALPIPE else 1.0
    present = [blocks[kind] for kind in stage.layers]
    present += [block for block, here in zip(ends, (stage.embedding, stage.head), strict=True) if here]
    for block in present:
        stage.forward_s += share * block.forward_s
        stage.backward_s += share * block.backward_s
        stage.weight_s += share * block.weight_s
        for part, seconds in block.parts_s.items():
            stage.parts_s[part] = stage.parts_s.get(part, 0.0) + share * seconds
    # No pass is shorter than its launches.
    launch_forward_s, launch_backward_s = (share * seconds for seconds in launches_s(context, strategy, stage.layers))
    device_s = stage.pace_s
    rounds = strategy.vpp if strategy.schedule == Schedule.INTERLEAVED else 1
    here = [block for block, held in zip(ends, (stage.embedding, stage.head), strict=True) if held]
    ends_s = sum(block.forward_s for block in here), sum(block.backward_s for block in here)
    stage.forward_s = _by_lap_s(stage.forward_s, ends_s[0] * share, launch_forward_s, rounds)
    stage.backward_s = _by_lap_s(stage.backward_s, ends_s[1] * share, launch_backward_s, rounds)
    stage.weight_s = max(stage.weight_s, launch_forward_s)
    stage.gap_s = stage.pace_s - device_s


def _by_lap_s(device_s: float, ends_s: float, launches_s: float, rounds: int) -> float:
    """Seconds of one microbatch on the virtual stages of a device, one of which has embedding or head."""
    lap_s = (device_s - ends_s) / rounds
    return (rounds - 1) * max(lap_s, launches_s / rounds) + max(lap_s + ends_s, launches_s / rounds)


def _count_parameters(context: Context, strategy: Strategy, stage: PlainStage, device: PlainBlocks) -> None:
    """Parameters on one device of the stage."""
    model, tp = context.model, strategy.tp
    for kind in stage.layers:
        own = layer_parameters(model.layers[kind], model.hidden)
        stage.dense += (own.mixer + own.mlp_dense) / tp + own.router + own.replicated
        stage.expert += own.experts_total / (strategy.ep * strategy.etp)
    layers = stage.dense
    merged = context.framework.merged_products
    stage.tensors = stage.embedding + 2 * stage.head
    for kind in stage.layers:
        layer = model.layers[kind]
        stage.tensors += layer.norms + layer.attends * (2 if merged else 4)
        stage.tensors += layer.feeds_forward * (3 if layer.mlp.gated and not merged else 2)
    stage.table = table = device.padded_vocab() * model.hidden
    if stage.embedding:
        stage.dense += table + embedding_parameters(model) - model.vocab * model.hidden
    if stage.head:
        stage.dense += model.hidden + model.classes * model.hidden
        stage.dense += model.hidden**2 if model.head_transform else 0
        if model.mtp_layers:
            more = mtp_block_parameters(model).total - layer_parameters(model.layers[-1], model.hidden).total
            stage.dense += model.mtp_layers * more / tp
        if not (model.tied_embeddings and stage.embedding):
            stage.dense += table
    stage.outside = stage.dense - layers
    if model.tied_embeddings and stage.embedding != stage.head:
        stage.tied = table
