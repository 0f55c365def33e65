"""Operator graphs under trees: against the core of operator graphs, against each other, and by hand."""

import json
from dataclasses import replace
from typing import Any

import pytest
from split_cases import graph_setting, split_rows

from forerun.simulator.events import EventResult, execute
from forerun.simulator.layouts import Transfer, TransferPhase
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.events import Buckets, GraphPlan, graph_plan, simulate_plan
from forerun.simulator.opgraph.events.graph_step import compile_graph
from forerun.simulator.opgraph.memory import RESERVE_BYTES
from forerun.simulator.opgraph.messages import Filling
from forerun.spaces.operators import AxisKind
from forerun.spaces.opgraph import graph_model_names, load_graph_model
from forerun.spaces.opgraph.axes import operator_graph
from forerun.spaces.opgraph.split import parse_split
from forerun.spaces.trees import TreeError
from forerun.spaces.trees.document import parse_tree

GIB = 2.0**30
CLASSIFIER = ["linear*", "relu14", "relu15", "dropout*", "loss1"]


def context(model: str, cluster: str = "dgx-a100-80", **profile: Any) -> GraphContext:
    made = graph_setting(model, cluster, 64).context
    return replace(made, profile=replace(made.profile, **profile))


def plan(made: GraphContext, tree: dict[str, Any], batch: int) -> GraphPlan:
    return graph_plan(made, parse_tree(json.dumps(tree), "tree.json"), batch)


def one_stage(cut: dict[str, int], *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schedule": {"microbatches": 1}, "compute": {"cut": cut}, "children": list(children), **more}


def count(result: EventResult, kind: str) -> int:
    return sum(task.kind == kind for task in result.timeline())


@pytest.mark.parametrize("name", graph_model_names())
@pytest.mark.slow
def test_graphs_count_what_their_models_count(name: str) -> None:
    model = load_graph_model(name)
    graph = operator_graph(model, 8)

    assert graph.weight_elements == model.parameters
    assert graph.flops == 2 * 8 * model.macs
    for operator, layer in zip(graph.operators, model.operators, strict=True):
        assert operator.elements(operator.output) == 8 * layer.output_elements
        assert operator.axis("batch").kind is AxisKind.BATCH


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "inception-v3", "unet"])
@pytest.mark.parametrize("devices", [1, 8, 32])
@pytest.mark.slow
def test_data_parallel_is_what_the_core_says(name: str, devices: int) -> None:
    made, batch = context(name), 16 * devices
    result = simulate_plan(plan(made, one_stage({"batch": devices}), batch))
    (core,) = split_rows(made, [parse_split(f"data{devices}")], [batch])

    compute = core.breakdown_s["forward"] + core.breakdown_s["backward"]
    assert result.time_s["compute"] == pytest.approx(compute + core.graph.host_s, rel=1e-6)
    assert result.time_s["optimizer"] == pytest.approx(core.breakdown_s["update"], rel=1e-6)
    assert result.step_time_s == pytest.approx(core.step_time_s, rel=1e-9)
    assert result.peak_memory_bytes + RESERVE_BYTES == pytest.approx(core.peak_memory_gib * GIB, rel=0.15)


def test_data_parallel_convolutions_with_a_sharded_classifier() -> None:
    made = context("vgg16")
    whole = simulate_plan(plan(made, one_stage({"batch": 8}), 512))
    tree = one_stage({"batch": 8}, {"layers": CLASSIFIER, "compute": {"cut": {"channels": 8}}})
    mixed_plan = plan(made, tree, 512)
    mixed = simulate_plan(mixed_plan)
    (core,) = split_rows(made, [parse_split("data8 mixed")], [512])
    reduced = {need.operator for need in mixed_plan.needs if need.phase == TransferPhase.GRADIENT}

    assert mixed.step_time_s == pytest.approx(core.step_time_s, rel=0.02)
    assert reduced == {f"conv{number}" for number in range(1, 14)}
    assert mixed.time_s["optimizer"] < whole.time_s["optimizer"]
    assert mixed.peak_memory_bytes < whole.peak_memory_bytes
    assert mixed.time_s["tensor"] > 0 == whole.time_s["tensor"]


