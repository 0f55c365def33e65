"""Operators on some devices of a stage, and tensors that are kept in other parts than their operators are cut in."""

import pytest

from forerun.simulator.events import EventResult
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.events import GraphPlan, graph_plan, simulate_plan
from forerun.simulator.opgraph.events.meshes import places_of
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import GraphModel, load_graph_model
from forerun.spaces.opgraph.builder import Builder
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.trees import TreeError
from forerun.spaces.trees.document import parse_tree

HEAD = "schedule: {microbatches: 1}\ncompute: {cut: {batch: 8}}\nchildren:\n"


def plan(children: str, model: GraphModel | None = None) -> GraphPlan:
    context = GraphContext(
        model=model or load_graph_model("vgg16"),
        cluster=load_cluster("dgx-a100-80"),
        profile=load_graph_profile("ideal"),
        precision="fp16",
        global_batch=64,
    )
    return graph_plan(context, parse_tree(HEAD + children), 64)


def ran(result: EventResult, *names: str) -> list[tuple[float, float]]:
    """When the forward passes of some operators ran."""
    spans = [(one.start_s, one.end_s, one.name) for one in result.timeline() if one.kind == "forward"]
    return [next((start, end) for start, end, title in spans if name in title.split()) for name in names]


def branches() -> GraphModel:
    """Two convolutions of one input, added up."""
    b = Builder(16, 64, 64)
    x = b.conv(b.start, 32, 3, padding=1)
    b.loss(b.linear(b.flatten(b.global_pool(b.add(b.conv(x, 32, 3, padding=1), b.conv(x, 32, 3, padding=1)))), 10))
    return b.build("branches", "a test")


def test_devices_that_are_named_together_are_one_place() -> None:
    whole, low, high = (0, 1, 2, 3), (0, 1), (1, 2, 3)
    assert places_of([whole], {"a": (0, whole)}) == {"a": (0,)}
    found = places_of([whole, (4, 5)], {"a": (0, whole), "b": (0, low), "c": (0, high), "d": (1, (4, 5))})
    assert found == {"a": (0, 2, 3), "b": (0, 2), "c": (2, 3), "d": (1,)}


def test_branches_on_devices_of_their_own_run_at_once() -> None:
    apart = "  - {layers: conv2, compute: {on: 0-3, cut: {batch: 4}}}\n"
    together = apart + "  - {layers: conv3, compute: {on: 0-3, cut: {batch: 4}}}\n"
    apart += "  - {layers: conv3, compute: {on: 4-7, cut: {batch: 4}}}\n"
    (first, second), (one, other) = (
        ran(simulate_plan(plan(text, branches())), "conv2", "conv3") for text in (apart, together)
    )
    assert first[0] < second[1] and second[0] < first[1]
    assert other[0] >= one[1] or one[0] >= other[1]


def test_half_the_devices_take_twice_as_long_and_keep_it_alone() -> None:
    half = plan("  - {layers: linear1..loss1, compute: {on: 4-7, cut: {channels: 4}}}\n")
    assert half.place_count == 2
    assert half.fixed_bytes(1) > half.fixed_bytes(0) + 4 * 30e6
    whole = plan("  - {layers: linear1..loss1, compute: {cut: {channels: 8}}}\n")
    assert half.costs["linear1"].forward_s > 1.2 * whole.costs["linear1"].forward_s
    result = simulate_plan(half)
    assert len(result.stages) == 2
    assert result.step_time_s > simulate_plan(whole).step_time_s


def test_naming_all_devices_is_naming_none() -> None:
    said, unsaid = (
        simulate_plan(plan(f"  - {{layers: conv1..pool2{more}}}\n")) for more in (", compute: {on: 0-7}", "")
    )
    assert (said.step_time_s, said.time_s, said.peak_memory_bytes) == (
        unsaid.step_time_s,
        unsaid.time_s,
        unsaid.peak_memory_bytes,
    )


def test_outputs_and_their_gradients_are_kept_as_they_are_told() -> None:
    plain = plan("  - {layers: linear2, compute: {cut: {channels: 8}}}\n")
    text = "  - {layers: linear2, compute: {cut: {channels: 8}}, memory: {output: {batch: 8}"
    told = plan(f"{text}}}}}\n")

    def senders(found: GraphPlan) -> list[str]:
        """Operators whose forward passes move the output of linear2."""
        return [n.operator for n in found.needs if n.phase.value == "forward" and n.tensor == "linear2"]

    assert (senders(plain), senders(told)) == (["relu15"], ["linear2"])
    # Its reader is cut by samples: nothing is left to send there.
    assert not [need for need in told.needs if need.operator == "relu15" and need.tensor == "linear2"]
    apart = plan(f"{text}, output_gradient: {{channels: 8}}}}}}\n")
    back = {(need.operator, need.tensor) for need in apart.needs if need.phase.value == "backward"}
    assert ("relu15", "d linear2") in back and ("linear2", "d linear2") not in back


def test_samples_come_from_where_they_are() -> None:
    told = plan("  - {layers: conv1, memory: {input: {height: 8}}}\n")
    assert [t.kind for need in told.needs if need.operator == "conv1" for t in need.transfers][:1] == ["all_to_all"]


@pytest.mark.parametrize(
    ("child", "words"),
    [
        ("{layers: conv1, compute: {on: 0-3}}", "is cut in 8 parts, but it runs on 4 devices"),
        ("{layers: conv1, compute: {on: '8', cut: {batch: 1}}}", "device 8 is none of the stage"),
        ("{layers: conv1, memory: {output: {batch: 4}}}", "has 4 parts, but the layer runs on 8 devices"),
        ("{layers: conv1, memory: {output: {wide: 8}}}", "unknown axis"),
    ],
)
def test_mistakes_name_the_law(child: str, words: str) -> None:
    with pytest.raises((TreeError, RequestError), match=words):
        plan(f"  - {child}\n")
