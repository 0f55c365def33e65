"""Transfers of operator graphs on the links of the cluster: what meets nobody takes as long as by the rules."""

from dataclasses import replace

import pytest
from split_cases import graph_setting

from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.batch import PerDevice


def context(model: str = "alexnet") -> GraphContext:
    return replace(graph_setting(model, "abci-v100", 8).context, global_batch=PerDevice(8))


def step_s(made: GraphContext, text: str, *, contention: bool) -> float:
    split = OPERATOR_GRAPHS.parse(made, text)
    return OPERATOR_GRAPHS.simulate(made, split, contention=contention).step_time_s


@pytest.mark.parametrize("text", ["data1", "data4", "data16", "filter4"])
def test_exchanges_that_meet_nobody_take_what_the_rules_say(text: str) -> None:
    made = context()
    assert step_s(made, text, contention=True) == pytest.approx(step_s(made, text, contention=False), rel=1e-6)


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
