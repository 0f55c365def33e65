"""Replica traffic of candidates: gradient reduction and parameter gathers, exposed and during passes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.values import Candidates, Pipelines
from forerun.simulator.replicas.hiding import buckets_of_pass, exposed_s, hiding_s
from forerun.simulator.replicas.reduction import ReplicaCosts, reduces_each
from forerun.simulator.replicas.sharded import looped_traffic_s, sharded_gradients_s, sharded_parameters_s
from forerun.simulator.score_table import Floats
from forerun.spaces.clusters.cluster import Overlap
from forerun.spaces.schedules.stage_times import sum_before, total_over_stages
from forerun.spaces.strategies import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
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
    """Seconds of one reduction of all gradients: once per step of the first stage, otherwise of the largest."""
    gather_s: Floats
    """Seconds of one gather of all parameters, likewise."""
    largest: NDArray[np.intp]
    """Run of stages with the most traffic."""
    largest_s: tuple[Floats, Floats]
    """Seconds of its reduction and gather."""
    shared_s: Floats
    """Transfer of one microbatch between stages, 0 where replica traffic has another port."""
    wait_s: Floats
    """Idle time per microbatch by which transfers between stages exceed passes."""
    share: Floats
    """Share of one virtual stage in its rank."""
    first_share: Floats
    """Share of the virtual stage with the token table in the parameters of its rank."""
    buckets: Floats
    """Buckets of the gradients of any other virtual stage."""
    first_buckets: Floats
    """Buckets of the gradients of that virtual stage."""
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
class ReplicaTraffic:
    """Seconds of replica traffic, [N]: exposed (``exposed_s``), and during passes (``beside_s``), which it slows."""

    exposed_s: Floats
    beside_s: Floats

    def put(self, rows: NDArray[np.intp], seconds: tuple[Floats, Floats]) -> None:
        """Replace the traffic of some rows."""
        self.exposed_s[rows], self.beside_s[rows] = seconds


def replicated(
    context: Context,
    pipelines: Pipelines,
    candidates: Candidates,
    replicas: ReplicaCosts,
    crossed_s: Floats,
    idle_s: Floats,
) -> Replicated:
    """Gather the figures that replica traffic depends on; ``crossed_s``, ``idle_s``: see ``exposed_p2p_s``."""
    key, replica, table = candidates.key, candidates.replica, candidates.table_share
    rounds = pipelines.time.rounds[key]
    inner_share = np.where(rounds > 1, (1 - table) / rounds, 1.0)
    first_share = np.where(rounds > 1, inner_share + table, 1.0)
    # Half of the exposed transfers fill the pipeline, half drain it; all rounds but one wait for them in both. They
    # hide traffic that has another port.
    transfers_s = np.minimum(crossed_s / 2, (pipelines.pp[key] * rounds - 1) * candidates.p2p_s)
    transfers_s = np.where(candidates.shared_port, 0.0, transfers_s) * (1 - 1 / rounds)
    fills_s, drains_s = (one[key] + transfers_s for one in pipelines.idle_s)
    each = reduces_each(context.framework, candidates.zero, pipelines.pp[key])
    first = np.where(rounds > 1, 1.0, replicas.first[replica])
    return Replicated(
        context=context,
        pipelines=pipelines,
        key=key,
        zero=candidates.zero,
        each=each,
        table_share=table,
        microbatches=pipelines.microbatches[key],
        forward_s=pipelines.stages.forward_s[0, key],
        backward_s=pipelines.stages.backward_s[0, key],
        reduce_s=replicas.reduce_s[replica] * np.where(each, 1.0, first),
        gather_s=replicas.gather_s[replica] * np.where(candidates.zero == 3, 1.0, first),
        largest=replicas.largest[replica].astype(np.intp),
        largest_s=(replicas.reduce_s[replica], replicas.gather_s[replica]),
        shared_s=np.where(candidates.shared_port, candidates.p2p_s, 0.0),
        wait_s=idle_s / pipelines.microbatches[key],
        share=1 / rounds,
        first_share=first_share,
        buckets=buckets_of_pass(replicas.buckets[replica], inner_share),
        first_buckets=buckets_of_pass(replicas.buckets[replica], first_share),
        group=np.where(rounds > 1, pipelines.time.group[key], 1.0),
        fills_s=fills_s,
        drains_s=drains_s,
    )


def replica_traffic(these: Replicated, idle_s: Floats) -> ReplicaTraffic:
    """Compute the replica traffic of a step: gradient reduction and parameter gathers."""
    slowest_s = these.pipelines.time.busy_s[these.key] / these.microbatches + these.wait_s
    pace_s = np.where(these.share < 1, slowest_s, these.forward_s + these.backward_s)
    reduce_hides_s, beside_s = _hidden_reduction(these, pace_s)
    gather_hides_s, gather_beside_s = _hidden_gather(these, pace_s, idle_s, reduce_hides_s)
    traffic = ReplicaTraffic(_exposed_reduction_s(these, reduce_hides_s, beside_s), beside_s)
    gather_exposed_s = these.gather_s - gather_hides_s
    _expose_largest(these, traffic.exposed_s, gather_exposed_s)
    _reduce_every_round(these, traffic)
    # ZeRO-3 with one reduction per step has it in addition to the gathers of its microbatches.
    once = (these.zero == 3) & ~these.each
    once_s, once_beside_s = np.where(once, traffic.exposed_s, 0.0), np.where(once, traffic.beside_s, 0.0)
    each_s = np.where(once, 0.0, these.reduce_s)
    _reduce_every_microbatch(these, traffic, each_s)
    traffic.exposed_s += gather_exposed_s
    traffic.beside_s += gather_beside_s
    _gather_every_microbatch(these, traffic, each_s)
    return ReplicaTraffic(traffic.exposed_s + once_s, traffic.beside_s + once_beside_s)


def _expose_largest(these: Replicated, reduce_exposed_s: Floats, gather_exposed_s: Floats) -> None:
    """Raise the exposed traffic once per step to that of the run with the most traffic, where it ends later."""
    # The first microbatch reaches stage s after the forward passes of the stages before it, and the last one ends their
    # backward passes after that of stage s: this time hides traffic, too.
    some = np.flatnonzero((these.largest > 0) & (these.share == 1) & (these.pipelines.crossed[these.key] > 0))
    if not len(some):
        return
    stages, key, run = these.pipelines.stages, these.key[some], these.largest[some]
    profile, buckets, rate = these.context.framework, these.buckets[some], these.context.overlap.hidden_per_s
    for exposed, each_s, hides, passes_s in (
        (reduce_exposed_s, these.largest_s[0], profile.overlap_gradients, stages.backward_s),
        (gather_exposed_s, these.largest_s[1], profile.overlap_parameters, stages.forward_s),
    ):
        traffic_s = each_s[some]
        left_s = exposed_s(hides * traffic_s, passes_s[run, key] * rate, buckets) + (1 - hides) * traffic_s
        exposed[some] = np.maximum(exposed[some], left_s - sum_before(stages.multiplicity, passes_s)[run, key])


def _hidden_reduction(these: Replicated, pace_s: Floats) -> tuple[Floats, Floats]:
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


def _hidden_gather(these: Replicated, pace_s: Floats, idle_s: Floats, reduce_hides_s: Floats) -> tuple[Floats, Floats]:
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


def _exposed_reduction_s(these: Replicated, hidden_s: Floats, beside_s: Floats) -> Floats:
    """Compute the exposed seconds of one reduction per step."""
    # exposed = reduction - hidden, and at least the delay of the last microbatch on ranks that reduce, less the traffic
    # of earlier virtual stages after the last pass, whether or not passes were late.
    overlap = these.context.overlap
    exposed_s = these.reduce_s - hidden_s
    may_hide_s = these.context.framework.overlap_gradients * these.reduce_s
    queue_s = np.maximum(may_hide_s - hidden_s - may_hide_s * these.share, 0.0)
    stages = these.pipelines.stages
    mean_s = total_over_stages(stages.multiplicity, stages.backward_s) / these.pipelines.pp
    slowed_s = hiding_s(mean_s[these.key], these.buckets)
    crossing_s = _crossing_lost_s(overlap, these.pipelines.crossed[these.key], may_hide_s, slowed_s)
    late_s = np.maximum(crossing_s - queue_s - overlap.lost_s(beside_s), 0.0)
    return np.asarray(exposed_s + np.where(these.zero < 2, late_s, 0.0) + _shared_port_s(these, may_hide_s))


def _shared_port_s(these: Replicated, traffic_s: Floats) -> Floats:
    """Compute the delay [N] of the last microbatch's transfers by reductions through the same port."""
    # Every rank sends the last gradients of a virtual stage while it still reduces its own: both take turns, so the
    # transfer takes longer by its own duration, at most by that of the traffic.
    if not these.shared_s.any():
        return these.shared_s
    rate = these.context.overlap.hidden_per_s
    left_s = exposed_s(traffic_s * these.share, these.backward_s * rate * these.share, these.buckets)
    crossings = these.pipelines.pp[these.key] / these.share - 1
    return np.asarray(crossings * np.minimum(these.shared_s, np.maximum(left_s, 0.0)))


