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
    """Passes under which traffic of replicas can hide."""
    crossed: Floats
    """Ranks that reduce gradients while the last microbatch's backward passes run on them."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replicated:
    """N candidates whose replicas exchange gradients and parameters beside passes; every array has shape N."""

    context: Context
    pipelines: Pipelines
    key: NDArray[np.intp]
    """Column of the pipelines."""
    zero: Floats | NDArray[np.int64]
    each: NDArray[np.bool_]
    """Whether gradients are reduced after every microbatch, not once a step."""
    table_share: Floats
    """The token embedding's share of the largest stage's parameters."""
    microbatches: Floats
    forward_s: Floats
    """Forward pass of one microbatch on the first stage."""
    backward_s: Floats
    reduce_s: Floats
    """One reduction of all gradients."""
    gather_s: Floats
    """One gather of all parameters."""
    wait_s: Floats
    """Idle time per microbatch in which transfers between stages take longer than passes."""
    share: Floats
    """Of one virtual stage in its rank."""
    others: Floats
    """Microbatches of all rounds of virtual stages but one."""

    def interleaved(self, some: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows among some whose ranks have one virtual stage, and those that have several."""
        rows = np.flatnonzero(some)
        several = self.share[rows] < 1.0
        return rows[~several], rows[several]


@dataclass(slots=True)
class _Traffic:
    """Seconds of traffic of replicas, [N]: ``exposed_s`` that passes do not hide, and ``beside_s`` that run beside
    passes and so slow them down."""

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
    # step = parts of the slowest stage + bubble + exposed transfers + exposed traffic of replicas + what passes lose
    # beside traffic + optimizer + host.
    profile = context.framework
    crossed_s, idle_s = exposed_p2p_s(pipelines.time, key, p2p_s)
    microbatches, rounds_share = pipelines.microbatches[key], 1 / pipelines.time.rounds
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
        others=((1 - rounds_share) * pipelines.time.group)[key],
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
    """Compute the traffic of replicas in a step: gradients that are reduced, parameters that are gathered."""
    pace_s = these.pipelines.time.busy_s[these.key] / these.microbatches + these.wait_s
    reduce_hides_s, beside_s = _hidden_reduction(these, pace_s)
    gather_hides_s, gather_beside_s = _hidden_gather(these, pace_s, idle_s, reduce_hides_s)
    traffic = _Traffic(_exposed_reduction_s(these, reduce_hides_s, beside_s), beside_s)
    _reduce_every_round(these, traffic)
    # ZeRO-3 that reduces once per step has that beside what its microbatches gather.
    once = (these.zero == 3) & ~these.each
    once_s, once_beside_s = np.where(once, traffic.exposed_s, 0.0), np.where(once, traffic.beside_s, 0.0)
    each_s = np.where(once, 0.0, these.reduce_s)
    _reduce_every_microbatch(these, traffic, each_s)
    traffic.exposed_s += these.gather_s - gather_hides_s
    traffic.beside_s += gather_beside_s
    _gather_every_microbatch(these, traffic, each_s)
    return _Traffic(traffic.exposed_s + once_s, traffic.beside_s + once_beside_s)


def _hidden_reduction(these: _Replicated, pace_s: Floats) -> tuple[Floats, Floats]:
    """Compute the seconds of one reduction per step that overlap, and those of them beside passes."""
    # It overlaps the first stage's last backward pass, its idle time before the slowest stage, and the rounds of its
    # other virtual stages. Traffic and passes slow each other down; idle time slows nothing.
    return _hidden(
        these,
        these.context.framework.overlap_gradients * these.reduce_s,
        pace_s - these.pipelines.before_gradients_s[these.key],
        these.pipelines.gradient_pass_s[these.key],
        these.backward_s,
    )


def _hidden_gather(these: _Replicated, pace_s: Floats, idle_s: Floats, reduce_hides_s: Floats) -> tuple[Floats, Floats]:
    """Compute the seconds of one gather per step that overlap, and those of them beside passes."""
    # What hides the reduction cannot hide the gather: window = pipeline + idle + (r - 1) passes - hidden reduction, r
    # the seconds of traffic that fit under one second of passes.
    time, hidden_per_s = these.pipelines.time, these.context.overlap.hidden_per_s
    passes_s = these.microbatches * (these.forward_s + these.backward_s)
    window_s = time.total_s[these.key] + idle_s + passes_s * (hidden_per_s - 1) - reduce_hides_s
    hidden_s, beside_s = _hidden(
        these,
        these.context.framework.overlap_parameters * these.gather_s,
        pace_s - these.backward_s,
        these.forward_s,
        these.forward_s,
    )
    hidden_s = np.minimum(hidden_s, window_s)
    return hidden_s, np.minimum(hidden_s, beside_s)


