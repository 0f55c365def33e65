"""Training modes on clusters and models of the catalogue."""

from dataclasses import replace

import pytest

from forerun.simulator.costs import collective_time_s
from forerun.simulator.modes import TrainingMode, analytic_prediction
from forerun.simulator.modes.events import event_prediction
from forerun.simulator.modes.model_profiles import graph_profile
from forerun.simulator.modes.network import ClusterNetwork
from forerun.simulator.modes.profile import GradientProfile
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.profile import load_graph_profile

DGX = load_cluster("dgx1-v100")
IDEAL = load_graph_profile("ideal")
DDP = load_graph_profile("pytorch-ddp")


def profile_of(model: str, batch: float = 32, framework: str = "ideal") -> GradientProfile:
    context = GraphContext(
        model=load_graph_model(model), cluster=DGX, profile=load_graph_profile(framework), precision="fp32"
    )
    return graph_profile(context, batch)


@pytest.mark.parametrize("model", ("resnet50", "vgg16", "inception-v3"))
def test_a_profile_holds_all_parameters_and_one_layer_per_tensor(model: str) -> None:
    operators = load_graph_model(model).operators
    profile = profile_of(model)
    assert profile.total_bytes == 4 * load_graph_model(model).parameters
    assert len(profile.layers) == sum(operator.parameters > 0 for operator in operators)
    assert profile.backward_s > profile.forward_s > 0


def test_a_host_that_is_slower_than_kernels_sets_the_pace() -> None:
    fast, slow = profile_of("resnet50", batch=1), profile_of("resnet50", batch=1, framework="chainermn")
    issued = sum(operator.kind.value != "view" for operator in load_graph_model("resnet50").operators)
    issue_s = 2 * issued * load_graph_profile("chainermn").operator_host_s
    # It issues the first operator at once, and the last runs behind the last issue.
    assert slow.forward_s + slow.backward_s == pytest.approx(issue_s, rel=1 / issued)
    assert slow.forward_s > 3 * fast.forward_s


def test_tables_send_the_rows_that_were_looked_up() -> None:
    assert profile_of("dlrm-516m").total_bytes < 0.1 * 4 * load_graph_model("dlrm-516m").parameters


def test_all_reduces_cost_what_the_collective_rule_says() -> None:
    profile, network = profile_of("vgg16"), ClusterNetwork(cluster=DGX, rules=IDEAL)
    mode = TrainingMode(workers=8, bucket_bytes=1e12, overlap=False)
    expected_s = float(collective_time_s(DGX, "all_reduce", profile.total_bytes, 8))
    assert analytic_prediction(profile, mode, network).parts_s["exchange"] == pytest.approx(expected_s)


def test_hidden_all_reduces_still_block_for_a_share_of_their_fixed_time() -> None:
    profile, network = profile_of("resnet50", 256), ClusterNetwork(cluster=DGX, rules=DDP)
    mode = TrainingMode(workers=8, bucket_bytes=1.0)
    fixed_s = len(profile.layers) * float(collective_time_s(DGX, "all_reduce", 1.0, 8))
    found = analytic_prediction(profile, mode, network).parts_s["exchange"]
    blocked_s = DDP.blocked_share * fixed_s
    assert blocked_s < found < blocked_s + network.all_reduce_s(1e6, 8)


def test_several_nodes_meet() -> None:
    network = ClusterNetwork(cluster=DGX, rules=DDP)
    assert network.rendezvous_s(8) == 0
    assert network.rendezvous_s(9) == pytest.approx(DDP.rendezvous_s)
    stepping = ClusterNetwork(cluster=DGX, rules=replace(DDP, node_step_s=1e-3))
    assert stepping.rendezvous_s(64) == pytest.approx(DDP.rendezvous_s + 7e-3)


@pytest.mark.parametrize("workers", (1, 4, 8, 24))
def test_both_levels_agree(workers: int) -> None:
    profile, network = profile_of("vgg16"), ClusterNetwork(cluster=DGX, rules=DDP)
    mode = TrainingMode(workers=workers, first_bucket_bytes=1e6)
    fine = event_prediction(profile, mode, network)
    assert fine.step_s == pytest.approx(analytic_prediction(profile, mode, network).step_s, rel=1e-9)


def test_servers_have_the_nics_of_a_node_and_workers_their_share() -> None:
    network = ClusterNetwork(cluster=DGX, rules=DDP)
    assert network.server_bytes_per_s == pytest.approx(8 * network.worker_bytes_per_s)
    box = ClusterNetwork(cluster=load_cluster("titan-rtx-box"), rules=DDP)
    assert box.worker_bytes_per_s == load_cluster("titan-rtx-box").device.host_bytes_per_s


def test_more_workers_than_devices() -> None:
    with pytest.raises(RequestError, match="has at most 8 devices, but got 9 workers"):
        ClusterNetwork(cluster=load_cluster("titan-rtx-box"), rules=DDP).all_reduce_s(1e6, 9)
    with pytest.raises(RequestError, match="the batch of a worker is more than 0"):
        profile_of("resnet50", batch=0)
