"""Bubbles of pipelines whose stages are alike, against their closed forms and against the schedule played out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import dense_model, request

from forerun.simulator import score
from forerun.simulator.pipeline.closed_forms import PipelineTime, exposed_p2p_s, pipeline_time
from forerun.spaces.schedules.stage_times import StageTimes
from forerun.spaces.schedules.zb_v import VeePasses, zb_v_s
from forerun.spaces.strategies import Schedule, Strategy, table_of

F, B, W = 1.0, 2.5, 1.0
"""Seconds of a stage on a microbatch: forward, backward, and of that the weight gradients."""


def uniform(schedule: Schedule, pp: int, microbatches: int, vpp: int = 1, *, overlap: bool = True) -> PipelineTime:
    one = np.ones((1, 1))
    stages = StageTimes(forward_s=F * one, backward_s=B * one, weight_s=W * one, multiplicity=pp * one, first=0 * one)
    columns = [np.array([float(value)]) for value in (schedule, pp, vpp, microbatches)]
    return pipeline_time(stages, *columns, overlap=overlap)


def played_1f1b(microbatches: int, forward_s: Sequence[float], backward_s: Sequence[float]) -> float:
    """Play 1F1B: every stage warms up, alternates and drains; a pass waits for its stage and for its input."""
    programs, pp = [], len(forward_s)
    for stage in range(pp):
        warm = min(pp - 1 - stage, microbatches)
        order = [("f", m) for m in range(warm)]
        for m in range(microbatches - warm):
            order += [("f", warm + m), ("b", m)]
        programs.append(order + [("b", m) for m in range(microbatches - warm, microbatches)])
    done: dict[tuple[str, int, int], float] = {}
    free, position = [0.0] * pp, [0] * pp
    while any(position[stage] < len(programs[stage]) for stage in range(pp)):
        for stage in range(pp):
            while position[stage] < len(programs[stage]):
                kind, m = programs[stage][position[stage]]
                source = stage - 1 if kind == "f" else stage + 1
                if 0 <= source < pp and (kind, source, m) not in done:
                    break
                free[stage] = max(free[stage], done.get((kind, source, m), 0.0))
                free[stage] += forward_s[stage] if kind == "f" else backward_s[stage]
                done[kind, stage, m] = free[stage]
                position[stage] += 1
    return max(free)


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("extra", [0, 1, 8, 56])
def test_1f1b_takes_m_plus_pp_minus_1_passes(pp: int, extra: int) -> None:
    microbatches = pp + extra
    time = uniform(Schedule.ONE_F_ONE_B, pp, microbatches)

    assert time.total_s[0] == pytest.approx((microbatches + pp - 1) * (F + B), rel=1e-12)
    assert time.total_s[0] - time.busy_s[0] == pytest.approx((pp - 1) * (F + B), rel=1e-12)
    assert time.total_s[0] == pytest.approx(played_1f1b(microbatches, [F] * pp, [B] * pp), rel=1e-12)


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("microbatches", [4, 12])
def test_the_bubble_of_1f1b_around_a_slow_stage_is_the_passes_before_and_behind_it(
    slow: int, microbatches: int
) -> None:
    factor = np.where(np.arange(4) == slow, 3.0, 1.0)[:, None]
    one = np.ones((4, 1))
    stages = StageTimes(
        forward_s=F * factor,
        backward_s=B * factor,
        weight_s=W * factor,
        multiplicity=one,
        first=np.arange(4.0)[:, None],
    )
    columns = [np.array([float(value)]) for value in (Schedule.ONE_F_ONE_B, 4, 1, microbatches)]
    time = pipeline_time(stages, *columns, overlap=True)

    played_s = played_1f1b(microbatches, list(F * factor[:, 0]), list(B * factor[:, 0]))
    assert time.total_s[0] == pytest.approx(played_s, rel=1e-12)


def test_gpipe_takes_as_long_as_1f1b() -> None:
    assert uniform(Schedule.GPIPE, 4, 8).total_s == pytest.approx(uniform(Schedule.ONE_F_ONE_B, 4, 8).total_s)


@pytest.mark.parametrize("vpp", [1, 2, 5])
def test_interleaving_divides_the_bubble_by_the_virtual_stages(vpp: int) -> None:
    time = uniform(Schedule.INTERLEAVED, 4, 8, vpp)

    assert time.total_s[0] - time.busy_s[0] == pytest.approx((4 - 1) * (F + B) / vpp, rel=1e-12)


def test_weight_gradients_fill_the_drain_of_zb_h1() -> None:
    time = uniform(Schedule.ZB_H1, 4, 8)

    assert time.total_s[0] - time.busy_s[0] == pytest.approx(3 * (F + (B - W) - W), rel=1e-12)


def test_zb_v_only_starts_staggered_when_all_passes_are_equal() -> None:
    """Three hops, each as late as one forward of a virtual stage takes; the step ends with a barrier."""
    one = np.ones((1, 1))
    passes = VeePasses(
        forward_s=(one, one), input_s=(one, one), weight_s=(one, one), multiplicity=4 * one, first=0 * one
    )

    assert zb_v_s(passes, np.array([4.0]), np.array([8.0]))[0] == 8 * 6.0 + 3


def test_bubble_of_dualpipe() -> None:
    time = uniform(Schedule.DUALPIPE, 8, 16)

    assert time.total_s[0] - time.busy_s[0] == pytest.approx((8 / 2 - 1) * ((F + B) + B - 3 * W), rel=1e-12)


@pytest.mark.parametrize("overlap", [True, False])
def test_no_hops_without_a_pipeline_and_never_fewer_than_all_borders_both_ways(overlap: bool) -> None:
    assert uniform(Schedule.ONE_F_ONE_B, 1, 8, 1, overlap=overlap).exposed_p2p[0] == 0
    for schedule, vpp in (
        (Schedule.ONE_F_ONE_B, 1),
        (Schedule.GPIPE, 1),
        (Schedule.INTERLEAVED, 3),
        (Schedule.ZB_V, 2),
    ):
        for count in (1, 2, 8):
            hops = uniform(schedule, 4, count, vpp, overlap=overlap).exposed_p2p[0]
            assert hops >= 2 * (4 * (vpp if schedule == Schedule.INTERLEAVED else 1) - 1)


def test_a_device_sends_one_transfer_after_the_other() -> None:
    """Hidden transfers that take longer than all passes decide the step: 2 vpp per microbatch on an inner stage."""
    time = uniform(Schedule.INTERLEAVED, 4, 8, 2)
    p2p_s = np.array([100.0])

    assert (time.total_s + exposed_p2p_s(time, np.zeros(1, dtype=np.intp), p2p_s)[0])[0] == pytest.approx(
        2 * 2 * 8 * 100.0
    )


def test_the_whole_score_divides_the_bubble_too() -> None:
    made = request(dense_model(layers=24))
    context = replace(made, framework=replace(made.framework, host_microbatch_s=0.0))
    plain = Strategy(pp=4, tp=2, dp=2)
    scores = score(
        context, table_of([plain] + [replace(plain, vpp=vpp, schedule=Schedule.INTERLEAVED) for vpp in (2, 3, 6)])
    )

    np.testing.assert_allclose(scores.time_s["bubble"][1:], scores.time_s["bubble"][0] / np.array([2, 3, 6]), rtol=1e-9)
    assert np.all(scores.time_s["bubble"] > 0)
