"""Seconds that a microbatch takes from one pipeline stage to the next."""

import numpy as np

from forerun.simulator.costs import collective_time_s, point_to_point_time_s
from forerun.simulator.score_table import Floats
from forerun.simulator.shard import activation_bytes
from forerun.spaces.strategies import Context, Placement, StrategyTable

HOP_AXES = ("gpus", "pp", "tp", "cp", "mbs", "sp", "placement")
"""Axes that the transfer between two stages depends on."""


def hop_time_s(context: Context, table: StrategyTable) -> Floats:
    """Return the seconds of one transfer of a microbatch's activations to the next stage; shape N, 0 where pp is 1.

    Every tensor rank sends its part. Without sequence parallel the whole is gathered again behind the hop
    (Megatron-LM's scatter-gather, arXiv 2104.04473, section 4.1; DeepSpeed partitions likewise).
    """
    tp, cp, mbs, sp, dp, pp = (table.column(axis).astype(np.float64) for axis in ("tp", "cp", "mbs", "sp", "dp", "pp"))
    if not np.any(pp > 1):
        return np.zeros_like(pp)
    near = table.column("placement") == Placement.TP_CP_EP_PP_DP
    size = mbs * context.workload.seq_len / cp * context.model.hidden * activation_bytes(context.workload.precision)
    parts = np.where((sp == 1) | context.framework.scatters_hops, tp, 1.0)
    sent = point_to_point_time_s(context.cluster, size / parts, np.where(near, tp * cp, tp * cp * dp))
    gathered = collective_time_s(context.cluster, "all_gather", size, tp, 1.0)
    sent = sent + np.where((sp == 1) | (parts == 1), 0.0, gathered)
    return np.where(pp > 1, sent + context.framework.pipeline_hop_s, 0.0)