def _exposed_reduction_s(these: _Replicated, hidden_s: Floats, beside_s: Floats) -> Floats:
    """Compute the seconds of one reduction per step that stand alone."""
    # exposed = reduction - hidden, and at least what the last microbatch loses while it crosses ranks that reduce,
    # less what traffic of earlier virtual stages takes behind the last pass, whether passes were late or not.
    overlap = these.context.overlap
    exposed_s = these.reduce_s - hidden_s
    may_hide_s = these.context.framework.overlap_gradients * these.reduce_s
    queue_s = np.maximum(may_hide_s - hidden_s - may_hide_s * these.share, 0.0)
    crossing_s = _crossing_lost_s(overlap, these.pipelines.crossed[these.key], may_hide_s, these.backward_s)
    late_s = np.maximum(crossing_s - queue_s - overlap.lost_s(beside_s), 0.0)
    return np.asarray(exposed_s + np.where(these.zero < 2, late_s, 0.0))


def _reduce_every_round(these: _Replicated, traffic: _Traffic) -> None:
    """Add the reductions of frameworks that reduce after every round of virtual stages."""
    # Every round but the last is followed by passes of a whole round that hide its reductions.
    if these.context.framework.gradient_sync != "round":
        return
    group = these.pipelines.time.group[these.key]
    turns = np.where((these.zero >= 2) & (these.share < 1), np.ceil(these.microbatches / group), 1.0)
    round_s = group * (these.forward_s + these.backward_s) * these.context.overlap.hidden_per_s
    hides_s = np.minimum(these.context.framework.overlap_gradients * these.reduce_s, round_s)
    traffic.exposed_s += (turns - 1) * (these.reduce_s - hides_s)
    traffic.beside_s += (turns - 1) * hides_s


def _reduce_every_microbatch(these: _Replicated, traffic: _Traffic, each_s: Floats) -> None:
    """Put the traffic of ZeRO-2 that reduces after every microbatch."""
    whole, looped = these.interleaved(these.each & (these.zero == 2))
    if len(whole):
        passes, key = these.pipelines.passes, these.key[whole]
        traffic.put(whole, sharded_gradients_s(these.context.framework, passes, key, these.reduce_s[whole]))
    if len(looped):
        traffic.put(looped, _looped_s(these, looped, each_s, None))


def _gather_every_microbatch(these: _Replicated, traffic: _Traffic, each_s: Floats) -> None:
    """Put the traffic of ZeRO-3, whose parameters are gathered for every pass."""
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
    """Return the seconds of traffic of some rows of interleaved stages that stand alone, and that hide."""
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

    ``crossed`` ranks, ``traffic_s`` that may overlap passes, ``backward_s`` of one microbatch.
    """
    # The last microbatches leave no slack: a stage's last backward pass waits for that of the next rank, which runs
    # beside its own reduction. Of v virtual stages, each of v rounds crosses pp ranks, and each crossing loses what one
    # pass of 1 / v of the stage loses to the traffic of 1 / v of the gradients.
    return np.asarray(crossed * np.minimum(overlap.lost_s(traffic_s), (overlap.computation - 1) * backward_s))


def _hidden(
    these: _Replicated, traffic_s: Floats, window_s: Floats, own_s: Floats, pass_s: Floats
) -> tuple[Floats, Floats]:
    """Compute the seconds of traffic of all parameters that overlap, and those of them that run beside passes, [N].

    ``traffic_s``: of all parameters. ``window_s``: overlap window of the last (or first) virtual stage, ``own_s`` of
    which are passes. ``pass_s``: passes of one microbatch. Idle time hides its own length, and traffic that fits there
    slows nothing.
    """
    # Each of v virtual stages has the share a = 1 / v of the traffic T. The one with the shortest window W (own passes
    # o, at rate r = hidden_per_s: W' = W + o (r - 1)) exposes a (T - W'). The farthest one also has the other rounds,
    # q microbatches of passes p and waits w, and exposes T - a W' - q (w + r p). The larger decides; those between have
    # longer windows than the first. What runs beside passes is what overlaps less the idle part of the windows.
    share, others, wait_s = these.share, these.others, these.wait_s
    more = these.context.overlap.hidden_per_s - 1
    # A stage that ends first may have longer passes than the one whose pace is the window's: it has them all the same.
    window_s = np.maximum(window_s, own_s)
    whole_s = window_s + own_s * more
    alone = (traffic_s - whole_s) * share
    farthest = traffic_s - whole_s * share - others * (pass_s + wait_s + pass_s * more)
    hidden = traffic_s - np.maximum(np.maximum(alone, farthest), 0.0)
    return hidden, np.maximum(hidden - (window_s - own_s) * share - others * wait_s, 0.0)
