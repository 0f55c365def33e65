"""Slow and plain: the score of one strategy, every stage visited, one number at a time.

The differential partner of ``forerun.simulator.score``. It shares the cost rules and the facts of ``forerun.spaces``
with it and nothing else: no table, no distinct keys, no representative stages.
"""

from dataclasses import dataclass

from plain_blocks import PlainBlock, PlainBlocks
from plain_laps import PlainChunk, lap_path_s

from forerun.simulator.costs import (
    adam_time_s,
    collective_time_s,
    memory_bound_time_s,
    point_to_point_time_s,
)
from forerun.simulator.score_table import MEMORY_PARTS, TIME_PARTS
from forerun.spaces.models import embedding_parameters, layer_parameters, mtp_block_parameters
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.strategies import Context, Placement, Recompute, Schedule, Strategy, layers_per_virtual_stage


@dataclass(kw_only=True)
class PlainStage:
    """One device of one pipeline stage."""

    layers: list[int]
    chunks: list[int]
    embedding: bool
    head: bool
    forward_s: float = 0.0
    backward_s: float = 0.0
    weight_s: float = 0.0
    gap_s: float = 0.0
    parts_s: dict[str, float]
    dense: float = 0.0
    expert: float = 0.0
    tied: float = 0.0
    memory_bytes: dict[str, float]
    idle_bytes: float = 0.0

    @property
    def pace_s(self) -> float:
        return self.forward_s + self.backward_s

    @property
    def live_bytes(self) -> float:
        return sum(self.memory_bytes.values())


@dataclass(kw_only=True)
class PlainScore:
    step_time_s: float
    time_s: dict[str, float]
    peak_memory_bytes: float
    memory_bytes: dict[str, float]
    peak_stage: int
    stages: list[PlainStage]


def plain_scores(context: Context, strategy: Strategy) -> list[PlainScore]:
    """Time and memory of one strategy.

    There is one answer for every stage that is the slowest up to rounding: stages that wait for their host all take
    the time of their launches, and each is made of other parts.
    """
    layers = [kind for kind, layer in enumerate(context.model.layers) for _ in range(layer.count)]
    device = PlainBlocks(context, strategy)
    blocks = [device.layer(layer) for layer in context.model.layers]
    ends = device.embedding(), device.head()
    microbatches = context.workload.global_batch / (strategy.dp * strategy.mbs)
    stages = [_stage(context, strategy, number, layers) for number in range(strategy.pp)]
    for number, stage in enumerate(stages):
        _add_times(context, strategy, stage, blocks, ends)
        _count_parameters(context, strategy, stage, device)
        _add_memory(context, strategy, stage, number, microbatches, blocks, ends)
    peak = max(range(strategy.pp), key=lambda number: stages[number].live_bytes)
    memory = _with_reserve(context, stages[peak])
    hop_s = _hop_s(context, strategy)
    scores = []
    bubbles_s = [_bubble_s(strategy, stages, stage, microbatches) for stage in stages]
    least_s = 0.0
    if strategy.schedule == Schedule.INTERLEAVED and len({held for stage in stages for held in stage.chunks}) > 1:
        least_s = lap_path_s(context, strategy, microbatches, _chunks(context, strategy, layers, blocks, ends))
    for slowest, own_bubble_s in _last(stages, bubbles_s, microbatches):
        bubble_s = max(own_bubble_s, least_s - microbatches * slowest.pace_s)
        time_s = _pipeline(context, strategy, slowest, microbatches) | {"bubble": bubble_s}
        time_s["pipeline"] *= hop_s
        more_s = 0.0
        if (
            strategy.pp > 1 and context.framework.overlap_pipeline
        ):  # however well hidden, a device sends one transfer after the other
            sends = strategy.vpp * microbatches * (1 if strategy.pp == 2 and strategy.vpp == 1 else 2)
            more_s = max(sends * hop_s - microbatches * slowest.pace_s - bubble_s - time_s["pipeline"], 0.0)
            time_s["pipeline"] += more_s
        pace_s = slowest.pace_s + more_s / microbatches
        time_s |= _replicas(context, strategy, stages, (pace_s, more_s / microbatches), bubble_s, microbatches)
        time_s["host"] += context.framework.host_step_s + context.framework.host_microbatch_s * microbatches
        if stages[peak].idle_bytes > _room(context, stages[peak]):
            time_s["host"] += context.framework.allocator_stall * sum(time_s.values())
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
        held += [len(context.model.layers) - 1] * context.model.mtp_layers if last else []
        present = [blocks[kind] for kind in held] + ([ends[0]] if number == 0 else []) + ([ends[1]] if last else [])
        launch = launches_s(context, strategy, held)
        forward_s = max(sum(block.forward_s for block in present), launch[0])
        backward_s = max(sum(block.backward_s for block in present), launch[1])
        chunks.append(PlainChunk(layers=held, head=last, forward_s=forward_s, backward_s=backward_s))
    return chunks


