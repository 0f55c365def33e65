"""Bytes of one device, one stage at a time: the memory of the plain reference."""

from plain_blocks import PlainBlock
from plain_device import recipe_word
from plain_stage import PlainStage

from forerun.simulator.costs import INPUT_BYTES
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.strategies import Context, Schedule, Strategy


def reduced_once(profile: FrameworkProfile, strategy: Strategy) -> bool:
    """Whether gradients are reduced once per step, or once per round of an interleaved pipeline."""
    sync = profile.gradient_sync
    return strategy.zero < 2 or sync == "step" or (sync in ("pipeline", "round") and strategy.pp > 1)


def parameter_widths(context: Context) -> tuple[float, float]:
    """Bytes of a parameter of a layer as it is kept, and as it is gathered."""
    profile, precision = context.framework, context.workload.precision
    if precision not in ("fp8", "mxfp8", "fp4", "nvfp4"):
        return (4.0, 4.0) if precision in ("fp32", "tf32") else (2.0, 2.0)
    recipe = recipe_word(context)
    each = {"block": 1 + 4 / 128**2}.get(recipe, INPUT_BYTES[precision])
    kept = each if one_layout(context) else 2 * each
    if profile.eight_bit_parameters and precision not in ("fp4", "nvfp4"):
        return kept, 2.0 if recipe == "mx" else each
    return 2.0 + (kept if profile.eight_bit_copies else 0.0), 2.0


def one_layout(context: Context) -> bool:
    """Whether tensor cores read eight-bit weights of one scale in either layout."""
    blackwell = "Blackwell" in context.cluster.device.architecture
    return blackwell and recipe_word(context) in ("delayed", "current")


def _kept_chunks(chunks: list[int], pp: int, warm_up: int) -> float:
    """Layers that a device keeps at most under the interleaved schedule, played pass by pass for two rounds."""
    order = [layers for layers in chunks for _ in range(pp)] * 5
    back = [layers for layers in reversed(chunks) for _ in range(pp)] * 2
    kept = most = sum(order[:warm_up])
    for done, layers in enumerate(back):
        kept += order[warm_up + done] - layers
        most = max(most, kept)
    return most


def _in_flight(strategy: Strategy, number: int, microbatches: float, chunks: list[int], ahead: int) -> float:
    """Microbatches whose activations of all its layers a device keeps at most."""
    pp, vpp = strategy.pp, strategy.vpp
    match strategy.schedule:
        case Schedule.GPIPE:
            kept: float = microbatches
        case Schedule.INTERLEAVED:  # warm-up chunks and one more, each a vpp-th of the device's layers
            kept = _kept_chunks(chunks, pp, 2 * (pp - number - 1) + (vpp - 1) * pp + 1 + ahead) / max(sum(chunks), 1)
        case Schedule.ZB_H1:
            kept = pp
        case Schedule.ZB_V:  # 2 pp chunks of half
            kept = 2 * pp / 2
        case Schedule.DUALPIPE:  # pp + 1 stages of the two
            kept = (pp + 1) / 2
        case _:
            kept = pp - number + ahead
    return min(kept, microbatches)


