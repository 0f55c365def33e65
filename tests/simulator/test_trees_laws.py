"""Laws that every tree keeps, whatever it mixes: its parts add up, its memory is given back, its critical path has no
gaps, and what it says does not depend on how it is written."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from forerun_examples import dense_model, moe_model, request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.events.trees import TreeResult, simulate_tree
from forerun.simulator.score_table import TIME_PARTS
from forerun.spaces.strategies import Context
from forerun.spaces.trees import Node, legal_tree, model_layers, resolve_tree, tree_yaml
from forerun.spaces.trees.document import parse_tree

LAYERS = 24
SETTINGS = [
    {"schedule": {"recompute": "full"}},
    {"schedule": {"recompute": "selective"}},
    {"memory": {"zero": 1}},
    {"memory": {"zero": 3}},
    {"compute": {"tp": 1}},
    {"compute": {"tp": 4}},
    {"compute": {"tp": 2, "sp": True}},
    {"compute": {"cp": 2}},
    {"memory": {"host": ["optimizer"]}},
    {"memory": {"host": ["activations", "parameters"]}},
]


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    """One to three stages of eight devices, with runs of layers in them that are set otherwise."""
    stages = draw(st.integers(1, 3))
    borders = sorted(draw(st.lists(st.integers(1, LAYERS - 1), min_size=stages - 1, max_size=stages - 1, unique=True)))
    children = []
    for number, (low, high) in enumerate(itertools.pairwise([0, *borders, LAYERS])):
        first = draw(st.integers(low, high - 1))
        runs = [
            {"layers": f"{first}-{draw(st.integers(first, high - 1))}", **draw(st.sampled_from(SETTINGS))}
            for _ in range(draw(st.integers(0, 1)))
        ]
        layers = [*(["embedding"] if not low else []), f"{low}-{high - 1}", *(["head"] if high == LAYERS else [])]
        own = draw(st.sampled_from([{}, *SETTINGS]))
        children.append({"layers": layers, "devices": f"{8 * number}-{8 * number + 7}", "children": runs, **own})
    order = draw(st.sampled_from(["1f1b", "gpipe"])) if stages > 1 else "1f1b"
    return {"schedule": {"order": order, "microbatches": 4}, "compute": {"tp": 2}, "children": children}


def context(*, moe: bool) -> Context:
    made = request(moe_model() if moe else dense_model(), framework="generic", global_batch=64)
    return replace(made, cluster=replace(made.cluster, host={"bytes_per_s_per_device": 25e9}))


def result_of(made: Context, root: Node) -> TreeResult:
    return simulate_tree(made, legal_tree(made, resolve_tree(root, model_layers(made.model))))


@pytest.mark.slow  # many trees
@settings(max_examples=tries(40))
@given(data=trees(), moe=st.booleans())
def test_every_mixture_keeps_the_laws_of_a_step(data: dict[str, Any], moe: bool) -> None:
    made = context(moe=moe)
    root = parse_tree(json.dumps(data), "tree.json")
    result = result_of(made, root)
    events, scores = result.events, result.scores

    for stage in events.stages:
        assert sum(stage.time_s.values()) == pytest.approx(events.step_time_s, rel=1e-9)
        assert all(value >= -1e-12 for value in stage.time_s.values())
    for stage, curve in enumerate(events.memory):
        assert curve.held_bytes[-1] == pytest.approx(events.costs.stages[stage].fixed_bytes, rel=1e-9)
        assert curve.held_bytes.min() >= 0
    for before, after in itertools.pairwise(events.critical_path):
        assert events.records.end_s[before] == events.records.start_s[after]
    assert sum(scores.time_s[part][0] for part in TIME_PARTS) == pytest.approx(scores.step_time_s[0], rel=1e-9)
    assert sum(values[0] for values in scores.memory_bytes.values()) == pytest.approx(scores.peak_memory_bytes[0])
    busy = max(chunk.forward_s + chunk.backward_s for chunk in events.costs.chunks)
    assert events.step_time_s >= 4 * busy

    again = result_of(made, parse_tree(tree_yaml(root)))
    assert again.scores.step_time_s[0] == scores.step_time_s[0]
    assert again.scores.peak_memory_bytes[0] == scores.peak_memory_bytes[0]


@settings(max_examples=tries(20))
@given(data=trees())
def test_grouping_nodes_changes_nothing(data: dict[str, Any]) -> None:
    """A node that only groups others says nothing of its own."""
    made = context(moe=False)
    flat = result_of(made, parse_tree(json.dumps(data), "tree.json"))
    grouped = {**data, "children": [{"name": "all", "children": data["children"]}]}

    again = result_of(made, parse_tree(json.dumps(grouped), "tree.json"))

    assert list(again.events.timeline()) == list(flat.events.timeline())
