"""Steps on uniform stages take exactly what the published closed forms say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.events import (
    STREAMS,
    ChunkCost,
    EventResult,
    StageCost,
    StepCosts,
    compile_step,
    execute,
    simulate_costs,
)
from forerun.simulator.pipeline.closed_forms import exposed_p2p_count, exposed_p2p_s, pipeline_time
from forerun.simulator.stages.plan import in_flight
from forerun.spaces.schedules import Pass, PipelineShape, programs_of
from forerun.spaces.schedules.stage_times import StageTimes
from forerun.spaces.strategies import Schedule

EXACT = 1e-9


def uniform(
    schedule: Schedule, pp: int, vpp: int, count: int, times: tuple[float, float, float], **more: object
) -> StepCosts:
    """Return the costs of a pipeline of equal virtual stages; ``times``: forward, input gradient, weight gradient."""
    forward_s, input_s, weight_s = times
    chunk = ChunkCost(
        forward_s=forward_s,
        backward_s=input_s + weight_s,
        weight_s=weight_s,
        parts={"compute": forward_s + input_s + weight_s},
        kept_bytes=1.0,
    )
    shape = PipelineShape(pp=pp, vpp=vpp, microbatches=count)
    chunks = shape.chunks if schedule != Schedule.DUALPIPE else pp
    share = dict.fromkeys(range(chunks), 1 / vpp)
    return StepCosts(
        schedule=schedule,
        shape=shape,
        chunks=(chunk,) * chunks,
        stages=(StageCost(share=share),) * pp,
        **more,  # type: ignore[arg-type]  # the keywords of StepCosts
    )


def step(
    schedule: Schedule, pp: int, vpp: int, count: int, times: tuple[float, float, float], **more: object
) -> EventResult:
    return simulate_costs(uniform(schedule, pp, vpp, count, times, **more))


seconds = st.floats(0.1, 3.0)
passes = st.tuples(seconds, seconds, seconds)


@settings(max_examples=tries(40))
@given(pp=st.integers(1, 8), extra=st.integers(0, 9), times=passes)
def test_1f1b_and_gpipe_fill_and_drain_once(pp: int, extra: int, times: tuple[float, float, float]) -> None:
    """(m + pp - 1)(f + b), bubble (pp - 1)/(m + pp - 1): arXiv 1811.06965 and 2104.04473, section 2.2."""
    count = pp + extra
    expected = (count + pp - 1) * sum(times)
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE):
        result = step(schedule, pp, 1, count, times)
        assert result.step_time_s == pytest.approx(expected, rel=EXACT)
        assert result.bubble_share == pytest.approx((pp - 1) / (count + pp - 1), rel=EXACT, abs=EXACT)


@settings(max_examples=tries(30))
@given(pp=st.integers(2, 6), vpp=st.integers(2, 4), groups=st.integers(1, 4), times=passes)
def test_interleaving_divides_the_bubble_by_the_virtual_stages(
    pp: int, vpp: int, groups: int, times: tuple[float, float, float]
) -> None:
    """m vpp + pp - 1 passes of a virtual stage each way: arXiv 2104.04473, section 2.2.2."""
    count = groups * pp
    result = step(Schedule.INTERLEAVED, pp, vpp, count, times)

    assert result.step_time_s == pytest.approx((count * vpp + pp - 1) * sum(times), rel=EXACT)


@settings(max_examples=tries(40))
@given(pp=st.integers(2, 8), extra=st.integers(0, 9), times=passes)
def test_zb_h1_leaves_forward_and_input_gradient_less_the_weight_gradient(
    pp: int, extra: int, times: tuple[float, float, float]
) -> None:
    """(pp - 1)(f + b - w) as long as w is the shortest (arXiv 2401.10241, section 2.3); a longer one does not fit into
    the drain and holds up the input gradients behind it."""
    forward_s, input_s, weight_s = times
    count = 2 * pp + extra
    bubble_s = (pp - 1) * max(forward_s + input_s - weight_s, forward_s, input_s)
    result = step(Schedule.ZB_H1, pp, 1, count, times)

    assert result.step_time_s == pytest.approx(count * sum(times) + bubble_s, rel=EXACT)


@pytest.mark.parametrize("pp", [2, 4, 6, 8, 10])
@pytest.mark.parametrize("more", [0, 2, 10])
def test_dualpipe_with_equal_passes(pp: int, more: int) -> None:
    """(pp/2 - 1)(f&b + b - 3w), b the whole backward pass: arXiv 2412.19437, table 2."""
    count = 2 * pp + more
    result = step(Schedule.DUALPIPE, pp, 1, count, (1.0, 1.0, 1.0))

    assert result.step_time_s == pytest.approx(3 * count + (pp / 2 - 1) * (3 + 2 - 3), rel=EXACT)


@pytest.mark.parametrize("pp", [2, 3, 4, 8])
def test_zb_v_with_equal_passes_leaves_no_device_idle_between_its_first_and_last_pass(pp: int) -> None:
    """arXiv 2405.15362, section 4. Devices begin one pass after the other, so a step that ends in a barrier lasts
    pp - 1 passes longer."""
    count = 3 * pp
    result = step(Schedule.ZB_V, pp, 2, count, (1.0, 1.0, 1.0))
    graph = compile_step(result.costs)
    run = execute(graph)
    for device in range(pp):
        own = [
            t
            for t in range(len(graph))
            if graph.stream[t] == len(STREAMS) * device and graph.kind[t] <= Pass.WEIGHT_GRADIENT
        ]
        assert max(run.end_s[t] for t in own) - min(run.start_s[t] for t in own) == pytest.approx(6 * count, rel=EXACT)

    assert result.step_time_s == pytest.approx(6 * count + pp - 1, rel=EXACT)


@settings(max_examples=tries(30))
@given(times=st.lists(passes, min_size=2, max_size=5), count=st.integers(1, 8), p2p=st.floats(0.0, 0.1))
def test_composition_gives_what_every_event_gives(
    times: list[tuple[float, float, float]], count: int, p2p: float
) -> None:
    """DistSim's composition: of each device's list, the first item whose inputs have come starts when the device is
    free. Unequal stages, transfers that do not block and are shorter than any pass, so that none waits for another."""
    pp = len(times)
    costs = uniform(Schedule.ONE_F_ONE_B, pp, 1, count, (1.0, 1.0, 1.0))
    chunks = tuple(
        ChunkCost(forward_s=f, backward_s=b + w, weight_s=w, parts={"compute": f + b + w}) for f, b, w in times
    )
    costs = StepCosts(
        schedule=costs.schedule, shape=costs.shape, chunks=chunks, stages=costs.stages, p2p_s=p2p, overlap_p2p=True
    )

    assert simulate_costs(costs).step_time_s == pytest.approx(composed(costs), rel=EXACT)


def composed(costs: StepCosts) -> float:
    """Return the end of a step by walking every device's list in rounds."""
    programs = [list(program) for program in programs_of(costs.schedule, costs.shape)]
    free = [0.0] * len(programs)
    arrival: dict[tuple[bool, int, int], float] = {}
    while any(programs):
        for device, program in enumerate(programs):
            while program:
                kind, microbatch, chunk, _ = program[0]
                forward = kind == Pass.FORWARD
                before = (forward, microbatch, chunk - 1 if forward else chunk + 1)
                if before[2] not in (-1, len(costs.chunks)) and before not in arrival:
                    break
                cost = costs.chunks[chunk]
                start = max(free[device], arrival.get(before, 0.0))
                free[device] = start + (cost.forward_s if forward else cost.backward_s)
                arrival[forward, microbatch, chunk] = free[device] + costs.p2p_s
                program.pop(0)
    return max(free)


