"""Scores of strategies whose stages differ in recompute or in tp.

Every cost comes from the rules of the flat core, stage by stage; the core's last step assembles the step. For equal
stages the results equal the flat core's.
"""

import numpy as np

from forerun.simulator.core.assembly import step_scores
from forerun.simulator.core.staged_passes import stage_passes, stage_replicas
from forerun.simulator.core.values import Candidates, Pipelines
from forerun.simulator.costs.slowest import wait_share
from forerun.simulator.pipeline.closed_forms import PipelineTime, pipeline_time
from forerun.simulator.pipeline.p2p import P2pEnd, p2p_between_s
from forerun.simulator.replicas.buffers import stays_whole
from forerun.simulator.replicas.sharded import before_gradients_s, crossed_ranks, gradient_pass_s, slowest_passes
from forerun.simulator.replicas.slices import share_port
from forerun.simulator.score_table import Floats, ScoreTable
from forerun.simulator.stages.rows import StageRows, stage_rows
from forerun.spaces.schedules.stage_times import StageTimes
from forerun.spaces.strategies import Context, Placement, StrategyTable


def staged_score(context: Context, table: StrategyTable) -> ScoreTable:
    """Return time and memory of every row of ``table``, all without virtual stages.

    ``context`` runs with the switches that the rows turn on.

    Raises
    ------
    RequestError
        As for ``score``.
    """
    return score_rows(context, stage_rows(context, table))


def score_rows(context: Context, rows: StageRows) -> ScoreTable:
    """Return time and memory of N strategies given by their stages."""
    passes = stage_passes(context, rows)
    columns: np.ndarray[tuple[int], np.dtype[np.intp]] = np.arange(rows.number.shape[1])
    pp, count, schedule = rows.pp[0], rows.microbatches[0], rows.schedule[0]
    stages = StageTimes(
        forward_s=passes.forward_s,
        backward_s=passes.backward_s,
        weight_s=passes.weight_s,
        multiplicity=rows.exists,
        first=rows.number,
        prepare_s=context.framework.host_microbatch_s,
    )
    overlap, vpp = context.framework.overlap_pipeline, np.ones_like(pp)
    time = pipeline_time(stages, schedule, pp, vpp, count, overlap=overlap)
    decides = time.slowest, columns
    parts = {name: values[decides] * count for name, values in passes.parts.items()}
    waits_s = wait_share((rows.dp * rows.cp).max(axis=0)) * (parts["compute"] + parts["recompute"])
    parts["host"] = passes.gap_s[decides] * count + waits_s
    pipelines = Pipelines(
        time=time,
        parts_s=parts,
        stages=stages,
        before_gradients_s=before_gradients_s(stages, schedule, time.busy_s / count),
        gradient_pass_s=gradient_pass_s(stages, schedule),
        passes=slowest_passes(
            stages,
            time.slowest,
            schedule,
            pp,
            vpp,
            count,
            overlap=overlap,
            hidden_per_s=context.overlap.hidden_per_s,
            whole=stays_whole(context.framework, pp),
        ),
        crossed=crossed_ranks(schedule, pp),
        microbatches=count,
        pp=pp,
        memory=passes.memory,
        idle_s=(np.zeros_like(pp), np.zeros_like(pp)),
    )
    near = rows.placement[0] == Placement.TP_CP_EP_PP_DP
    candidates = Candidates(
        key=columns,
        replica=columns,
        zero=rows.zero[0],
        p2p_s=_mean_p2p_s(context, time, pp, stage_p2p_s(context, rows)),
        shared_port=share_port(context.cluster, tp=rows.tp[0], cp=rows.cp[0], dp=rows.dp[0], pp=pp, near=near),
        table_share=np.zeros_like(pp),
    )
    return step_scores(context, pipelines, candidates, stage_replicas(context, rows, passes))


def stage_p2p_s(context: Context, rows: StageRows) -> Floats:
    """Return the seconds from each stage to the next and back, [2, S - 1, N]; 0 after the last stage."""
    ends = [
        P2pEnd(tp=rows.tp[side], dp=rows.dp[side], mbs=rows.mbs[side], sp=rows.sp[side].astype(np.float64))
        for side in (slice(None, -1), slice(1, None))
    ]
    near = rows.placement[1:] == Placement.TP_CP_EP_PP_DP
    forward_s = p2p_between_s(context, ends[0], ends[1], rows.cp[1:], near, rows.pp[1:])
    backward_s = p2p_between_s(context, ends[1], ends[0], rows.cp[1:], near, rows.pp[1:])
    return np.stack([forward_s, backward_s]) * rows.exists[1:]


def _mean_p2p_s(context: Context, time: PipelineTime, pp: Floats, each_p2p_s: Floats) -> Floats:
    """Return the mean seconds of one of ``time.exposed_p2p`` transfers.

    Sends during computation are exposed equally at all stages; blocking sends are exposed at the crossings of filling
    and draining, and otherwise at the slowest stage.
    """
    if not each_p2p_s.shape[1]:
        return np.zeros_like(pp)
    crossings = 2 * (pp - 1)
    mean = each_p2p_s.sum(axis=(0, 1)) / np.maximum(crossings, 1.0)
    if context.framework.overlap_pipeline:
        return np.asarray(mean)
    longest = each_p2p_s.max(axis=(0, 1))
    return np.asarray((crossings * mean + (time.exposed_p2p - crossings) * longest) / np.maximum(time.exposed_p2p, 1.0))