def test_pictures_cut_in_space_exchange_halos() -> None:
    first = ["conv1", "relu1", "conv2", "relu2", "pool1", "conv3", "relu3", "conv4", "relu4", "pool2"]
    made = context("vgg16")
    tree = one_stage({"batch": 8}, {"layers": first, "compute": {"cut": {"batch": 2, "height": 4}}})
    made_plan = plan(made, tree, 64)
    halos = [need.operator for need in made_plan.needs for t in need.transfers if t.kind == "halo"]

    # Not of the first convolution backwards: nothing asks for the gradient of pictures.
    assert sorted(halos) == ["conv1", "conv2", "conv2", "conv3", "conv3", "conv4", "conv4"]
    crossing = [n for n in made_plan.needs if n.tensor == "pool2" and n.phase == TransferPhase.FORWARD]
    assert [t.kind for t in crossing[0].transfers] == ["all_to_all"]


def test_tables_cut_by_columns_or_rows_need_other_collectives() -> None:
    made = context("dlrm-516m")
    kinds = {}
    for axis in ("channels", "rows"):
        tree = one_stage({"batch": 8}, {"layers": "table*", "compute": {"cut": {axis: 8}}})
        needs = plan(made, tree, 4096).needs
        kinds[axis] = {t.kind for n in needs if n.tensor.startswith("table") for t in n.transfers}
        assert not [n for n in needs if n.phase == TransferPhase.GRADIENT and n.operator.startswith("table")]

    assert kinds == {"channels": {"all_to_all"}, "rows": {"reduce_scatter"}}