def test_blocking_transfers_take_their_time_from_the_sender() -> None:
    """Two stages: one transfer each way of the first microbatch stands between them; every further one blocks too."""
    for count in (1, 4):
        blocking = step(Schedule.GPIPE, 2, 1, count, (1.0, 1.0, 1.0), p2p_s=0.5, overlap_p2p=False)
        assert blocking.step_time_s == pytest.approx((count + 1) * 3.0 + 2 * 0.5 + 2 * (count - 1) * 0.5, rel=EXACT)


def test_overlapped_transfers_delay_1f1b_once_per_microbatch() -> None:
    """Stages take turns in 1F1B: every other pair of passes waits for a transfer there and a transfer back, which no
    stream can hide."""
    for count in (2, 4, 8):
        result = step(Schedule.ONE_F_ONE_B, 2, 1, count, (1.0, 1.0, 1.0), p2p_s=0.25, overlap_p2p=True)
        assert result.step_time_s == pytest.approx((count + 1) * 3.0 + count * 0.25, abs=0.25 + EXACT)
        assert result.step_time_s > (count + 1) * 3.0 + (count - 1) * 0.25


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("pp", [2, 3, 4, 8])
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.slow
def test_short_transfers_lengthen_a_step_by_a_known_number_of_hops(pp: int, groups: int, overlap: bool) -> None:
    """The core counts the hops that the engine waits for; no published form has them."""
    count = groups * pp
    for schedule, vpp in (
        (Schedule.GPIPE, 1),
        (Schedule.ONE_F_ONE_B, 1),
        (Schedule.INTERLEAVED, 3),
        (Schedule.ZB_H1, 1),
        (Schedule.ZB_V, 2),
    ):
        without, with_hops = (
            step(schedule, pp, vpp, count, (1.0, 1.0, 1.0), p2p_s=p2p_s, overlap_p2p=overlap).step_time_s
            for p2p_s in (0.0, 1e-4)
        )
        columns = [np.array([float(value)]) for value in (schedule, pp, vpp, count)]
        hops = exposed_p2p_count(*columns, overlap=overlap)[0]
        assert (with_hops - without) / 1e-4 == pytest.approx(hops, abs=1e-6), schedule.name