def _last(stages: list[PlainStage], bubbles_s: list[float], microbatches: float) -> list[tuple[PlainStage, float]]:
    """Stages (with their bubbles) that finish last up to rounding, those of different content once each."""
    finish = [microbatches * stage.pace_s + bubble_s for stage, bubble_s in zip(stages, bubbles_s, strict=True)]
    found = {}
    for stage, bubble_s, end_s in zip(stages, bubbles_s, finish, strict=True):
        if end_s >= max(finish) * (1 - 1e-11):
            found[(*stage.layers, stage.embedding, stage.head)] = stage, bubble_s
    return list(found.values())


def _stage(context: Context, strategy: Strategy, number: int, layers: list[int]) -> PlainStage:
    """What device-stage ``number`` holds; MTP blocks stand behind the last layer."""
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
                held += [len(context.model.layers) - 1] * context.model.mtp_layers
    return PlainStage(layers=held, chunks=chunks, embedding=embedding, head=head, parts_s={}, memory_bytes={})


def launches_s(context: Context, strategy: Strategy, layers: list[int]) -> tuple[float, float]:
    """Seconds of the host for some layers, forward and backward: a third of a layer's launches are its forward pass."""
    profile, host_s, again_s = context.framework, 0.0, 0.0
    for kind in layers:
        each = profile.host_layer_s + (profile.host_rank_s * (strategy.tp - 1) if strategy.pp > 1 else 0.0)
        each += profile.host_expert_s if isinstance(context.model.layers[kind].mlp, MixtureOfExperts) else 0.0
        host_s += each / 3
        again_s += profile.host_layer_s / 3 if strategy.recompute == Recompute.FULL else 0.0
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
    stage.forward_s = max(stage.forward_s, launch_forward_s)
    stage.backward_s = max(stage.backward_s, launch_backward_s)
    stage.weight_s = max(stage.weight_s, launch_forward_s)
    stage.gap_s = stage.pace_s - device_s


def _count_parameters(context: Context, strategy: Strategy, stage: PlainStage, device: PlainBlocks) -> None:
    """Parameters on one device of the stage."""
    model, tp = context.model, strategy.tp
    for kind in stage.layers:
        own = layer_parameters(model.layers[kind], model.hidden)
        stage.dense += (own.attention + own.mlp_dense) / tp + own.router + own.replicated
        stage.expert += own.experts_total / (strategy.ep * strategy.etp)
    table = device.padded_vocab() * model.hidden
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
    if model.tied_embeddings and stage.embedding != stage.head:
        stage.tied = table


def _kept_chunks(chunks: list[int], pp: int, warm_up: int) -> float:
    """Layers that a device keeps at most under the interleaved schedule, played pass by pass for two rounds."""
    order = [layers for layers in chunks for _ in range(pp)] * 5
    back = [layers for layers in reversed(chunks) for _ in range(pp)] * 2
    kept = most = sum(order[:warm_up])
    for done, layers in enumerate(back):
        kept += order[warm_up + done] - layers
        most = max(most, kept)
    return most