@pytest.mark.parametrize("devices", [3, 4, 8])
def test_tables_dealt_out_whole_exchange_rows_in_one_all_to_all(devices: int) -> None:
    made, batch = context("dlrm-516m"), 1536
    dealt = plan(made, one_stage({"batch": devices}, {"layers": "table*", "compute": {"deal": True}}), batch)
    result = simulate_plan(dealt)
    (core,) = split_rows(made, [parse_split(f"data{devices} tables")], [batch])
    own = {name: dealt.shares[name].devices for name in (f"table{number}" for number in range(1, 9))}
    sent = [t.kind for n in dealt.needs if n.joined for t in n.transfers]

    assert sent == ["all_to_all", "all_to_all"]
    assert {len(held) for held in own.values()} == {1}
    assert len(set(own.values())) == devices
    assert len(own) - len(dealt.elsewhere) == -(-8 // devices)
    assert result.time_s["optimizer"] == pytest.approx(core.breakdown_s["update"], rel=1e-6)
    compute = core.breakdown_s["forward"] + core.breakdown_s["backward"] + core.graph.host_s
    assert result.time_s["compute"] == pytest.approx(compute, rel=0.15)
    # The core spreads the rows of three uneven devices evenly.
    assert result.time_s["tensor"] == pytest.approx(core.breakdown_s["collective"], rel=0.02 if devices != 3 else 0.5)


@pytest.mark.parametrize(("zero", "gathers"), [(0, 0), (1, 1), (3, None)])
def test_sharded_states_are_gathered_where_they_are_needed(zero: int, gathers: int | None) -> None:
    made = context("resnet50")
    result = simulate_plan(plan(made, one_stage({"batch": 8}, memory={"zero": zero}), 128))
    weights = sum(bool(operator.parameters) for operator in made.model.operators)

    assert count(result, "gather") == (2 * weights if gathers is None else gathers)
    whole = simulate_plan(plan(made, one_stage({"batch": 8}), 128))
    assert (result.peak_memory_bytes < whole.peak_memory_bytes) == (zero > 0)


def test_weights_are_fetched_two_operators_ahead_at_most() -> None:
    graph = compile_graph(plan(context("alexnet"), one_stage({"batch": 8}, memory={"zero": 3}), 128)).graph
    run = execute(graph)
    computed = [t for t in range(len(graph)) if graph.stream[t] == 0]
    for task in range(len(graph)):
        if graph.kinds[graph.kind[task]] == "gather":
            user = next(after for after in graph.successors[task] if graph.stream[after] == 0)
            gate = computed[max(computed.index(user) - 2, 0)]
            assert run.start_s[task] >= run.end_s[gate]


def test_recomputed_runs_are_cloned_node_by_node() -> None:
    made = context("alexnet")
    names = [operator.name for operator in made.model.operators]
    full = {"recompute": "full"}
    quarters = [{"layers": names[first : first + 3], "schedule": full} for first in range(0, 12, 3)]
    kept, one, four = (
        simulate_plan(plan(made, one_stage({"batch": 1}, *children), 256))
        for children in ((), ({"layers": names[:12], "schedule": full},), quarters)
    )

    assert [count(result, "recompute") for result in (kept, one, four)] == [0, 11, 8]
    assert four.peak_memory_bytes < one.peak_memory_bytes <= kept.peak_memory_bytes
    assert one.time_s["recompute"] > four.time_s["recompute"] > 0
    assert four.time_s["compute"] == pytest.approx(kept.time_s["compute"])


def halves(made: GraphContext, microbatches: int, second: str = "4-7", cut: int = 4, **more: Any) -> dict[str, Any]:
    names = [operator.name for operator in made.model.operators]
    middle = len(names) // 2
    schedule = {"microbatches": microbatches, **more}
    stages = [
        {"layers": names[:middle], "devices": "0-3", "compute": {"cut": {"batch": 4}}},
        {"layers": names[middle:], "devices": second, "compute": {"cut": {"batch": cut}}},
    ]
    return {"schedule": schedule, "children": stages}


def test_pipelines_overlap_their_microbatches() -> None:
    made = context("resnet50")
    alone, piped = (simulate_plan(plan(made, halves(made, count_), 512)) for count_ in (1, 4))

    assert piped.bubble_share < 0.6 * alone.bubble_share
    assert piped.step_time_s < alone.step_time_s
    # The border lies inside a residual block: two tensors cross it, there and back, for each microbatch.
    assert count(piped, "send") == 2 * 2 * 4
    assert piped.peak_memory_bytes < alone.peak_memory_bytes


def test_limits_in_flight_hold_for_operators_too() -> None:
    made = context("resnet50")
    tight, loose = (simulate_plan(plan(made, halves(made, 4, in_flight=[k, 1]), 512)) for k in (1, 2))

    assert tight.stages[0].peak_bytes < loose.stages[0].peak_bytes
    assert tight.step_time_s > loose.step_time_s
    assert loose.step_time_s == pytest.approx(simulate_plan(plan(made, halves(made, 4), 512)).step_time_s)


def test_stages_of_different_sizes_send_point_to_point() -> None:
    made = context("resnet50")
    uneven = plan(made, halves(made, 4, "4-5", 2), 512)
    sent = [n for n in uneven.needs if n.phase == TransferPhase.FORWARD and n.transfers]

    assert {t.kind for n in sent for t in n.transfers} == {"point_to_point"}
    even = plan(made, halves(made, 4), 512)
    assert simulate_plan(uneven).stages[1].busy_s > 1.3 * simulate_plan(even).stages[1].busy_s


@pytest.mark.slow
def test_a_step_is_the_same_every_time() -> None:
    made = context("inception-v3")
    first, second = (simulate_plan(plan(made, halves(made, 2), 256)) for _ in range(2))

    assert list(first.timeline()) == list(second.timeline())


def test_buckets_are_small_first_and_apart_by_kind() -> None:
    added = [("all_reduce", 0.5), ("reduce_scatter", 0.75), ("all_reduce", 0.75), ("all_reduce", 3.0)]
    added += [("all_reduce", 1.5), ("all_reduce", 0.5)]
    transfers = [Transfer(kind=kind, groups=((0, 1),), elements=(size * 2**18,)) for kind, size in added]

    def members(strict: bool) -> list[tuple[int, ...]]:
        filling = Filling(cap_bytes=4 * 2.0**20, first_bytes=2.0**20, strict=strict)
        buckets = Buckets(filling, 4.0, transfers)
        found = [buckets.add(transfer, task) for task, transfer in enumerate(transfers)]
        return [bucket.members for bucket in found if bucket is not None]

    # What comes last of a kind ends its bucket, however little it is.
    assert members(strict=False) == [(1,), (0, 2), (3, 4), (5,)]
    assert members(strict=True) == [(0,), (1,), (2, 3), (4, 5)]


WRONG = {
    "unknown axis": (one_stage({"bach": 8}), "tree.compute.cut.bach: unknown axis 'bach'; did you mean batch"),
    "parts and devices": ({**one_stage({"batch": 4}), "devices": "0-7"}, "cut in 4 parts, but its stage has 8 devices"),
    "indivisible": (one_stage({"batch": 3}), "axis batch of conv1 has 64 points, which 3 does not divide"),
    "missing layer": (one_stage({"batch": 8}, {"layers": "conv14"}), "tree.children.0.layers: unknown layer 'conv14'"),
    "degrees": (one_stage({"batch": 8}, compute={"dp": 8, "tp": 2}), "tree.compute.dp: dp is for transformers"),
    "microbatches": (one_stage({"batch": 8}, schedule={"microbatches": 5}), "64 is not divisible by 5 microbatches"),
    "selective": (
        one_stage({"batch": 8}, schedule={"microbatches": 1, "recompute": "selective"}),
        "selective is about attention",
    ),
    "dealt layers in a row": (
        one_stage({"batch": 8}, {"layers": "linear*", "compute": {"deal": True}}),
        "tree.children.0.compute.deal: layers on separate devices run at the same time, but linear2 needs linear1",
    ),
    "parts of one layer": (
        one_stage({"batch": 8}, {"layers": "conv1", "compute": {"cut": {"batch": 4}}}),
        "tree.children.0.compute.cut: layer conv1 is cut in 4 parts",
    ),
    "order": (one_stage({"batch": 8}, schedule={"microbatches": 1, "order": "zb-v"}), "run under 1f1b, gpipe or"),
    "too narrow": (one_stage({"height": 28}), "has 14 points, which cannot be cut in 28 parts"),
    "too many": (one_stage({"batch": 64, "channels": 16384}), "at most 4096 devices"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_mistakes_name_the_node(name: str) -> None:
    tree, words = WRONG[name]

    with pytest.raises(TreeError) as caught:
        plan(context("vgg16"), tree, 64)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_operators_of_which_nothing_is_said_lie_as_their_neighbours_do() -> None:
    """Convolutions follow the first one, and a linear layer behind one that is cut by outputs is cut by inputs."""
    made = context("vgg16")
    tree = {"schedule": {"microbatches": 1}}
    ends = [
        {"layers": "conv2", "compute": {"cut": {"batch": 8}}},
        {"layers": "linear1", "compute": {"cut": {"channels": 8}}},
    ]
    found = plan(made, {**tree, "children": ends}, 64)

    def cut(name: str) -> list[tuple[str | None, int]]:
        return [(one.axis, one.degree) for one in found.shares[name].cuts]

    assert cut("conv1") == cut("relu1") == cut("conv13") == cut("flatten1") == [("batch", 8)]  # conv1 from behind
    assert cut("linear1") == cut("relu14") == cut("dropout1") == [("channels", 8)]
    assert cut("linear2") == [("in_channels", 8)]
    assert cut("relu15") == cut("linear3") == cut("loss1") == [(None, 8)]  # what was summed up is there for all
    said = [
        {"layers": "conv1..flatten1", "compute": {"cut": {"batch": 8}}},
        {"layers": "linear1..dropout1", "compute": {"cut": {"channels": 8}}},
        {"layers": "linear2", "compute": {"cut": {"in_channels": 8}}},
        {"layers": "relu15..loss1", "compute": {"cut": {"replicate": 8}}},
    ]
    explicit = plan(made, {**tree, "children": said}, 64)
    assert explicit.needs == found.needs
    assert simulate_plan(explicit).step_time_s == simulate_plan(found).step_time_s


def test_ranges_of_operators_go_on_in_the_model() -> None:
    made = context("vgg16")
    for layers, law in (("conv3..conv1", "conv1 is before conv3"), ("conv1..conv99", "did you mean")):
        with pytest.raises(TreeError, match=law):
            plan(made, one_stage({"batch": 8}, {"layers": layers}), 64)