def _reduce_every_round(these: Replicated, traffic: ReplicaTraffic) -> None:
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


def _reduce_every_microbatch(these: Replicated, traffic: ReplicaTraffic, each_s: Floats) -> None:
    """Set the traffic of ZeRO-2 with a reduction after every microbatch."""
    whole, looped = these.interleaved(these.each & (these.zero == 2))
    if len(whole):
        passes, key = these.pipelines.passes, these.key[whole]
        reduce_s, buckets = these.reduce_s[whole], these.buckets[whole]
        traffic.put(whole, sharded_gradients_s(these.context.framework, passes, key, reduce_s, buckets))
    if len(looped):
        traffic.put(looped, _looped_s(these, looped, each_s, None))


def _gather_every_microbatch(these: Replicated, traffic: ReplicaTraffic, each_s: Floats) -> None:
    """Set the traffic of ZeRO-3, whose parameters are gathered for every pass."""
    whole, looped = these.interleaved(these.zero == 3)
    if len(whole):
        profile, passes = these.context.framework, these.pipelines.passes
        gather_s, buckets = these.gather_s[whole], these.buckets[whole]
        traffic.put(whole, sharded_parameters_s(profile, passes, these.key[whole], each_s[whole], gather_s, buckets))
    if len(looped):
        traffic.put(looped, _looped_s(these, looped, each_s, these.gather_s[looped]))


