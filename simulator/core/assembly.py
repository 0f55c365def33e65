"""Combine pipeline and replica costs into step time, exposed communication and peak memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.memory.peak import StageMemory, total_memory
from forerun.simulator.pipeline.closed_forms import PipelineTime, exposed_p2p_s
from forerun.simulator.replicas.buffers import stays_whole
from forerun.simulator.replicas.reduction import ReplicaCosts, reduces_each
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
    """Seconds of a step by part (``TIME_PARTS``), with exposed communication only."""
    forward_s: Floats
    """Forward pass of one microbatch on the first stage."""
    backward_s: Floats
    """Backward pass of one microbatch on the first stage."""
    before_gradients_s: Floats
    """Seconds of the last microbatch before the first stage's gradients start to be complete."""
    gradient_pass_s: Floats
    """The first stage's pass that completes gradients."""
    passes: HidingPasses
    """Passes that can hide replica traffic."""
    crossed: Floats
    """Ranks that reduce gradients during the last microbatch's backward passes."""
    microbatches: Floats
    """Microbatches of a replica and step."""
    pp: Floats
    """Pipeline ranks."""
    memory: StageMemory
    """Activations, [R, S]."""
    idle_s: tuple[Floats, Floats]
    """Idle seconds of the first stage before its last virtual stage first runs, and after the last backward pass of
    that virtual stage."""
    loops: Loops | None = None
    """Virtual stages one by one; None where every device has one."""


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
    """Return the scores of N candidates.

    ``key`` and ``replica``: their columns in the two tables; ``table`` [D]: the token table's share of the largest
    stage's parameters (used for interleaved stages); ``zero`` [N]: ZeRO stage.

    Raises
    ------
    RequestError
        A time or a peak is not finite.
    """
    time_s = _time(context, pipelines, key, replicas, replica, zero, p2p_s, table)
    memory = total_memory(context, pipelines.memory, key, replicas, replica)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replicated:
    """N candidates whose replicas exchange gradients and parameters during passes; every array has shape N."""

    context: Context
    pipelines: Pipelines
    key: NDArray[np.intp]
    """Index into the pipelines."""
    zero: Floats | NDArray[np.int64]
    each: NDArray[np.bool_]
    """Whether gradients are reduced after every microbatch, not once per step."""
    table_share: Floats
    """The token embedding's share of the largest stage's parameters."""
    microbatches: Floats
    forward_s: Floats
    """Forward pass of one microbatch on the first stage."""
    backward_s: Floats
    reduce_s: Floats
    """Seconds of one reduction of all gradients."""
    gather_s: Floats
    """Seconds of one gather of all parameters."""
    wait_s: Floats
    """Idle time per microbatch by which transfers between stages exceed passes."""
    share: Floats
    """Share of one virtual stage in its rank."""
    group: Floats
    """Microbatches that reach a virtual stage of a device before its next one; 1 where it has one virtual stage."""
    fills_s: Floats
    """Idle time of the first stage before its last virtual stage first runs."""
    drains_s: Floats
    """Idle time of the first stage after the last backward pass of that virtual stage."""

    @property
    def others(self) -> Floats:
        """Microbatches [N] of all rounds of virtual stages except one."""
        return (1 - self.share) * self.group

    def interleaved(self, some: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of ``some`` with one virtual stage per rank, and the rows with several."""
        rows = np.flatnonzero(some)
        several = self.share[rows] < 1.0
        return rows[~several], rows[several]


@dataclass(slots=True)
class _Traffic:
    """Seconds of replica traffic, [N]: exposed (``exposed_s``), and during passes (``beside_s``), which it slows."""

    exposed_s: Floats
    beside_s: Floats

    def put(self, rows: NDArray[np.intp], seconds: tuple[Floats, Floats]) -> None:
        """Replace the traffic of some rows."""
        self.exposed_s[rows], self.beside_s[rows] = seconds


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
    """Compute the parts of the step time of N candidates."""
    # step = parts of the slowest stage + bubble + exposed transfers + exposed replica traffic + slowdown of passes by
    # replica traffic + optimizer + host.
    profile = context.framework
    crossed_s, idle_s = exposed_p2p_s(pipelines.time, key, p2p_s)
    microbatches, rounds_share = pipelines.microbatches[key], 1 / pipelines.time.rounds
    fills_s, drains_s = (one[key] for one in pipelines.idle_s)
    these = _Replicated(
        context=context,
        pipelines=pipelines,
        key=key,
        zero=zero,
        each=reduces_each(profile, zero, pipelines.pp[key]),
        table_share=table[replica],
        microbatches=microbatches,
        forward_s=pipelines.forward_s[key],
        backward_s=pipelines.backward_s[key],
        reduce_s=replicas.reduce_s[replica],
        gather_s=replicas.gather_s[replica],
        wait_s=idle_s / microbatches,
        share=rounds_share[key],
        group=np.where(rounds_share < 1, pipelines.time.group, 1.0)[key],
        fills_s=fills_s,
        drains_s=drains_s,
    )
    traffic = _replica_traffic(these, idle_s)
    time_s = {name: values[key] for name, values in pipelines.parts_s.items()}
    time_s["pipeline"] = crossed_s
    time_s["bubble"] = (pipelines.time.total_s - pipelines.time.busy_s)[key]
    time_s["data"] = traffic.exposed_s + replicas.tied_s[replica] + context.overlap.lost_s(traffic.beside_s)
    time_s["optimizer"] = replicas.optimizer_s[replica] + microbatches * replicas.copy_s[replica]
    time_s["host"] = time_s["host"] + profile.host_step_s + profile.host_microbatch_s * microbatches
    return time_s


def _replica_traffic(these: _Replicated, idle_s: Floats) -> _Traffic:
    """Compute the replica traffic of a step: gradient reduction and parameter gathers."""
    pace_s = these.pipelines.time.busy_s[these.key] / these.microbatches + these.wait_s
    reduce_hides_s, beside_s = _hidden_reduction(these, pace_s)
    gather_hides_s, gather_beside_s = _hidden_gather(these, pace_s, idle_s, reduce_hides_s)
    traffic = _Traffic(_exposed_reduction_s(these, reduce_hides_s, beside_s), beside_s)
    _reduce_every_round(these, traffic)
    # ZeRO-3 with one reduction per step has it in addition to the gathers of its microbatches.
    once = (these.zero == 3) & ~these.each
    once_s, once_beside_s = np.where(once, traffic.exposed_s, 0.0), np.where(once, traffic.beside_s, 0.0)
    each_s = np.where(once, 0.0, these.reduce_s)
    _reduce_every_microbatch(these, traffic, each_s)
    traffic.exposed_s += these.gather_s - gather_hides_s
    traffic.beside_s += gather_beside_s
    _gather_every_microbatch(these, traffic, each_s)
    return _Traffic(traffic.exposed_s + once_s, traffic.beside_s + once_beside_s)


def _hidden_reduction(these: _Replicated, pace_s: Floats) -> tuple[Floats, Floats]:
    """Compute the hidden seconds of one reduction per step, and its seconds during passes."""
    # Its overlap window is the first stage's last backward pass, its idle time before the slowest stage, and the rounds
    # of its other virtual stages. Traffic and passes slow each other down; idle time slows nothing.
    return _hidden(
        these,
        these.context.framework.overlap_gradients * these.reduce_s,
        pace_s - these.pipelines.before_gradients_s[these.key],
        these.pipelines.gradient_pass_s[these.key],
        these.backward_s,
        these.drains_s,
    )


def _hidden_gather(these: _Replicated, pace_s: Floats, idle_s: Floats, reduce_hides_s: Floats) -> tuple[Floats, Floats]:
    """Compute the hidden seconds of one gather per step, and its seconds during passes."""
    # Time that hides the reduction cannot hide the gather: window = pipeline + idle + (r - 1) passes + preparation of
    # microbatches - hidden reduction, with r the seconds of traffic hidden by one second of passes. The host prepares
    # one microbatch before the first pass, and all of a group before the first pass of the last virtual stage.
    time, hidden_per_s = these.pipelines.time, these.context.overlap.hidden_per_s
    prepares_s = these.context.framework.host_microbatch_s
    more_s = (these.forward_s + these.backward_s) * (hidden_per_s - 1) + prepares_s
    window_s = time.total_s[these.key] + idle_s + these.microbatches * more_s - reduce_hides_s
    hidden_s, beside_s = _hidden(
        these,
        these.context.framework.overlap_parameters * these.gather_s,
        pace_s - these.backward_s + prepares_s,
        these.forward_s,
        these.forward_s,
        these.fills_s + (these.group - these.share) * prepares_s,
    )
    hidden_s = np.minimum(hidden_s, window_s)
    return hidden_s, np.minimum(hidden_s, beside_s)


def _exposed_reduction_s(these: _Replicated, hidden_s: Floats, beside_s: Floats) -> Floats:
    """Compute the exposed seconds of one reduction per step."""
    # exposed = reduction - hidden, and at least the delay of the last microbatch on ranks that reduce, less the traffic
    # of earlier virtual stages after the last pass, whether or not passes were late.
    overlap = these.context.overlap
    exposed_s = these.reduce_s - hidden_s
    may_hide_s = these.context.framework.overlap_gradients * these.reduce_s
    queue_s = np.maximum(may_hide_s - hidden_s - may_hide_s * these.share, 0.0)
    crossing_s = _crossing_lost_s(overlap, these.pipelines.crossed[these.key], may_hide_s, these.backward_s)
    late_s = np.maximum(crossing_s - queue_s - overlap.lost_s(beside_s), 0.0)
    return np.asarray(exposed_s + np.where(these.zero < 2, late_s, 0.0))


def _reduce_every_round(these: _Replicated, traffic: _Traffic) -> None:
    """Add the reductions of frameworks that reduce after every round of virtual stages."""
    # Every round but the last is followed by passes of an entire round, which hide its reductions.
    if these.context.framework.gradient_sync != "round":
        return
    group = these.pipelines.time.group[these.key]
    turns = np.where((these.zero >= 2) & (these.share < 1), np.ceil(these.microbatches / group), 1.0)
    round_s = group * (these.forward_s + these.backward_s) * these.context.overlap.hidden_per_s
    hides_s = np.minimum(these.context.framework.overlap_gradients * these.reduce_s, round_s)
    traffic.exposed_s += (turns - 1) * (these.reduce_s - hides_s)
    traffic.beside_s += (turns - 1) * hides_s


def _reduce_every_microbatch(these: _Replicated, traffic: _Traffic, each_s: Floats) -> None:
    """Set the traffic of ZeRO-2 with a reduction after every microbatch."""
    whole, looped = these.interleaved(these.each & (these.zero == 2))
    if len(whole):
        passes, key = these.pipelines.passes, these.key[whole]
        traffic.put(whole, sharded_gradients_s(these.context.framework, passes, key, these.reduce_s[whole]))
    if len(looped):
        traffic.put(looped, _looped_s(these, looped, each_s, None))


def _gather_every_microbatch(these: _Replicated, traffic: _Traffic, each_s: Floats) -> None:
    """Set the traffic of ZeRO-3, whose parameters are gathered for every pass."""
    whole, looped = these.interleaved(these.zero == 3)
    if len(whole):
        profile, passes = these.context.framework, these.pipelines.passes
        gather_s = these.gather_s[whole]
        traffic.put(whole, sharded_parameters_s(profile, passes, these.key[whole], each_s[whole], gather_s))
    if len(looped):
        traffic.put(looped, _looped_s(these, looped, each_s, these.gather_s[looped]))


def _looped_s(
    these: _Replicated, rows: NDArray[np.intp], each_s: Floats, gathered_s: Floats | None
) -> tuple[Floats, Floats]:
    """Return the exposed and the hidden seconds of traffic of some rows with interleaved stages."""
    profile, loops = these.context.framework, these.pipelines.loops
    assert loops is not None
    return looped_traffic_s(
        profile,
        loops,
        these.key[rows],
        these.table_share[rows],
        each_s[rows],
        gathered_s,
        overlap=profile.overlap_pipeline,
        whole=bool(stays_whole(profile, np.asarray(2))),  # they are of pipelines
    )


def _crossing_lost_s(overlap: Overlap, crossed: Floats, traffic_s: Floats, backward_s: Floats) -> Floats:
    """Compute the seconds [N] by which gradient reductions delay the last microbatch's backward passes.

    ``crossed``: number of reducing ranks on its path; ``traffic_s``: traffic that may overlap passes; ``backward_s``:
    backward pass of one microbatch.
    """
    # The last microbatches have no slack: a stage's last backward pass waits for that of the next rank, which runs
    # during its own reduction. With v virtual stages, each of v rounds crosses pp ranks, and each crossing loses the
    # slowdown of one pass of 1 / v of the stage by the traffic of 1 / v of the gradients.
    return np.asarray(crossed * np.minimum(overlap.lost_s(traffic_s), (overlap.computation - 1) * backward_s))


def _hidden(
    these: _Replicated, traffic_s: Floats, window_s: Floats, own_s: Floats, pass_s: Floats, idle_s: Floats
) -> tuple[Floats, Floats]:
    """Compute the hidden seconds of traffic of all parameters, and its seconds during passes, [N].

    ``traffic_s``: traffic of all parameters. ``window_s``: overlap window of the last (or first) virtual stage,
    including ``own_s`` seconds of passes. ``pass_s``: passes of one microbatch; ``idle_s``: idle time between the
    farthest virtual stage and that window. Idle time hides traffic of its own length without a slowdown.
    """
    # Each of v virtual stages has the share a = 1 / v of the traffic T. The one with the shortest window W (own passes
    # o, at rate r = hidden_per_s: W' = W + o (r - 1)) exposes a (T - W'). The farthest one also has the other rounds, q
    # microbatches of passes p and waits w, and idle time i; it exposes T - a W' - q (w + r p) - i. The larger exposure
    # decides; stages in between have longer windows than the first. Traffic during passes is the hidden traffic less
    # the idle part of the windows.
    share, others, wait_s = these.share, these.others, these.wait_s
    more = these.context.overlap.hidden_per_s - 1
    # A stage that ends first may have longer passes than the pacing stage of the window; they still count in full.
    window_s = np.maximum(window_s, own_s)
    whole_s = window_s + own_s * more
    alone = (traffic_s - whole_s) * share
    farthest = traffic_s - whole_s * share - others * (pass_s + wait_s + pass_s * more) - idle_s
    hidden = traffic_s - np.maximum(np.maximum(alone, farthest), 0.0)
    return hidden, np.maximum(hidden - (window_s - own_s) * share - others * wait_s - idle_s, 0.0)
