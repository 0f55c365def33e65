"""Combine pipeline and replica costs into step time, exposed communication and peak memory."""

import numpy as np

from forerun.simulator.core.replica_traffic import replica_traffic, replicated
from forerun.simulator.core.values import Candidates, Pipelines
from forerun.simulator.memory.peak import total_memory
from forerun.simulator.pipeline.closed_forms import exposed_p2p_s
from forerun.simulator.replicas.reduction import ReplicaCosts
from forerun.simulator.score_table import Floats, ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context


def step_scores(context: Context, pipelines: Pipelines, candidates: Candidates, replicas: ReplicaCosts) -> ScoreTable:
    """Return the scores of N candidates.

    Raises
    ------
    RequestError
        A time or a peak is not finite.
    """
    key = candidates.key
    time_s = _time(context, pipelines, candidates, replicas)
    memory = total_memory(context, pipelines.memory, key, replicas, candidates.replica)
    step_time_s = sum(time_s.values(), np.zeros(len(key)))
    if context.framework.allocator_stall:
        # Allocator retries happen only during passes that allocate, not during transfers, replica traffic or host time.
        stall_s = np.where(memory.pressed, context.framework.allocator_stall * pipelines.time.total_s[key], 0.0)
        time_s["host"] = time_s["host"] + stall_s
        step_time_s = step_time_s + stall_s
    if not (np.isfinite(step_time_s).all() and np.isfinite(memory.peak_bytes).all()):
        # A candidate with a time that is not finite would silently disappear from every ranking.
        raise RequestError(
            f"{np.count_nonzero(~np.isfinite(step_time_s + memory.peak_bytes))} of {len(key)} predictions for "
            f"{context.model.name} on {context.cluster.name} are not finite numbers; look for figures beyond reason in "
            "the cluster, the profile or the calibration"
        )
    return ScoreTable(
        step_time_s=step_time_s,
        time_s=time_s,
        peak_memory_bytes=memory.peak_bytes,
        allocated_bytes=memory.allocated_bytes,
        memory_bytes=memory.parts,
        peak_stage=memory.stage,
        fits=memory.peak_bytes <= context.memory_limit_bytes,
    )


def _time(context: Context, pipelines: Pipelines, candidates: Candidates, replicas: ReplicaCosts) -> dict[str, Floats]:
    """Compute the parts of the step time of N candidates."""
    # step = parts of the slowest stage + bubble + exposed transfers + exposed replica traffic + slowdown of passes by
    # replica traffic + optimizer + host.
    profile, key, replica = context.framework, candidates.key, candidates.replica
    crossed_s, idle_s = exposed_p2p_s(pipelines.time, key, candidates.p2p_s)
    traffic = replica_traffic(replicated(context, pipelines, candidates, replicas, crossed_s, idle_s), idle_s)
    microbatches = pipelines.microbatches[key]
    time_s = {name: values[key] for name, values in pipelines.parts_s.items()}
    time_s["pipeline"] = crossed_s
    time_s["bubble"] = (pipelines.time.total_s - pipelines.time.busy_s)[key]
    time_s["data"] = traffic.exposed_s + replicas.tied_s[replica] + context.overlap.lost_s(traffic.beside_s)
    time_s["optimizer"] = replicas.optimizer_s[replica] + microbatches * replicas.copy_s[replica]
    time_s["host"] = time_s["host"] + profile.host_step_s + profile.host_microbatch_s * microbatches
    return time_s
