"""A flat strategy and its tree are the same: costs, events and memory, whatever model, framework and strategy."""

import dataclasses

import pytest
from forerun_examples import request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.events import StepCosts, event_scores, simulate
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.clusters import load_cluster
from forerun.spaces.strategies import Context, Strategy, parse_strategy, table_of
from forerun.spaces.trees import TreeStrategies, flat_of, legal_tree, model_layers, resolve_tree, tree_of, tree_yaml
from forerun.spaces.trees.document import parse_tree

STRATEGIES = (
    "tp2 pp4 dp4 mbs1 zero1",
    "tp4 pp2 dp4 mbs1 vpp3 schedule=interleaved sp",
    "dp8 mbs2",
    "dp8 mbs2 zero3",
    "tp2 pp2 dp8 mbs1 zero2 shard=4",
    "dp8 mbs2 zero2 recompute=full",
    "pp8 dp2 mbs1 placement=tp-cp-ep-pp-dp",
    "pp4 dp2 schedule=gpipe recompute=selective",
    "pp4 dp2 schedule=zb-h1",
    "pp4 dp2 vpp2 schedule=zb-v",
    "pp4 dp2 schedule=dualpipe",
    "pp3 dp2 layers=9,8,7 mbs2",
    "tp2 cp2 pp2 dp2 mbs1",
    "tp2/4 pp2 dp8/4 mbs1/2 sp",
    "pp2 dp2 recompute=full:3,none",
    "pp5 dp2 split=balanced",
)


def as_tree(context: Context, strategy: Strategy) -> TreeStrategies:
    """Return a strategy as a legal tree, on the way through its YAML form."""
    root = parse_tree(tree_yaml(tree_of(context, strategy)))
    return legal_tree(context, resolve_tree(root, model_layers(context.model)))


def plain(costs: StepCosts) -> StepCosts:
    """Return costs without what trees say for each stage and flat strategies for the step."""
    stages = tuple(dataclasses.replace(stage, zero=None) for stage in costs.stages)
    each_p2p_s = costs.each_p2p_s or ((costs.p2p_s, costs.p2p_s),) * (len(costs.chunks) - 1)
    return dataclasses.replace(costs, stages=stages, each_p2p_s=each_p2p_s)


@pytest.mark.parametrize(
    ("text", "framework"),
    [*((text, "generic") for text in STRATEGIES), *((text, "megatron-deepspeed") for text in STRATEGIES[::3])],
)
def test_events_and_memory_are_the_same(text: str, framework: str) -> None:
    context, strategy = request(framework=framework, global_batch=48), parse_strategy(text)
    generic = dataclasses.replace(context.framework, legality=request(framework="generic").framework.legality)
    if strategy.cp > 1:  # which needs a flash kernel
        generic = dataclasses.replace(generic, attention="flash")
    context = dataclasses.replace(context, framework=generic)
    tree = simulate_tree(context, as_tree(context, strategy))
    flat = event_scores(context, table_of([strategy]))

    assert tree.scores.step_time_s[0] == pytest.approx(flat.step_time_s[0], rel=1e-12)
    assert tree.scores.peak_memory_bytes[0] == pytest.approx(flat.peak_memory_bytes[0], rel=1e-12)
    assert tree.scores.peak_stage[0] == flat.peak_stage[0]
    for part, value in flat.time_s.items():
        assert tree.scores.time_s[part][0] == pytest.approx(value[0], rel=1e-9, abs=1e-12)
    for part, value in flat.memory_bytes.items():
        assert tree.scores.memory_bytes[part][0] == pytest.approx(value[0], rel=1e-9, abs=1.0)
    assert tree.events.step_time_s == pytest.approx(simulate(context, strategy).step_time_s, rel=1e-12)


@pytest.mark.parametrize("text", ["tp2 pp4 dp4 mbs1 zero1", "tp4 pp2 dp2 mbs1 sp recompute=full", "dp16 zero1"])
def test_contention_is_the_same(text: str) -> None:
    made = request(framework="generic", global_batch=64)
    context, strategy = dataclasses.replace(made, cluster=load_cluster("a100-pcie")), parse_strategy(text)
    tree = simulate_tree(context, as_tree(context, strategy), contention=True)
    flat = simulate(context, strategy, contention=True)

    assert tree.events.contention is not None
    assert tree.events.step_time_s == pytest.approx(flat.step_time_s, rel=1e-12)
    scores = event_scores(context, table_of([strategy]), contention=True)
    assert tree.scores.step_time_s[0] == pytest.approx(scores.step_time_s[0], rel=1e-12)


@pytest.mark.slow  # many trees
@settings(max_examples=tries(20))
@given(data=st.data())
def test_costs_are_the_same_and_the_tree_is_known_to_be_flat(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 3, whole=True))
    for row in range(len(table)):
        strategy = table.strategy(row)
        tree, flat = as_tree(context, strategy), step_costs(assign(context, strategy))
        again = flat_of(context, tree)

        assert plain(step_costs(assign_tree(context, tree))) == plain(flat)
        assert again is not None
        assert step_costs(assign(context, again)) == flat
