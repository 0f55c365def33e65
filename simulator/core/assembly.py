"""From pipelines and replicas to the step: what every candidate's parts are, what of them hides, and what fits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.memory.peak import StageMemory, total_memory
from forerun.simulator.pipeline.closed_forms import PipelineTime, exposed_p2p_s
from forerun.simulator.replicas.reduction import ReplicaCosts, reduces_each, stays_whole
from forerun.simulator.replicas.sharded import (
    HidingPasses,
    Loops,
    looped_traffic_s,
    sharded_gradients_s,
    sharded_parameters_s,
)
from forerun.simulator.score_table import Floats, ScoreTable
from forerun.spaces.clusters.cluster import Overlap
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """S pipelines; every array has shape S."""

    time: PipelineTime
    parts_s: dict[str, Floats]
    """Seconds of a step by part (``TIME_PARTS``), communication exposed."""
    forward_s: Floats
    """Forward pass of one microbatch on the first stage."""
    backward_s: Floats
    """Backward pass of one microbatch on the first stage."""
    before_gradients_s: Floats
    """Seconds of the last microbatch before the first stage's gradients start to be complete."""
    gradient_pass_s: Floats
    """The first stage's pass that completes gradients."""
    passes: HidingPasses
    """What traffic of replicas can overlap."""
    microbatches: Floats
    """Of a replica and step."""
    pp: Floats
    """Pipeline ranks."""
    memory: StageMemory
    """Activations, [R, S]."""
    loops: Loops | None = None
    """Virtual stages one by one; None where no device has several."""