def _in_flight(strategy: Strategy, number: int, microbatches: float, chunks: list[int]) -> float:
    """Microbatches whose activations of all its layers a device keeps at most."""
    pp, vpp = strategy.pp, strategy.vpp
    match strategy.schedule:
        case Schedule.GPIPE:
            kept: float = microbatches
        case Schedule.INTERLEAVED:  # warm-up chunks and one more, each a vpp-th of the device's layers
            kept = _kept_chunks(chunks, pp, 2 * (pp - number - 1) + (vpp - 1) * pp + 1) / max(sum(chunks), 1)
        case Schedule.ZB_H1:
            kept = pp
        case Schedule.ZB_V:  # 2 pp chunks of half
            kept = 2 * pp / 2
        case Schedule.DUALPIPE:  # pp + 1 stages of the two
            kept = (pp + 1) / 2
        case _:
            kept = pp - number
    return min(kept, microbatches)


def _add_memory(
    context: Context,
    strategy: Strategy,
    stage: PlainStage,
    number: int,
    microbatches: float,
    blocks: list[PlainBlock],
    ends: tuple[PlainBlock, PlainBlock],
) -> None:
    """Bytes of one device of the stage."""
    profile, model, half = context.framework, context.model, context.workload.precision not in ("fp32", "tf32")
    width, gradient = 2.0 if half else 4.0, profile.held_gradient_bytes(context.workload.precision)
    states = profile.optimizer_bytes + (profile.master_bytes if half else 0.0)
    replicas = strategy.dp * strategy.cp
    expert_replicas = replicas * strategy.tp / (strategy.ep * strategy.etp)

    def share(from_zero: int) -> float:
        if strategy.zero < from_zero:
            return stage.dense + stage.expert
        return stage.dense / replicas + stage.expert / expert_replicas

    kept = sum(blocks[kind].kept_bytes for kind in stage.layers) + (ends[0].kept_bytes if stage.embedding else 0.0)
    bucket = max(profile.bucket_bytes, profile.bucket_rank_bytes * replicas)
    buffers = profile.bucket_copies * bucket if replicas > 1 else 0.0
    if strategy.zero == 3:  # two layers gathered
        buffers += 2 * width * (stage.dense + stage.expert) / (max(model.layer_count, 1) / strategy.pp)
    losses = microbatches if strategy.schedule == Schedule.GPIPE else 1
    stage.memory_bytes = {
        "parameters": share(3) * width,
        "gradients": share(2) * gradient,
        "optimizer": share(1) * states,
        "activations": kept * _in_flight(strategy, number, microbatches, stage.chunks),
        "working": max((blocks[kind].working_bytes for kind in stage.layers), default=0.0),
        "logits": losses * ends[1].loss_bytes if stage.head else 0.0,
        "buffers": buffers,
    }
    stage.idle_bytes = sum(blocks[kind].idle_bytes for kind in stage.layers)


def _fixed(context: Context, stage: PlainStage) -> float:
    """Bytes outside of live tensors whatever happens."""
    profile = context.framework
    return profile.context_bytes + profile.communicator_bytes + profile.fragmentation * stage.live_bytes


def _room(context: Context, stage: PlainStage) -> float:
    """Bytes that are left for idle buffers; the allocator stalls where they do not suffice."""
    return max(context.cluster.device.memory_bytes - stage.live_bytes - _fixed(context, stage), 0.0)


def _with_reserve(context: Context, stage: PlainStage) -> dict[str, float]:
    """Memory of a stage with what lies outside of live tensors; idle buffers stay only while there is room."""
    idle = min(stage.idle_bytes, _room(context, stage))
    return stage.memory_bytes | {"reserve": _fixed(context, stage) + idle}


