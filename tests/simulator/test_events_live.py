"""A step that is written while it runs is the step of the whole graph, task by task and bit by bit."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from forerun_examples import request as small_request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import (
    KINDS,
    STREAMS,
    ChunkCost,
    Disturbance,
    StageCost,
    StepCosts,
    compile_step,
    execute,
    simulate,
    simulate_costs,
    step_costs,
)
from forerun.simulator.events.engine.live_graph import LiveGraph
from forerun.simulator.events.engine.live_run import run_live
from forerun.simulator.events.step.contention import Contention
from forerun.simulator.events.step.result import result_of_run
from forerun.simulator.events.step.strategy_step import step_contention, step_use
from forerun.simulator.events.step.tally import Tally
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules import PipelineShape
from forerun.spaces.strategies import Schedule, chunks_of_stage, parse_strategy

SHAPES = {
    Schedule.ONE_F_ONE_B: ((1, 1, 5), (2, 1, 6), (4, 1, 9)),
    Schedule.GPIPE: ((2, 1, 4), (3, 1, 5)),
    Schedule.INTERLEAVED: ((2, 2, 4), (3, 2, 6), (2, 3, 8)),
    Schedule.ZB_H1: ((2, 1, 4), (4, 1, 6)),
    Schedule.ZB_V: ((2, 2, 3), (3, 2, 7)),
    Schedule.DUALPIPE: ((2, 1, 4), (4, 1, 10)),
}
seconds = st.sampled_from((0.0, 0.25, 0.5, 1.0, 1.7, 3.1))
"""Many equal ones, so that much happens at the same instant."""


def same(costs: StepCosts, **simulated: Any) -> None:
    """Compare times, causes, names, memory and figures of both ways."""
    graph = compile_step(costs, **simulated)
    run = execute(graph)
    whole, live = result_of_run(costs, graph, run), simulate_costs(costs, **simulated)

    assert live.records.start_s.tolist() == run.start_s.tolist()
    assert live.records.end_s.tolist() == run.end_s.tolist()
    assert live.records.cause.tolist() == run.cause.tolist()
    assert [task.name for task in live.timeline()] == [
        " ".join([KINDS[kind], *map(str, tag)]) for kind, tag in zip(graph.kind, graph.tag, strict=True)
    ]
    if simulated.get("replicas", 1) == 1:  # numbers of collectives do not follow time on other replicas
        assert live.stages == whole.stages
    assert live.critical_path == whole.critical_path
    assert live.critical_s == whole.critical_s
    for one, other in zip(live.memory, whole.memory, strict=True):
        assert one.time_s.tolist() == other.time_s.tolist()
        assert one.held_bytes.tolist() == other.held_bytes.tolist()


@st.composite
def steps(draw: st.DrawFn) -> StepCosts:
    schedule = draw(st.sampled_from(sorted(SHAPES)))
    pp, vpp, microbatches = draw(st.sampled_from(SHAPES[schedule]))
    chunks = tuple(draw(chunk_costs()) for _ in range(pp * vpp))
    stages, zero = [], draw(st.integers(0, 3))
    for stage in range(pp):
        own = chunks_of_stage(pp, vpp, schedule, stage)
        share = {chunk: 1 / len(own) for chunk in own}
        more = zero < 3 and draw(st.booleans())
        also = (StageCost(reduce_s=0.4, gather_s=0.3, buckets=2, share=share, zero=3),) if more else ()
        reduce_s, gather_s = draw(seconds), draw(seconds)
        stages.append(
            StageCost(
                reduce_s=reduce_s,
                gather_s=gather_s,
                optimizer_s=draw(seconds),
                buckets=draw(st.integers(1, 4)),
                share=share,
                fixed_bytes=7.0,
                also=also,
            )
        )
    return StepCosts(
        schedule=int(schedule),
        shape=PipelineShape(pp=pp, vpp=vpp, microbatches=microbatches),
        chunks=chunks,
        stages=tuple(stages),
        p2p_s=draw(seconds),
        overlap_p2p=draw(st.booleans()),
        one_port=draw(st.booleans()),
        tied_s=draw(seconds),
        zero=zero,
        overlap_gradients=draw(st.sampled_from((0.0, 0.5, 1.0))),
        overlap_parameters=draw(st.sampled_from((0.0, 0.5, 1.0))),
        overlap_slowdown=draw(st.sampled_from((1.0, 1.3))),
        traffic_slowdown=draw(st.sampled_from((1.0, 1.2))),
        host_step_s=draw(seconds),
        host_microbatch_s=draw(seconds),
        host_bytes_per_s=4.0,
    )


@st.composite
def chunk_costs(draw: st.DrawFn) -> ChunkCost:
    backward_s = draw(seconds)
    return ChunkCost(
        forward_s=draw(seconds),
        backward_s=backward_s,
        weight_s=backward_s / 2,
        parts={"compute": 1.0},
        kept_bytes=draw(st.integers(0, 5)),
        logit_bytes=draw(st.integers(0, 2)),
        working_bytes=draw(st.integers(0, 2)),
        host_bytes=draw(st.sampled_from((0, 0, 2))),
        fetch_bytes=draw(st.sampled_from((0, 0, 3))),
        fetches=3,
    )


@pytest.mark.slow  # many graphs, twice each
@settings(max_examples=tries(80))
@given(costs=steps(), replicas=st.sampled_from((1, 1, 2, 3)), jitter=st.sampled_from((0.0, 0.0, 0.2)))
def test_a_random_step_is_that_of_the_whole_graph(costs: StepCosts, replicas: int, jitter: float) -> None:
    same(costs, replicas=replicas, disturbance=Disturbance(seed=5, jitter=jitter, slow={0: 1.5}) if jitter else None)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    "text", ["pp4 dp4 mbs1 zero1", "pp4 dp4 mbs1 zero2", "pp2 dp8 zero3", "pp4 dp4 vpp2 schedule=interleaved"]
)
@pytest.mark.slow
def test_a_step_with_contention_is_that_of_the_whole_graph(text: str, apart: bool) -> None:
    made = small_request(cluster=load_cluster("aws-p4d"), framework="generic", global_batch=32)
    strategy = parse_strategy(f"{text} placement=tp-cp-ep-pp-dp")
    costs = step_costs(assign(made, strategy))
    shared: Contention = step_contention(assign(made, strategy), costs, every_replica=apart)

    assert shared.shared
    same(costs, replicas=shared.simulated, contention=shared)


@settings(max_examples=tries(20))
@given(costs=steps())
def test_figures_without_a_timeline_are_those_with_one(costs: StepCosts) -> None:
    use, result = step_use(costs), simulate_costs(costs)

    assert (use.step_time_s, use.stages, use.occupied_s) == (result.step_time_s, result.stages, result.occupied_s)


@pytest.mark.slow  # a step of many tasks
def test_memory_grows_with_live_tasks_and_not_with_all() -> None:
    """Eight times the microbatches: less than a tenth more; and 60 bytes for every further task of a timeline."""
    costs = step_costs(assign(small_request(framework="generic", global_batch=64), parse_strategy("dp8 mbs4 zero3")))

    def peak(count: int, *, timeline: bool) -> tuple[int, int]:
        longer = replace(costs, shape=replace(costs.shape, microbatches=count))
        tracemalloc.start()
        result = simulate_costs(longer) if timeline else step_use(longer)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, len(getattr(result, "records", ()))

    peak(8, timeline=True)
    assert peak(128, timeline=False)[0] < 1.1 * peak(16, timeline=False)[0]
    (low, few), (high, many) = peak(16, timeline=True), peak(128, timeline=True)
    assert (high - low) / (many - few) < 100


def test_a_source_that_writes_too_late_is_refused() -> None:
    class Late:
        """Writes what could have started at once when another task ends."""

        graph = LiveGraph(["work"])
        paused = False

        def open(self) -> None:
            for name in STREAMS:
                self.graph.add_stream(name, device=0)
            self.first = self.graph.add(0, 1.0, 0, tag=(0, 0))

        def advance(self, task: int) -> None:
            if task == self.first:
                self.graph.add(0, 1.0, 1, tag=(0, 0))

    source = Late()
    source.open()
    with pytest.raises(RuntimeError, match="written after it could have started, when work 0 0 on compute ended"):
        run_live(source, Tally(source.graph))


def test_a_circle_is_named_though_only_some_of_it_was_written() -> None:
    setting, strategy = small_request(framework="generic", global_batch=32), parse_strategy("pp4 dp2 mbs1")
    costs = step_costs(assign(setting, strategy))
    assert simulate(setting, strategy).step_time_s > 0
    with pytest.raises(RequestError, match=r"finite times|no cycle"):
        simulate_costs(replace(costs, p2p_s=float("nan")))