def step_scores(
    context: Context,
    pipelines: Pipelines,
    key: NDArray[np.intp],
    replicas: ReplicaCosts,
    replica: NDArray[np.intp],
    zero: Floats | NDArray[np.int64],
    p2p_s: Floats,
    table: Floats,
) -> ScoreTable:
    """Return the scores of N candidates; ``key`` and ``replica`` are their columns in the two tables, ``table`` [D] is
    the token embedding's share of the largest stage's parameters (used where stages are interleaved); ``zero`` [N]:
    stage of sharding.

    Raises:
        RequestError: a time or a peak is no finite number.
    """
    time_s = _time(context, pipelines, key, replicas, replica, zero, p2p_s, table)
    memory = total_memory(context, pipelines.memory, key, replicas, replica)
    step_time_s = sum(time_s.values(), np.zeros(len(key)))
    if context.framework.allocator_stall:
        # It frees and asks again where passes allocate; transfers, replicas and the host's own turns allocate nothing.
        stall_s = np.where(memory.pressed, context.framework.allocator_stall * pipelines.time.total_s[key], 0.0)
        time_s["host"] = time_s["host"] + stall_s
        step_time_s = step_time_s + stall_s
    if not (np.isfinite(step_time_s).all() and np.isfinite(memory.peak_bytes).all()):
        # A candidate without a time would vanish from every ranking, and nobody would know.
        raise RequestError(
            f"{np.count_nonzero(~np.isfinite(step_time_s + memory.peak_bytes))} of {len(key)} predictions for "
            f"{context.model.name} on {context.cluster.name} are no finite numbers; look for figures beyond reason in "
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


def _time(
    context: Context,
    pipelines: Pipelines,
    key: NDArray[np.intp],
    replicas: ReplicaCosts,
    replica: NDArray[np.intp],
    zero: Floats | NDArray[np.int64],
    p2p_s: Floats,
    table: Floats,
) -> dict[str, Floats]:
    """Return the parts of the step time of N candidates."""
    profile, overlap = context.framework, context.overlap
    hidden_per_s = overlap.hidden_per_s
    microbatches = pipelines.microbatches[key]
    # Gradient traffic overlaps the first stage's last backward, its idle time before the slowest stage, and the rounds
    # of its other virtual stages. Traffic and passes slow each other down; idle time slows nothing.
    crossed_s, idle_s = exposed_p2p_s(pipelines.time, key, p2p_s)
    wait_s = idle_s / microbatches
    pace_s = pipelines.time.busy_s[key] / microbatches + wait_s
    forward_s, backward_s = pipelines.forward_s[key], pipelines.backward_s[key]
    reduce_s, gather_s = replicas.reduce_s[replica], replicas.gather_s[replica]
    gather_may_hide_s, reduce_may_hide_s = profile.overlap_parameters * gather_s, profile.overlap_gradients * reduce_s
    share = 1 / pipelines.time.rounds
    rounds = share[key], ((1 - share) * pipelines.time.group)[key]
    reduce_hides_s, beside = _hidden(
        rounds,
        reduce_may_hide_s,
        pace_s - pipelines.before_gradients_s[key],
        pipelines.gradient_pass_s[key],
        backward_s,
        wait_s,
        hidden_per_s,
    )
    # What hides the reduction cannot hide the gather of sharded parameters.
    passes_s = microbatches * (forward_s + backward_s)
    window = pipelines.time.total_s[key] + idle_s + passes_s * (hidden_per_s - 1) - reduce_hides_s
    hidden, gather_beside = _hidden(
        rounds, gather_may_hide_s, pace_s - backward_s, forward_s, forward_s, wait_s, hidden_per_s
    )
    hidden = np.minimum(hidden, window)
    gather_beside = np.minimum(hidden, gather_beside)
    alone_s = reduce_s - reduce_hides_s
    # Behind the last pass, traffic of earlier virtual stages takes its time whether passes were late or not.
    queue_s = np.maximum(alone_s - reduce_s * rounds[0], 0.0)
    crossing_s = _crossing_lost_s(overlap, rounds[0], pipelines.pp[key], reduce_may_hide_s, backward_s)
    alone_s += np.where(zero < 2, np.maximum(crossing_s - queue_s - overlap.lost_s(beside), 0.0), 0.0)
    each = reduces_each(profile, zero, pipelines.pp[key])
    two, two_looped = _by_rounds(rounds[0], each & (zero == 2))
    three, three_looped = _by_rounds(rounds[0], zero == 3)
    # What is reduced once per step comes beside what its microbatches gather.
    once = (zero == 3) & ~each
    once_s, once_beside = np.where(once, alone_s, 0.0), np.where(once, beside, 0.0)
    each_s = np.where(once, 0.0, reduce_s)
    if profile.gradient_sync == "round":
        # Every round but the last is followed by passes of a whole round that hide its reductions.
        turns = np.where((zero >= 2) & (rounds[0] < 1), np.ceil(microbatches / pipelines.time.group[key]), 1.0)
        round_s = pipelines.time.group[key] * (forward_s + backward_s) * hidden_per_s
        turn_hides_s = np.minimum(reduce_may_hide_s, round_s)
        alone_s += (turns - 1) * (reduce_s - turn_hides_s)
        beside += (turns - 1) * turn_hides_s
        once_s, once_beside = np.where(once, alone_s, 0.0), np.where(once, beside, 0.0)

    def looped_s(rows: NDArray[np.intp], gathered_s: Floats | None) -> tuple[Floats, Floats]:
        """Return the seconds of traffic of some rows of interleaved stages that stand alone, and that hide."""
        assert pipelines.loops is not None
        return looped_traffic_s(
            profile,
            pipelines.loops,
            key[rows],
            table[replica[rows]],
            each_s[rows],
            gathered_s,
            overlap=profile.overlap_pipeline,
            whole=bool(stays_whole(profile, np.asarray(2))),  # they are of pipelines
        )

    if len(two):
        alone_s[two], beside[two] = sharded_gradients_s(profile, pipelines.passes, key[two], reduce_s[two])
    if len(two_looped):
        alone_s[two_looped], beside[two_looped] = looped_s(two_looped, None)
    alone_s += gather_s - hidden
    beside += gather_beside
    if len(three):
        alone_s[three], beside[three] = sharded_parameters_s(
            profile, pipelines.passes, key[three], each_s[three], gather_s[three]
        )
    if len(three_looped):
        alone_s[three_looped], beside[three_looped] = looped_s(three_looped, gather_s[three_looped])
    alone_s, beside = alone_s + once_s, beside + once_beside
    time_s = {name: values[key] for name, values in pipelines.parts_s.items()}
    time_s["pipeline"] = crossed_s
    time_s["bubble"] = (pipelines.time.total_s - pipelines.time.busy_s)[key]
    time_s["data"] = alone_s + replicas.tied_s[replica] + overlap.lost_s(beside)
    time_s["optimizer"] = replicas.optimizer_s[replica]
    time_s["host"] = time_s["host"] + profile.host_step_s + profile.host_microbatch_s * microbatches
    return time_s


def _crossing_lost_s(overlap: Overlap, share: Floats, pp: Floats, traffic_s: Floats, backward_s: Floats) -> Floats:
    """Compute the seconds [N] by which gradient reductions delay the last microbatch of interleaved stages.

    ``share`` of one virtual stage, ``traffic_s`` that may overlap passes, ``backward_s`` of one microbatch.
    """
    # The last group of microbatches leaves no slack: a virtual stage's last backward pass waits for that of the next
    # rank, which runs beside its own reduction. Each of v rounds crosses pp ranks, and each crossing loses what one
    # pass of 1 / v of the stage loses to the traffic of 1 / v of the gradients.
    lost_s = np.minimum(overlap.lost_s(traffic_s), (overlap.computation - 1) * backward_s)
    return np.asarray(np.where(share < 1, pp * lost_s, 0.0))


def _by_rounds(share: Floats, some: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows among ``some`` whose devices have one virtual stage, and those that have several; ``share`` of
    one virtual stage."""
    rows = np.flatnonzero(some)
    several = share[rows] < 1.0
    return rows[~several], rows[several]


def _hidden(
    rounds: tuple[Floats, Floats],
    traffic_s: Floats,
    window_s: Floats,
    own_s: Floats,
    pass_s: Floats,
    wait_s: Floats,
    hidden_per_s: float,
) -> tuple[Floats, Floats]:
    """Return the seconds of traffic of all parameters that overlap, and those of them that run beside passes, [N] each.

    ``rounds``: share of one virtual stage, and microbatches of all rounds but one. ``traffic_s``: of all parameters.
    ``window_s``: overlap window of the last (or first) virtual stage, ``own_s`` of which are passes. ``pass_s`` and
    ``wait_s``: passes and idle time of one microbatch. ``hidden_per_s``: seconds of traffic under one second of passes;
    idle time hides its own length, and traffic that fits there slows nothing.
    """
    # Each of v virtual stages has the share a = 1 / v of the traffic T. The one with the shortest window W (own passes
    # o, at rate r = hidden_per_s: W' = W + o (r - 1)) exposes a (T - W'). The farthest one also has the other rounds,
    # q microbatches of passes p and waits w, and exposes T - a W' - q (w + r p). The larger decides; those between have
    # longer windows than the first. What runs beside passes is what overlaps less the idle part of the windows.
    share, others = rounds
    more = hidden_per_s - 1
    # A stage that ends first may have longer passes than the one whose pace is the window's: it has them all the same.
    window_s = np.maximum(window_s, own_s)
    whole_s = window_s + own_s * more
    alone = (traffic_s - whole_s) * share
    farthest = traffic_s - whole_s * share - others * (pass_s + wait_s + pass_s * more)
    hidden = traffic_s - np.maximum(np.maximum(alone, farthest), 0.0)
    return hidden, np.maximum(hidden - (window_s - own_s) * share - others * wait_s, 0.0)
