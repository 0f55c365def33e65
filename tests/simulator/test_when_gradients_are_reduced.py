"""Sharded gradients that are reduced with every microbatch, once per round, or once per step: time and memory."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator import score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import step_costs
from forerun.simulator.events.step.steady import step_figures
from forerun.simulator.replicas.sharded import gathers_of
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.schedules import Pass, PipelineShape, programs_of
from forerun.spaces.strategies import Context, Schedule, parse_strategy, table_of
from forerun.spaces.workload import Workload

LOOPED = "tp4 pp4 dp4 mbs1 vpp2 zero{} sp recompute=full schedule=interleaved"
PLAIN = "tp4 pp4 dp4 mbs1 zero{} sp recompute=full"
ALONE = "tp4 dp16 mbs1 zero{} sp recompute=full"


def context(sync: str, framework: str = "generic") -> Context:
    return Context(
        model=load_model("llama3-70b"),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=32, seq_len=4096),
        framework=switched(load_framework(framework), {"grad-sync": sync}),
    )


def parts(sync: str, text: str) -> dict[str, float]:
    scores = score(context(sync), table_of([parse_strategy(text)]))
    return {name: float(scores.memory_bytes[name][0]) for name in ("gradients",)} | {
        "data": float(scores.time_s["data"][0]),
        "step": float(scores.step_time_s[0]),
    }


@pytest.mark.parametrize("sync", ["microbatch", "round", "pipeline", "step"])
@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("text", [LOOPED, PLAIN, ALONE])
@pytest.mark.slow
def test_both_levels_agree(sync: str, zero: int, text: str) -> None:
    made, strategy = context(sync), parse_strategy(text.format(zero))
    closed = float(score(made, table_of([strategy])).step_time_s[0])
    assert closed == pytest.approx(step_figures(step_costs(assign(made, strategy))).step_time_s, rel=0.02)


def test_whole_gradients_travel_less_and_hold_as_much_as_unsharded_ones() -> None:
    asked = (("microbatch", 2), ("step", 2), ("step", 1))
    each, once, whole = (parts(sync, PLAIN.format(zero)) for sync, zero in asked)
    assert once["gradients"] == whole["gradients"] == pytest.approx(4 * each["gradients"], rel=0.01)
    assert once["data"] < each["data"] / 4
    assert parts("pipeline", PLAIN.format(2)) == once


def test_a_round_holds_one_virtual_stage_whole() -> None:
    each, turn, once = (parts(sync, LOOPED.format(2)) for sync in ("microbatch", "round", "pipeline"))
    assert turn["gradients"] == pytest.approx(each["gradients"] + once["gradients"] / 2)
    assert once["step"] < turn["step"] < each["step"]


def test_only_pipelines_wait_where_only_they_do() -> None:
    assert parts("pipeline", ALONE.format(2)) == parts("microbatch", ALONE.format(2)) != parts("step", ALONE.format(2))


def test_sharded_parameters_are_gathered_all_the_same() -> None:
    once, gathered = (parts("step", PLAIN.format(zero)) for zero in (2, 3))
    assert gathered["data"] > 2 * once["data"]


def test_pytorch_pipelines_reduce_once() -> None:
    assert load_framework("torchtitan").gradient_sync == "pipeline"


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.INTERLEAVED, Schedule.ZB_V])
@pytest.mark.parametrize("microbatches", [8, 16])
def test_parameters_that_stay_whole_are_gathered_behind_forward_passes_alone(
    schedule: Schedule, microbatches: int
) -> None:
    """As real steps of FSDP2 in PyTorch's pipelines do (``benchmarks/results``, fsdp-gathers): m + 1 of every
    virtual stage."""
    looped = schedule in (Schedule.INTERLEAVED, Schedule.ZB_V)
    programs = programs_of(int(schedule), PipelineShape(pp=4, vpp=2 if looped else 1, microbatches=microbatches))
    counted = [Counter[tuple[bool, int]]() for _ in programs]
    for program, count in zip(programs, counted, strict=True):
        whole = set[int]()
        for kind, _, chunk, _ in program:
            if kind != Pass.WEIGHT_GRADIENT and chunk not in whole:
                count[kind == Pass.FORWARD, chunk] += 1
            (whole.discard if kind == Pass.FORWARD else whole.add)(chunk)
    for count in counted:
        chunks = {chunk for _, chunk in count}
        assert all(count[True, chunk] + count[False, chunk] == microbatches + 1 for chunk in chunks)
    one = gathers_of(np.array([True]), np.array([float(schedule)]), np.array([float(microbatches)]), np.zeros(1))
    assert one.forward + one.backward == microbatches + 1
    if not looped:
        (last,) = {chunk for _, chunk in counted[-1]}
        assert (one.forward[0], one.backward[0]) == (counted[-1][True, last], counted[-1][False, last])


@pytest.mark.parametrize("text", [PLAIN, LOOPED, "tp4 pp4 dp4 mbs1 vpp2 zero{} sp recompute=full schedule=zb-v"])
def test_pytorch_pipelines_gather_half_and_hold_more(text: str) -> None:
    """Without overlap: m + 1 gathers, and those that fill the pipeline, where others gather 2 m and more."""
    alone = {"overlap_parameters": 0.0, "overlap_gradients": 0.0}
    kept, dropped = (
        replace(made, framework=replace(made.framework, **alone)) for made in (context("pipeline"), context("step"))
    )
    table = table_of([parse_strategy(text.format(3))])
    data = [float(score(made, table).time_s["data"][0]) for made in (kept, dropped)]
    once = float(score(kept, table_of([parse_strategy(text.format(2))])).time_s["data"][0])
    assert 0.45 < (data[0] - once) / (data[1] - once) < 0.65
    held = [float(score(made, table).memory_bytes["buffers"][0]) for made in (kept, dropped)]
    assert held[0] > held[1]