@pytest.mark.parametrize(("schedule", "near"), [(Schedule.GPIPE, EXACT), (Schedule.ONE_F_ONE_B, 0.015)])
@pytest.mark.parametrize("slow", [0, 3])
@pytest.mark.parametrize("p2p_s", [0.02, 0.1, 0.5])
def test_blocking_transfers_are_not_waited_for_by_an_end_that_is_slower(
    schedule: Schedule, near: float, slow: int, p2p_s: float
) -> None:
    pp, count = 4, 16
    costs = uniform(schedule, pp, 1, count, (1.0, 1.0, 1.0), p2p_s=p2p_s, overlap_p2p=False)
    chunk = replace(costs.chunks[0], forward_s=1.1, backward_s=2.2)
    chunks = tuple(chunk if stage == slow else one for stage, one in enumerate(costs.chunks))
    one = np.ones((pp, 1))
    stages = StageTimes(
        forward_s=np.array([[c.forward_s] for c in chunks]),
        backward_s=np.array([[c.backward_s] for c in chunks]),
        weight_s=one,
        multiplicity=one,
        first=np.arange(pp, dtype=float)[:, None],
    )
    time = pipeline_time(stages, *(np.array([float(value)]) for value in (schedule, pp, 1, count)), overlap=False)
    waits_s, _ = exposed_p2p_s(time, np.zeros(1, dtype=np.intp), np.array([p2p_s]))
    played = simulate_costs(replace(costs, chunks=chunks)).step_time_s

    assert (time.total_s + waits_s)[0] == pytest.approx(played, rel=near)


@pytest.mark.parametrize("microbatches", [3, 4, 8, 16])
@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.ZB_H1])
def test_the_core_keeps_on_every_stage_what_the_engine_keeps(schedule: Schedule, microbatches: int) -> None:
    pp = 4
    played = [stage.peak_bytes for stage in step(schedule, pp, 1, microbatches, (1.0, 1.2, 0.8)).stages]
    stage = np.arange(float(pp))
    columns = (np.full(pp, float(value)) for value in (pp, 1, microbatches))
    pipeline, virtual, count = columns

    assert in_flight(np.full(pp, float(schedule)), stage, pipeline, virtual, count).tolist() == played


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZB_V])
def test_memory_peaks_at_what_is_in_flight(schedule: Schedule) -> None:
    """One byte per microbatch and virtual stage; the first stage keeps all of GPipe's, pp of 1F1B's, and so on."""
    pp, count = 4, 16
    vpp = 2 if schedule in (Schedule.INTERLEAVED, Schedule.ZB_V) else 1
    kept = {
        Schedule.GPIPE: count,
        Schedule.ONE_F_ONE_B: pp,
        Schedule.INTERLEAVED: 2 * (pp - 1) + (vpp - 1) * pp + 1,
        Schedule.ZB_V: 2 * pp,
    }[schedule]
    first = step(schedule, pp, vpp, count, (1.0, 1.0, 1.0)).stages[0]

    assert first.peak_bytes == kept
    assert first.peak_task.startswith("forward")


@settings(max_examples=tries(60))
@given(
    stages=st.lists(st.tuples(st.floats(0.5, 1.5), st.floats(1.5, 2.5)), min_size=2, max_size=8),
    count=st.integers(1, 24),
    lengths=st.lists(st.integers(1, 3), min_size=8, max_size=8),
)
def test_1f1b_of_unequal_stages_stays_near_the_engine(
    stages: list[tuple[float, float]], count: int, lengths: list[int]
) -> None:
    """Runs of equal stages, up to thrice as slow as others, in any order: within 5 %, never beyond the engine's."""
    runs = [((f, ratio * f), length) for (f, ratio), length in zip(stages, lengths, strict=False)]
    each = [stage for stage, length in runs for _ in range(length)]
    chunks = [
        ChunkCost(forward_s=f, backward_s=b, weight_s=0.0, parts={"compute": f + b}, kept_bytes=1.0) for f, b in each
    ]
    costs = StepCosts(
        schedule=Schedule.ONE_F_ONE_B,
        shape=PipelineShape(pp=len(each), vpp=1, microbatches=count),
        chunks=tuple(chunks),
        stages=tuple(StageCost(share={number: 1.0}) for number in range(len(each))),
    )
    forward_s, backward_s, multiplicity = (
        np.array([[value] for value in values], dtype=float)
        for values in zip(*((f, b, length) for (f, b), length in runs), strict=True)
    )
    first = np.cumsum(multiplicity, axis=0) - multiplicity
    times = StageTimes(
        forward_s=forward_s, backward_s=backward_s, weight_s=0.0 * forward_s, multiplicity=multiplicity, first=first
    )
    columns = [np.array([float(value)]) for value in (Schedule.ONE_F_ONE_B, len(each), 1, count)]
    played = simulate_costs(costs).step_time_s

    assert pipeline_time(times, *columns, overlap=True).total_s[0] == pytest.approx(played, rel=0.05)
    assert pipeline_time(times, *columns, overlap=True).total_s[0] <= played * (1 + EXACT)