def _looped_s(
    these: Replicated, rows: NDArray[np.intp], each_s: Floats, gathered_s: Floats | None
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
        these.buckets[rows],
        these.first_buckets[rows],
    )


def _crossing_lost_s(overlap: Overlap, crossed: Floats, traffic_s: Floats, backward_s: Floats) -> Floats:
    """Compute the seconds [N] by which gradient reductions delay the last microbatch's backward passes.

    ``crossed``: number of reducing ranks on its path; ``traffic_s``: traffic that may overlap passes; ``backward_s``:
    segments of a backward pass of one microbatch that run during traffic, in the mean over ranks.
    """
    # The last microbatches have no slack: a stage's last backward pass waits for that of the next rank, which runs
    # during its own reduction. With v virtual stages, each of v rounds crosses pp ranks, and each crossing loses the
    # slowdown of one pass of 1 / v of the stage by the traffic of 1 / v of the gradients.
    return np.asarray(crossed * np.minimum(overlap.lost_s(traffic_s), (overlap.computation - 1) * backward_s))


def _hidden(
    these: Replicated, traffic_s: Floats, window_s: Floats, own_s: Floats, pass_s: Floats, idle_s: Floats
) -> tuple[Floats, Floats]:
    """Compute the hidden seconds of traffic of all parameters, and its seconds during passes, [N].

    ``traffic_s``: traffic of all parameters. ``window_s``: overlap window of the last (or first) virtual stage,
    including ``own_s`` seconds of passes. ``pass_s``: passes of one microbatch; ``idle_s``: idle time between the
    farthest virtual stage and that window. Idle time hides traffic of its own length without a slowdown.
    """
    # Each of v virtual stages has the share a = 1 / v of the passes. The one with the shortest window W = o + x (own
    # passes o, of which r o hide traffic, r = hidden_per_s, and further time x) has the share c of the traffic T and
    # exposes ``exposed_s`` of it after its passes, less a x. The farthest one also has the other rounds, q microbatches
    # of passes p and waits w, and idle time i; between its first bucket and the end traffic runs without a pause, so it
    # exposes T - a (h + x) - q (w + r p) - i, h the hiding part of its passes. The larger exposure decides; stages in
    # between have longer windows than the first. Traffic during passes is the hidden traffic less the idle part of the
    # windows.
    share, others, wait_s = these.share, these.others, these.wait_s
    rate = these.context.overlap.hidden_per_s
    # A stage that ends first may have longer passes than the pacing stage of the window; they still count in full.
    further_s = np.maximum(window_s - own_s, 0.0)
    alone = exposed_s(traffic_s * these.first_share, own_s * rate * share, these.first_buckets) - further_s * share
    hides_s = hiding_s(own_s * rate, these.buckets) + further_s
    farthest = traffic_s - hides_s * share - others * (pass_s * rate + wait_s) - idle_s
    hidden = traffic_s - np.maximum(np.maximum(alone, farthest), 0.0)
    return hidden, np.maximum(hidden - further_s * share - others * wait_s - idle_s, 0.0)
