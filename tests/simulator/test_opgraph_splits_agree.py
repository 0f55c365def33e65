"""Splits of operator graphs by the closed forms and event by event: one legality, one step time within 5 %."""

import dataclasses
import random
from pathlib import Path

import pytest
from split_cases import graph_setting, split_rows

from forerun.search.api import simulate_setting
from forerun.search.board.rows import Row
from forerun.search.explore.trees.named_trees import write_tree
from forerun.search.opgraph.tree import simulate_graph_tree, split_facts
from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters.cluster import Overlap
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.limits import tail_start
from forerun.spaces.opgraph.split import Split, parse_split

CASES = (
    ("alexnet", "dgx1-v100", 16),
    ("vgg19", "abci-v100", 16),
    ("vgg16", "abci-v100", 12),
    ("unet", "dgx-a100-80", 4),
    ("dlrm-516m", "dgx1-v100", 32),
    ("dlrm-516m", "dgx-a100-80", 8),
    ("cosmoflow-128", "aws-p3", 8),
    ("resnet50", "dgx-h100", 4),
    pytest.param("resnet50", "dgx-h100", 8, marks=pytest.mark.slow),
    pytest.param("vit-b-32", "aws-p3", 2, marks=pytest.mark.slow),
    pytest.param("convnext-base", "dgx1-v100", 2, marks=pytest.mark.slow),
)

MEETING = {"data4 pipeline3 segments4": 0.20, "spatial4x4": 0.10}
"""Splits whose sends between stages, or halos, meet gradients on the NICs of a node: closed forms let each kind share
them with its own alone."""


def by_events(setting: Setting[GraphContext], split: Split) -> Row[Split]:
    return simulate_setting(setting, split, score=OPERATOR_GRAPHS.event_scores)


@pytest.mark.parametrize(("model", "cluster", "gpus"), CASES)
@pytest.mark.slow
def test_a_split_takes_as_long_and_holds_as_much_in_closed_form_as_event_by_event(
    model: str, cluster: str, gpus: int
) -> None:
    setting = graph_setting(model, cluster, PerDevice(16), str(gpus))
    table, _ = setting.space().table(0, setting.space().size)
    drawn = random.Random(f"{model} {cluster}")
    # One of every family, so that none is left out: all that is legal can be simulated.
    families: dict[str, list[Split]] = {}
    for split in table.splits:
        if isinstance(split, Split) and split.segments <= 4:
            families.setdefault(split.family, []).append(split)
    for family, splits in families.items():
        split = drawn.choice(splits)
        row, simulated = simulate_setting(setting, split), by_events(setting, split)
        assert simulated.step_time_s == pytest.approx(row.step_time_s, rel=MEETING.get(str(split), 0.05)), (
            family,
            str(split),
        )
        assert simulated.gpus == row.gpus
        assert simulated.peak_memory_gib == pytest.approx(row.peak_memory_gib, rel=0.02), (family, str(split))


@pytest.mark.parametrize(
    ("model", "batch", "text"),
    [
        ("vgg19", 96, "data2 pipeline3 segments8"),
        ("vgg19", 96, "data2 filter12"),
        pytest.param("resnet50", 96, "data3 filter8 segments8", marks=pytest.mark.slow),
        ("resnet50", 96, "spatial4x2"),
        ("dlrm-516m", 96, "data6 pipeline4"),
    ],
)
def test_both_levels_free_activations_by_one_rule(model: str, batch: int, text: str) -> None:
    setting = graph_setting(model, "dgx-a100-80", batch)
    split = parse_split(text)
    (row,) = split_rows(setting.context, [split], [batch])
    assert by_events(setting, split).peak_memory_gib == pytest.approx(row.peak_memory_gib, rel=0.02)


def test_a_gathered_output_is_kept_whole() -> None:
    """Filter: normalising needs all channels, so that the parts of a gathered output are no smaller to keep."""
    setting = graph_setting("resnet50", "dgx-a100-80", 32)
    whole, cut = split_rows(setting.context, [parse_split("data1"), parse_split("filter2")], [32, 32])
    activations = [row.memory_gib["activations"] for row in (whole, cut)]
    assert activations[1] == pytest.approx(activations[0], rel=0.01)


def test_what_follows_a_linear_layer_of_tokens_stays_where_it_is() -> None:
    """ConvNeXt: the activation between two linear layers on tokens is cut as the first of them."""
    setting = graph_setting("convnext-base", "dgx1-v100", 64)
    sent = split_facts(setting, parse_split("data2 mixed"))["communication"]
    moved = {(one["phase"], one["kind"]): one["transfers"] for one in sent}
    # One after every block and behind the head: 36 and 1.
    assert moved["forward", "all_to_all"] == moved["backward", "all_to_all"] == 37


def test_a_picture_that_becomes_tokens_ends_a_spatial_split() -> None:
    model = load_graph_model("convnext-base")
    start = tail_start(model, (32,))
    assert model.operators[start].name == "tokens1" and model.operators[start].kind.value == "view"


@pytest.mark.parametrize("strategy", ["data8", "data8 tables", "data4 filter2", "data4 pipeline2 segments2"])
def test_what_traffic_and_computation_take_from_each_other_counts_at_both_levels(strategy: str) -> None:
    setting = graph_setting("dlrm-516m", "dgx-a100-80", 4096)
    slow = dataclasses.replace(setting.context.cluster, overlap=Overlap(computation=1.3, communication=1.2))
    slowed = dataclasses.replace(setting, context=dataclasses.replace(setting.context, cluster=slow))
    split = parse_split(strategy)
    (plain,), (row,) = (split_rows(one.context, [split], [4096]) for one in (setting, slowed))
    assert row.step_time_s > plain.step_time_s * 1.001 or strategy == "data8 tables"
    assert by_events(slowed, split).step_time_s == pytest.approx(row.step_time_s, rel=0.05)


@pytest.mark.parametrize("strategy", ["data8", "data8 tables", "data1"])
def test_gradients_that_are_exchanged_are_kept(strategy: str) -> None:
    """DLRM: rows of copied tables are exchanged, and kept until they are; those of other tables go as they are made."""
    setting = graph_setting("dlrm-516m", "dgx1-v100", 65536)
    split = parse_split(strategy)
    (row,) = split_rows(setting.context, [split], [65536])
    exchanged = 2.048e9 if strategy == "data8" else 0.0  # all rows of eight tables of a million rows of 64 in fp32
    assert row.memory_gib["gradients"] * 2**30 == pytest.approx(exchanged, abs=20e6)
    assert by_events(setting, split).peak_memory_gib == pytest.approx(row.peak_memory_gib, rel=0.1)


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("vgg16", "data4 spatial2x2"),
        ("vgg16", "data2 filter4 segments2"),
        ("vgg16", "data8 mixed"),
        ("resnet50", "data2 channel4"),
        ("resnet50", "data2 pipeline4 segments4"),
        ("dlrm-516m", "data8 tables"),
        ("vit-b-32", "data8 mixed"),
    ],
)
@pytest.mark.slow
def test_a_split_written_as_a_tree_is_that_split(model: str, strategy: str, tmp_path: Path) -> None:
    setting = graph_setting(model, "dgx1-v100", 64)
    split, path = parse_split(strategy), tmp_path / "tree.yaml"
    write_tree(setting, strategy, path)
    flat, (row, _, tree) = by_events(setting, split), simulate_graph_tree(setting, path)
    assert (row.step_time_s, row.breakdown_s) == (flat.step_time_s, flat.breakdown_s)
    assert row.peak_memory_gib == flat.peak_memory_gib
    assert tree["communication"] == split_facts(setting, split)["communication"]
