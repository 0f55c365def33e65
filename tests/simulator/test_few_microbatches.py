"""Pipelines of few microbatches: the closed forms against the engine, within 3 %."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import step_costs
from forerun.simulator.events.step.steady import step_figures
from forerun.spaces.strategies import Context, parse_strategy, table_of

CASES = {
    "llama3-8b": ("tp1 pp{pp} dp{dp} mbs1 vpp{vpp} {zero} schedule=interleaved split=balanced",),
    "gpt3-13b": ("tp2 pp{pp} dp{dp} mbs1 vpp{vpp} {zero} sp schedule=interleaved recompute=full split=balanced",),
    "mixtral-8x7b": (
        "tp1 pp{pp} dp{dp} ep{dp} mbs1 vpp{vpp} {zero} schedule=interleaved split=balanced",
        "tp1 pp{pp} dp{dp} ep{dp} mbs1 vpp{vpp} {zero} schedule=interleaved split=balanced with=moe-overlap",
    ),
    "deepseek-v2-lite": (
        "tp1 pp{pp} dp{dp} ep{dp} mbs1 vpp{vpp} {zero} schedule=interleaved split=balanced with=moe-overlap",
    ),
}
"""Strategies of models whose first and last virtual stages differ from the others by what they hold."""


@cache
def context_of(model: str) -> Context:
    return resolve(Request(model=model, cluster="dgx-h100", gpus="64", global_batch=64, seq_len=4096)).context


@settings(max_examples=tries(40))
@given(data=st.data(), model=st.sampled_from(sorted(CASES)))
@pytest.mark.slow
def test_closed_forms_follow_the_engine(data: st.DataObject, model: str) -> None:
    """Microbatches from once to four times the pipeline's depth, with reductions under passes and without replicas."""
    pp, vpp = data.draw(st.sampled_from([2, 4, 8])), data.draw(st.integers(2, 3))
    dp, groups = data.draw(st.sampled_from([2, 4])), data.draw(st.integers(1, 4))
    text = data.draw(st.sampled_from(CASES[model]))
    text = text.format(pp=pp, vpp=vpp, dp=dp, zero=data.draw(st.sampled_from(["", "zero1"])))
    made = context_of(model)
    context = replace(made, workload=replace(made.workload, global_batch=groups * pp * dp))
    strategy = parse_strategy(" ".join(text.split()))
    closed_s = float(score(context, table_of([strategy])).step_time_s[0])

    assert closed_s == pytest.approx(step_figures(step_costs(assign(context, strategy))).step_time_s, rel=0.03), text


@pytest.mark.parametrize(
    "text",
    [
        "tp2 pp4 dp16 mbs4 sp recompute=full:3 placement=tp-cp-ep-pp-dp",
        "tp2 pp8 dp2 cp4 mbs8 zero1 recompute=full:8 placement=tp-cp-ep-pp-dp",
        "tp4 pp2 dp8 cp2 mbs16 vpp12 sp recompute=full:2 schedule=interleaved placement=tp-cp-ep-pp-dp",
        "tp2 pp4 dp16 mbs4 sp recompute=full:3 schedule=gpipe",
    ],
)
def test_reductions_slow_the_last_pass_of_every_rank(text: str) -> None:
    """The last microbatch goes back through ranks each of which reduces its gradients beside that pass."""
    request = Request(
        model="gpt3-175b", cluster="dgx-a100-80", gpus="128", global_batch=256, seq_len=2048, framework="generic"
    )
    context, strategy = resolve(request).context, parse_strategy(text)
    assert context.overlap.computation > 1.1
    closed_s = float(score(context, table_of([strategy])).step_time_s[0])
    assert closed_s == pytest.approx(step_figures(step_costs(assign(context, strategy))).step_time_s, rel=0.015)


@pytest.mark.parametrize("overlap", ["", " with=moe-overlap"])
@pytest.mark.parametrize("vpp", [2, 4])
def test_a_mixture_whose_first_and_last_stages_are_lighter(vpp: int, overlap: str) -> None:
    """16 microbatches on 8 stages: dense layers and the embedding first, an MTP block and the head last."""
    request = Request(
        model="deepseek-v3", cluster="dgx-h100", gpus="16384", global_batch=16384, seq_len=4096, precision="fp8"
    )
    context = resolve(request).context
    strategy = parse_strategy(
        f"tp2 pp8 dp1024 ep64 mbs1 vpp{vpp} zero1 sp schedule=interleaved split=light-mtp{overlap}"
    )
    closed_s = float(score(context, table_of([strategy])).step_time_s[0])

    assert closed_s == pytest.approx(step_figures(step_costs(assign(context, strategy))).step_time_s, rel=0.03)


def test_a_host_that_prepares_every_microbatch_lengthens_the_rounds() -> None:
    """Launch-bound passes of 4 ms, 3.5 ms of the host before the first of every microbatch on each device."""
    request = Request(model="bert-large", cluster="mi300x-platform", gpus="128", global_batch=256, seq_len=1024)
    context = resolve(request).context
    strategy = parse_strategy("tp2 pp8 dp1 cp8 mbs1 vpp3 sp recompute=selective schedule=interleaved")
    closed_s = float(score(context, table_of([strategy])).step_time_s[0])

    assert closed_s == pytest.approx(step_figures(step_costs(assign(context, strategy))).step_time_s, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "tp2 pp4 dp4 cp2 ep2 mbs1 vpp3 zero1 sp recompute=selective",
        "tp4 pp4 dp2 cp2 ep2 mbs2 vpp3 zero1 sp recompute=full",
    ],
)
def test_long_replica_traffic_is_hidden_while_the_first_rank_waits_for_longer_virtual_stages(text: str) -> None:
    """Gathers and reductions take a third of a step; the first virtual stage has fewer layers than the next ones."""
    request = Request(model="mixtral-8x7b", cluster="dgx-h100", gpus="64", global_batch=32, seq_len=4096)
    context = resolve(request).context
    strategy = parse_strategy(
        f"{text} schedule=interleaved split=balanced placement=tp-cp-ep-pp-dp with=tp-comm-overlap"
    )
    closed_s = float(score(context, table_of([strategy])).step_time_s[0])

    assert closed_s == pytest.approx(step_figures(step_costs(assign(context, strategy))).step_time_s, rel=0.015)
