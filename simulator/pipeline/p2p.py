"""Seconds of a microbatch's transfer from one pipeline stage to the next."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs import collective_time_s, point_to_point_time_s
from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, Placement, StrategyTable

P2P_AXES = ("gpus", "pp", "tp", "cp", "mbs", "sp", "placement")
"""Axes of the transfer between two stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class P2pEnd:
    """Division of transferred activations on N stages, shape N each; ``sp`` is 0 or 1."""

    tp: Floats
    dp: Floats
    mbs: Floats
    sp: Floats


def p2p_time_s(context: Context, table: StrategyTable) -> Floats:
    """Return the seconds of one transfer of a microbatch's activations to the next stage; shape N, 0 where pp is 1.

    Every tensor rank sends its part. Without sequence parallelism the parts are gathered after the transfer
    (Megatron-LM's scatter-gather, arXiv 2104.04473, section 4.1; DeepSpeed partitions likewise).
    """
    tp, cp, mbs, sp, dp, pp = (table.column(axis).astype(np.float64) for axis in ("tp", "cp", "mbs", "sp", "dp", "pp"))
    if not np.any(pp > 1):
        return np.zeros_like(pp)
    # Megatron's default puts replicas between stages, so all dp * cp * tp devices of a stage are consecutive.
    near = table.column("placement") == Placement.TP_CP_EP_PP_DP
    end = P2pEnd(tp=tp, dp=dp, mbs=mbs, sp=sp)
    return np.where(pp > 1, p2p_between_s(context, end, end, cp, near, pp), 0.0)


def p2p_between_s(context: Context, sender: P2pEnd, receiver: P2pEnd, cp: Floats, near: Floats, pp: Floats) -> Floats:
    """Return the seconds of one transfer between two stages of ``pp`` with possibly different degrees; shape N.

    The number of messages per device is the ratio of the degrees; ``near``: stages, not replicas, are neighbours in
    device numbering. Where several stages share a node and the pipeline leaves it, a transfer is the mean of transfers
    inside and between nodes, weighted by the number of each that the step waits for.
    """
    stride = sender.tp * cp * np.where(near, 1.0, sender.dp)
    sent, gathered = p2p_parts_s(context, sender, receiver, cp, stride)
    away = _away(context, stride, pp)
    if np.any(away):
        # Only the border stage sends beyond its node: its devices share the idle bandwidth of the others.
        inside = context.cluster.levels[0].size
        ends, reach = (context, sender, receiver, cp), np.maximum(stride, inside)
        shared, _ = p2p_parts_s(*ends, reach, share=np.minimum(stride / inside, 1.0))
        alone, _ = p2p_parts_s(*ends, reach, lone=True)
        sent = sent + away * np.maximum(np.maximum(shared, alone) - sent, 0.0)
    return np.asarray(sent + gathered + context.framework.p2p_fixed_s)


def _away(context: Context, stride: Floats, pp: Floats) -> Floats:
    """Return the share of exposed transfers that leave the innermost links, where others do not.

    Stages take ``stride`` devices each. In the steady state with blocking transfers the slowest stage sets the pace,
    with one neighbour on another node and one on its own; sends during computation are exposed equally at all stages.
    """
    inside = float(context.cluster.levels[0].size) if context.cluster.levels else np.inf
    # pp * stride / inside consecutive nodes have one border fewer than nodes.
    borders = np.ceil(np.maximum(pp * stride / inside, 1.0)) - 1.0
    share = np.where(stride < inside, borders / np.maximum(pp - 1.0, 1.0), 0.0)
    if context.framework.overlap_pipeline:
        return np.asarray(share)
    return np.asarray(np.where((share > 0) & (share < 0.5), 0.5, share))


def p2p_parts_s(
    context: Context,
    sender: P2pEnd,
    receiver: P2pEnd,
    cp: Floats,
    stride: Floats,
    share: Floats | float = 1.0,
    lone: bool = False,
) -> tuple[Floats, Floats]:
    """Return the seconds of one transfer to the device at distance ``stride``, and of the gather after it; shape N.

    ``share``: sent share of every message; 0.0 gives the latency of a transfer. ``lone``: no other device sends.
    """
    tokens = context.workload.seq_len / cp * context.model.hidden * activation_bytes(context.workload.precision)
    sizes, parts = [], []
    for end in (sender, receiver):
        parts.append(np.where((end.sp == 1) | context.framework.scatters_p2p, end.tp, 1.0))
        sizes.append(end.mbs * tokens)
    # With unequal degrees a device of the coarser side exchanges with several of the finer side, in turn over one port;
    # the coarser side sends or receives more, and it determines the time.
    messages = np.maximum(sender.tp, receiver.tp) / np.minimum(sender.tp, receiver.tp)
    part = np.maximum(sizes[0] / parts[0], sizes[1] / parts[1])
    sent = messages * point_to_point_time_s(context.cluster, share * part / messages, stride, lone=lone)
    gathered = collective_time_s(context.cluster, "all_gather", sizes[1], receiver.tp, 1.0)
    return sent, np.where((receiver.sp == 1) | (parts[1] == 1), 0.0, gathered)
