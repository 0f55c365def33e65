"""A mixture of splits as a row beside those of uniform ones."""

from dataclasses import replace

from forerun.search.opgraph.bottleneck import bottlenecks
from forerun.search.opgraph.rows import GIB, GraphRow
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.memory import USABLE
from forerun.simulator.opgraph.mixture import score_mixture
from forerun.spaces.opgraph.mixture import Mixture


def mixture_row(context: GraphContext, mixture: Mixture, batch: int) -> GraphRow:
    """Return what a mixture reaches.

    Raises:
        RequestError: it is not legal, or an operator of the model has no iteration space.
    """
    score = score_mixture(context, mixture, batch)
    limit = USABLE * context.cluster.device.memory_bytes
    row = GraphRow(
        split=mixture.default,
        gpus=mixture.devices,
        global_batch=batch,
        step_time_s=score.step_s,
        samples_per_s=batch / score.step_s,
        breakdown_s=score.phases,
        memory_gib={name: size / GIB for name, size in score.memory_bytes.items()},
        peak_memory_gib=score.peak_bytes / GIB,
        memory_limit_gib=limit / GIB,
        fits=score.peak_bytes <= limit,
        hidden_s=score.hidden_s,
        repeated_s=0.0,
        idle_s=0.0,
        host_s=max(score.host_s - score.device_s, 0.0),
        loading_s=0.0,
        mixture=str(mixture),
        usd_per_gpu_hour=context.cluster.usd_per_device_hour,
    )
    return replace(row, bottleneck=bottlenecks(context, row)[0].name)