def add_memory(
    context: Context,
    strategy: Strategy,
    stage: PlainStage,
    number: int,
    microbatches: float,
    blocks: list[PlainBlock],
    ends: tuple[PlainBlock, PlainBlock],
    dummies: float,
) -> None:
    """Bytes of one device of the stage; ``dummies`` of its gradients that nothing reads."""
    profile, model, half = context.framework, context.model, context.workload.precision not in ("fp32", "tf32")
    width, gradient = 2.0 if half else 4.0, profile.held_gradient_bytes(context.workload.precision)
    if strategy.zero <= profile.main_grad_to_zero and context.workload.precision not in ("fp16", "fp32", "tf32"):
        gradient += 4.0
    kept_width, gathered_width = parameter_widths(context)
    states = profile.optimizer_bytes + (profile.master_bytes if half else 0.0)
    replicas = strategy.dp * strategy.cp
    expert_replicas = replicas * strategy.tp / (strategy.ep * strategy.etp)

    def share(from_zero: int, dense: float = stage.dense, expert: float = stage.expert) -> float:
        if strategy.zero < from_zero:
            return dense + expert
        sets = replicas / strategy.shard if strategy.shard else 1
        return sets * (dense / replicas + expert / expert_replicas)

    sync, rounds = profile.gradient_sync, strategy.vpp if strategy.schedule == Schedule.INTERLEAVED else 1
    gradients = share(2)
    if reduced_once(profile, strategy):
        gradients = share(4) if sync != "round" or rounds == 1 or strategy.zero < 2 else share(2) + share(4) / rounds
    kept = sum(blocks[kind].kept_bytes for kind in stage.layers) + (ends[0].kept_bytes if stage.embedding else 0.0)
    bucket = max(profile.bucket_bytes, profile.bucket_rank_bytes * replicas)
    buffers = 0.0
    if replicas > 1:
        buffers = profile.bucket_copies * bucket + profile.bucket_gradient_bytes * (stage.dense + stage.expert)
    if strategy.zero == 3:  # two layers gathered, and one that is copied out
        whole = gathered_width * (stage.dense + stage.expert)
        two = (3 if profile.unit_parameters == "each" else 2) * whole / (max(model.layer_count, 1) / strategy.pp)
        two = max(two, gathered_width * min(stage.dense + stage.expert, profile.live_parameters))
        buffers += two
        if profile.gradient_sync == "pipeline" and strategy.pp > 1:  # other virtual stages whole; this one at the end
            each = whole / strategy.vpp
            buffers += (min(strategy.vpp, 3) - 1) * each + max(max(each - two, 0.0) - kept / strategy.vpp, 0.0)
    buffers += dummies + profile.workspace_bytes
    in_flight = _in_flight(strategy, number, microbatches, stage.chunks, profile.combined_passes)
    losses = microbatches if strategy.schedule == Schedule.GPIPE else min(1 + profile.combined_passes, microbatches)
    working = max((blocks[kind].working_bytes for kind in stage.layers), default=0.0)
    logits = losses * ends[1].loss_bytes if stage.head else 0.0
    later = logits if profile.holds_logits or profile.graphs == "layers" else logits * (losses - 1) / losses
    at_loss = logits > later + working
    stage.memory_bytes = {
        "parameters": share(
            3, width * stage.outside + kept_width * (stage.dense - stage.outside), kept_width * stage.expert
        ),
        "gradients": gradients * gradient,
        "optimizer": share(1) * states,
        "activations": kept * in_flight,
        "working": 0.0 if at_loss else working,
        "logits": logits if at_loss else later,
        "buffers": buffers,
    }
    gathered = max(in_flight - 2, 0) if profile.gathers_ahead and strategy.pp > 1 else 1
    stage.idle_bytes = gathered * sum(blocks[kind].idle_bytes for kind in stage.layers)
    if strategy.pp > 1:
        moving = sum(stage.memory_bytes[part] for part in ("activations", "working", "logits"))
        stage.idle_bytes += profile.pipeline_idle * moving


def _fixed(context: Context, stage: PlainStage) -> float:
    """Bytes outside of live tensors whatever happens."""
    profile = context.framework
    moving = sum(stage.memory_bytes[part] for part in ("activations", "working", "logits"))
    lost = profile.fragmentation * (stage.live_bytes if profile.states_fragment else moving)
    return profile.context_bytes + profile.communicator_bytes + lost


def room_bytes(context: Context, stage: PlainStage) -> float:
    """Bytes that are left for idle buffers; the allocator stalls where they do not suffice."""
    return max(context.cluster.device.memory_bytes - stage.live_bytes - _fixed(context, stage), 0.0)


def with_reserve(context: Context, stage: PlainStage) -> dict[str, float]:
    """Memory of a stage with what lies outside of live tensors; idle buffers stay only while there is room."""
    idle = min(stage.idle_bytes, room_bytes(context, stage))
    return stage.memory_bytes | {"reserve": _fixed(context, stage) + idle}