def _bubble_s(strategy: Strategy, stages: list[PlainStage], slowest: PlainStage, microbatches: float) -> float:
    """Seconds for which ``slowest`` waits in a step if it is the stage that decides."""
    pp, m, schedule = strategy.pp, microbatches, strategy.schedule
    f, b, w = slowest.forward_s, slowest.backward_s, slowest.weight_s
    i = b - w  # input gradients
    paces = [stage.pace_s for stage in stages]
    others = sum(paces) - max(paces)
    match schedule:
        case Schedule.ONE_F_ONE_B:
            # Of equal stages that which waits longest; its neighbours feed and drain it.
            waits = []
            for number, stage in enumerate(stages):
                if stage.forward_s == f and stage.backward_s == b:
                    behind, flight = sum(paces[number + 1 :]), min(pp - 1 - number, m - 1)
                    fill, drain = max(0.0, behind - flight * f), max(0.0, behind - flight * b)
                    wait = fill + drain if m > pp - number else max(fill, drain)
                    waits.append(sum(paces[:number]) + wait)
            return max(waits)
        case Schedule.INTERLEAVED:
            return others / strategy.vpp
        case Schedule.GPIPE:
            slow_f, slow_b = (max(getattr(stage, name) for stage in stages) for name in ("forward_s", "backward_s"))
            return others + (m - 1) * (slow_f + slow_b - f - b)
        case Schedule.ZB_H1:
            return max((pp - 1) * (f + i) - min(pp - 1, m - 1) * w, (pp - 1) * max(f, i))
        case Schedule.ZB_V:
            longest = max(f, i, w)
            open_s = max((longest - f) + (longest - i) + (longest - w), f)
            way_s = sum(stage.forward_s / 4 + (stage.backward_s - stage.weight_s) / 2 for stage in stages) / pp
            missing = max(2 * pp - 1 - m, 0)
            alike_s = m * (sum(paces) / pp - slowest.pace_s) + missing * way_s
            return (pp - 1) / 2 * open_s + max(alike_s, 0.0)
        case Schedule.DUALPIPE:
            return max(pp / 2 - 1, 0.0) * max((f + b) + b - 3 * w, 0.0)
    return others


def _pipeline(context: Context, strategy: Strategy, slowest: PlainStage, microbatches: float) -> dict[str, float]:
    """Parts of the pipelined time; "pipeline" is the number of hops between stages on the critical path."""
    hops = _hops(context, strategy, microbatches) if strategy.pp > 1 else 0.0
    names = ("compute", "recompute", "tensor", "context", "expert")
    parts = {part: microbatches * slowest.parts_s.get(part, 0.0) for part in names}
    return parts | {"pipeline": hops, "host": microbatches * slowest.gap_s}


def _hops(context: Context, strategy: Strategy, m: float) -> float:
    """Transfers that a step of a pipeline of equal stages waits for, as the event engine finds them."""
    pp, vpp, schedule, overlap = strategy.pp, strategy.vpp, strategy.schedule, context.framework.overlap_pipeline
    match schedule:
        case Schedule.INTERLEAVED:
            crossings = 2.0 * (pp * vpp - 1)
            return crossings if overlap else max(crossings, (2 * vpp - 1) * m + 2 * pp - 3)
        case Schedule.GPIPE:
            return 2.0 * (pp - 1) + (0 if overlap else 2 * (m - 1))
        case Schedule.ZB_V:
            between = 5 * pp - 7 if overlap else (2 * m + 2 if pp == 2 else 4 * m + pp - 3)
        case Schedule.DUALPIPE if overlap:
            between = 0
        case Schedule.ZB_H1 if overlap:
            between = 4 * (pp - 1)
        case Schedule.ONE_F_ONE_B if overlap:
            between = 2 * (pp - 1) * m / pp + 2 * (pp - 2)
        case _:
            between = m + 1 if pp == 2 else 2 * m + 2 * pp - 5
    return max(between, 2.0 * (pp - 1))


def _hop_s(context: Context, strategy: Strategy) -> float:
    """Seconds of one transfer between stages."""
    if strategy.pp == 1:
        return 0.0
    tp, width = strategy.tp, 4.0 if context.workload.precision in ("fp32", "tf32") else 2.0
    size = strategy.mbs * context.workload.seq_len / strategy.cp * context.model.hidden * width
    stride = tp * strategy.cp * (1 if strategy.placement == Placement.TP_CP_EP_PP_DP else strategy.dp)
    scattered = strategy.sp or context.framework.scatters_hops
    seconds = float(point_to_point_time_s(context.cluster, size / tp if scattered else size, stride))
    if not strategy.sp and scattered:
        seconds += float(collective_time_s(context.cluster, "all_gather", size, tp, 1))
    return seconds + context.framework.pipeline_hop_s


