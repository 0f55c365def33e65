"""Transfers of operator graphs on the links of the cluster, event by event and in closed form."""

import random
from dataclasses import replace

import pytest
from laws import on_faster_links
from split_cases import graph_setting, split_rows

from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.events.graph_step import simulate_plan
from forerun.simulator.opgraph.events.planning import graph_plan
from forerun.simulator.opgraph.split_tree import tree_of_split
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.split import parse_split


def context(model: str = "alexnet") -> GraphContext:
    return replace(graph_setting(model, "abci-v100", 8).context, global_batch=PerDevice(8))


def step_s(made: GraphContext, text: str, *, contention: bool) -> float:
    split = OPERATOR_GRAPHS.parse(made, text)
    return OPERATOR_GRAPHS.simulate(made, split, contention=contention).step_time_s


@pytest.mark.parametrize("text", ["data1", "data4", "data16", "filter4"])
def test_exchanges_that_meet_nobody_take_what_the_rules_say(text: str) -> None:
    made = context()
    by_rules = replace(made, cluster=replace(made.cluster, spec=None))
    assert step_s(made, text, contention=True) == pytest.approx(step_s(by_rules, text, contention=False), rel=1e-6)


def test_borders_alone_take_what_the_rules_say() -> None:
    made = replace(context("vgg19"), inference=True)
    by_rules = replace(made, cluster=replace(made.cluster, spec=None))
    for text in ("spatial8", "spatial4x4"):
        assert step_s(made, text, contention=True) == pytest.approx(step_s(by_rules, text, contention=False), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "cluster", "batch", "text"),
    [
        # Stages end one after the other: each has the one port of its node while the others still compute.
        ("alexnet", "dgx1-v100-1ib", 512, "data4 pipeline8 segments2"),
        ("alexnet", "dgx1-v100-1ib", 512, "data8 pipeline4 segments8"),
        # Groups of three on nodes of four: some lie in one node, some across two.
        ("dlrm-516m", "abci-v100", 1536, "data8 filter3"),
        ("dlrm-516m", "abci-v100", 1536, "data3 pipeline8"),
        ("vgg19", "dgx-a100-80", 96, "data4 pipeline6 segments4"),
        ("vgg19", "dgx-a100-80", 96, "data2 filter12"),
        # Groups of three and six on nodes of eight: rings of two parts leave a node by one NIC.
        ("dlrm-516m", "dgx-h100", 384, "data16 channel3"),
        ("dlrm-516m", "dgx-a100-80", 384, "data8 filter6"),
        ("dlrm-516m", "dgx-h100", 384, "data16 pipeline3"),
        # Parts of some replicas cross nodes, with the NICs of these to themselves.
        ("alexnet", "abci-v100", 768, "data8 channel3"),
        ("alexnet", "dgx1-v100", 768, "data8 filter3"),
        # Several stages send to one, by its NIC or that of its node.
        ("resnet50", "aws-p3", 256, "data2 pipeline32 segments32"),
        ("resnet50", "dgx-a100-80", 1536, "pipeline48 segments8"),
        # Borders that leave a node, of many devices at once.
        ("vgg19", "dgx1-v100", 2048, "spatial8x4"),
        ("vgg19", "abci-v100", 1024, "spatial4x4 segments16"),
        # Rings of gradients outnumber those of parts on a NIC.
        ("alexnet", "dgx1-v100", 256, "data4 channel6"),
        ("alexnet", "abci-v100", 256, "data4 filter6"),
    ],
)
@pytest.mark.slow
def test_closed_forms_share_links_as_events_do(model: str, cluster: str, batch: int, text: str) -> None:
    made = graph_setting(model, cluster, batch).context
    (row,) = split_rows(made, [OPERATOR_GRAPHS.parse(made, text)], [batch])
    assert row.step_time_s == pytest.approx(step_s(made, text, contention=True), rel=0.05)


@pytest.mark.slow
def test_closed_forms_order_splits_as_events_do() -> None:
    setting = graph_setting("alexnet", "dgx1-v100-1ib", 512, "32")
    legal, _ = setting.space().table(0, setting.space().size)
    splits = random.Random(3).sample([split for split in legal.splits if split.segments <= 16], 16)
    closed = [row.step_time_s for row in split_rows(setting.context, splits, [512] * len(splits))]
    shared = [step_s(setting.context, str(split), contention=True) for split in splits]
    pairs = [(i, j) for i in range(len(splits)) for j in range(i) if abs(shared[i] / shared[j] - 1) > 0.05]
    assert all((closed[i] > closed[j]) == (shared[i] > shared[j]) for i, j in pairs)


def test_gradients_and_halos_share_the_network() -> None:
    made = context()
    result = OPERATOR_GRAPHS.simulate(made, OPERATOR_GRAPHS.parse(made, "data2 spatial8"), contention=True)
    assert result.contention is not None
    assert any(len(link.weight) > 1 for link in result.contention.shared)
    sent = sum(result.sent_bytes.values())
    assert sent > 0
    slow = replace(made, cluster=_slower_network(made.cluster))
    assert step_s(slow, "data2 spatial8", contention=True) > result.step_time_s


def _slower_network(cluster: Cluster) -> Cluster:
    """Return the cluster with NICs at a tenth of their rate."""
    assert cluster.spec is not None and cluster.spec.network is not None
    network = replace(cluster.spec.network, nic_bytes_per_s=cluster.spec.network.nic_bytes_per_s / 10)
    return replace(cluster, spec=replace(cluster.spec, network=network))


def test_a_cluster_without_links_says_so() -> None:
    made = context()
    with pytest.raises(RequestError, match="no graph of links"):
        step_s(replace(made, cluster=replace(made.cluster, spec=None)), "data4", contention=True)


@pytest.mark.parametrize("factor", [1.01, 2.0, 10.0])
@pytest.mark.parametrize(
    ("model", "cluster", "batch", "text"),
    [
        ("alexnet", "dgx1-v100-1ib", 64, "data4 pipeline4 segments4"),
        ("inception-v3", "abci-v100", 32, "data2 pipeline3 segments4"),
        ("vgg16", "dgx-a100-80", 64, "pipeline2 segments8"),
    ],
)
def test_faster_links_never_slow_a_pipeline_with_the_same_stages(
    model: str, cluster: str, batch: int, text: str, factor: float
) -> None:
    made = replace(graph_setting(model, cluster, 8).context, global_batch=batch)
    tree = tree_of_split(made, parse_split(text), batch)

    def on(links: Cluster) -> float:
        return simulate_plan(graph_plan(replace(made, cluster=links), tree, batch)).step_time_s

    assert on(on_faster_links(made.cluster, factor)) <= on(made.cluster) * (1 + 1e-9)