def _replicas(
    context: Context,
    strategy: Strategy,
    stages: list[PlainStage],
    pace: tuple[float, float],
    bubble_s: float,
    microbatches: float,
) -> dict[str, float]:
    """Seconds of gradient reduction, parameter gather, tied tables and optimizer that stand in the step."""
    profile, cluster, half = context.framework, context.cluster, context.workload.precision not in ("fp32", "tf32")
    replicas = strategy.dp * strategy.cp
    expert_replicas = replicas * strategy.tp / (strategy.ep * strategy.etp)
    apart = strategy.pp if strategy.placement == Placement.TP_CP_EP_PP_DP else 1
    groups = [(max(stage.dense for stage in stages), replicas, strategy.tp * apart)]
    if context.moe:
        most = max(stage.expert for stage in stages)
        groups.append((most, expert_replicas, strategy.ep * strategy.etp * apart))

    def one_pass(collective: str, wire: float) -> float:
        total = 0.0
        for parameters, members, stride in groups:
            if members > 1:
                bucket = max(profile.bucket_bytes, profile.bucket_rank_bytes * members)
                count = max(round(parameters * wire / bucket), 1)
                each = collective_time_s(cluster, collective, parameters * wire / count, members, stride)  # type: ignore[arg-type]
                total += count * float(each)
        return total

    reduce_s = one_pass("reduce_scatter" if strategy.zero else "all_reduce", profile.reduce_bytes if half else 4.0)
    gather_s = one_pass("all_gather", 2.0 if half else 4.0) if strategy.zero else 0.0
    (pace_s, wait_s), first = pace, stages[0]
    whole_s = microbatches * pace_s + bubble_s
    laps = strategy.vpp if strategy.schedule == Schedule.INTERLEAVED else 1
    lap = min(strategy.pp, microbatches) / laps

    def open_s(traffic_s: float, room_s: float, pass_s: float) -> float:
        """What is not yet through when it is needed: virtual stage after virtual stage, each a lap apart."""
        ends = [(turn + 1) / laps * traffic_s - room_s / laps - turn * lap * pass_s for turn in range(laps)]
        return max(0.0, *ends)

    if strategy.zero >= 2:
        reduce_s *= microbatches
        covered = min(reduce_s, whole_s - microbatches * first.forward_s)
    else:
        covered = reduce_s - open_s(reduce_s, pace_s - first.forward_s, first.backward_s + wait_s)
    covered *= profile.overlap_gradients
    room_s = (whole_s - covered) / (microbatches if strategy.zero == 2 else 1)
    if strategy.zero == 3:
        gather_s = hidden = 2 * microbatches * gather_s
    else:
        hidden = gather_s - open_s(gather_s, pace_s - first.backward_s, first.forward_s + wait_s)
    hidden = profile.overlap_parameters * min(hidden, room_s)
    data_s = reduce_s - covered + gather_s - hidden + (profile.overlap_slowdown - 1) * (covered + hidden)
    data_s += _tied_s(context, strategy, max(stage.tied for stage in stages))
    updated = [stage.dense + stage.expert for stage in stages]
    if strategy.zero:
        updated = [stage.dense / replicas + stage.expert / expert_replicas for stage in stages]
    device, own = cluster.device, max(updated)
    adam = adam_time_s(device, own, gradient_bytes=4.0, master_weights=half, state_bytes=profile.optimizer_bytes)
    return {"data": data_s, "optimizer": float(adam) + float(memory_bound_time_s(device, 4.0 * own))}


def _tied_s(context: Context, strategy: Strategy, tied: float) -> float:
    """Seconds to add up the gradients of the two copies of a tied token table."""
    if strategy.pp == 1 or tied == 0:
        return 0.0
    stride = strategy.tp * strategy.cp * (strategy.pp - 1)
    if strategy.placement != Placement.TP_CP_EP_PP_DP:
        stride *= strategy.dp
    half = context.workload.precision not in ("fp32", "tf32")
    wire = context.framework.reduce_bytes if half else 4.0
    return float(collective_time_s(context.cluster, "all_reduce", wire * tied, 2, stride))
