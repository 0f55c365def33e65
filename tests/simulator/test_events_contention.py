"""Traffic on the links of a cluster: nothing changes where nothing is shared, and symmetry changes nothing at all."""

from dataclasses import replace

import pytest
from forerun_examples import moe_model
from forerun_examples import request as small_request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import reduction_latency_s
from forerun.simulator.events import TaskGraph, event_summary, execute, simulate, simulate_costs, step_costs
from forerun.simulator.events.engine.engine import Execution
from forerun.simulator.events.step.contention import contention_of
from forerun.simulator.events.step.steady import step_figures
from forerun.simulator.events.step.traffic import Traffic, step_traffic
from forerun.spaces.clusters import Cluster, load_cluster, load_device, simple_cluster
from forerun.spaces.clusters.levels import levels_from_spec
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, parse_strategy


def on(cluster: str | Cluster, framework: str = "generic") -> Context:
    chosen = load_cluster(cluster) if isinstance(cluster, str) else cluster
    return small_request(cluster=chosen, framework=framework, global_batch=32)


def few_nics(*, oversubscription: float = 1.0, leaf_nodes: int | None = None) -> Cluster:
    """Return nodes of eight devices with two NICs, on an oversubscribed network where asked for."""
    device = replace(load_device("a100-sxm4-40"), host_speed=1.0)  # so that links set the pace, not launches
    made = simple_cluster(device, 8, intra_link=None, nic_bytes_per_s_per_node=12.5e9)
    spec = made.spec
    assert spec is not None
    assert spec.network is not None
    network = replace(spec.network, nics_per_node=2, nic_bytes_per_s=6.25e9)
    network = replace(network, oversubscription=oversubscription, leaf_nodes=leaf_nodes)
    spec = replace(spec, network=network)
    return replace(made, spec=spec, levels=levels_from_spec(spec))


def traffic_of(context: Context, strategy: Strategy) -> Traffic:
    reduce_s = [stage.reduce_s for stage in step_costs(assign(context, strategy)).stages]
    return step_traffic(context, strategy, reduce_s, reduction_latency_s(assign(context, strategy)))


@pytest.mark.parametrize(
    "text",
    ["tp8 pp4 mbs1", "tp8 dp4 mbs1 zero1", "tp8 dp4 mbs1 zero3", "pp8 mbs1", "dp32 mbs1 zero3 shard=8", "dp32 zero2"],
)
@pytest.mark.parametrize("cluster", ["dgx-h100", "aws-p4d", "dgx-a100-80"])
def test_nothing_changes_where_nothing_is_shared(cluster: str, text: str) -> None:
    """Replicas or stages alone have the links to themselves as the cost rules assume."""
    context, strategy = on(cluster), parse_strategy(text)
    alone = simulate(context, strategy)

    assert simulate(context, strategy, contention=True).step_time_s == pytest.approx(alone.step_time_s, rel=1e-9)


def test_experts_of_one_replica_reduce_inside_its_stages() -> None:
    """One replica has no ring over the cluster; its tensor ranks hold copies of experts all the same."""
    context = small_request(moe_model(), cluster=load_cluster("dgx-a100-80"), framework="generic", global_batch=32)
    strategy = parse_strategy("tp4 pp2 dp1 mbs1")

    assert step_costs(assign(context, strategy)).stages[0].reduce_s > 0
    without, shared = (simulate(context, strategy, contention=contention) for contention in (False, True))
    assert shared.step_time_s == pytest.approx(without.step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ("aws-p4d", "tp2 pp4 dp8 mbs1"),
        ("aws-p4d", "tp2 pp4 dp4 mbs1 zero1 placement=tp-cp-ep-pp-dp"),
        ("aws-g4dn", "pp4 dp4 mbs1 zero2"),
        ("aws-g4dn", "pp8 dp2 mbs2"),
        ("aws-p3", "pp2 dp6 vpp2 schedule=interleaved mbs1"),
        ("dgx1-v100", "pp4 dp6 mbs1 zero1 placement=tp-cp-ep-pp-dp"),
        ("few nics", "pp4 dp12 mbs1"),
        ("few nics", "pp3 dp6 tp2 mbs1 zero1"),
    ],
)
@pytest.mark.slow
def test_one_replica_of_each_kind_stands_for_all(cluster: str, text: str) -> None:
    strategy = parse_strategy(text)
    context = on(few_nics() if cluster == "few nics" else cluster)
    context = replace(context, workload=replace(context.workload, precision="fp16", global_batch=24 * strategy.dp))
    costs, traffic = step_costs(assign(context, strategy)), traffic_of(context, strategy)
    few, all_of_them = contention_of(traffic), contention_of(traffic, every_replica=True)
    one = simulate_costs(costs, replicas=few.simulated, contention=few)
    every = simulate_costs(costs, replicas=all_of_them.simulated, contention=all_of_them)

    assert few.simulated < all_of_them.simulated == strategy.dp
    assert one.step_time_s == pytest.approx(every.step_time_s, rel=1e-9)


def test_replicas_that_see_other_links_are_told_apart() -> None:
    """Stages of three devices do not fit nodes of eight: some replicas leave the node to reach the next stage."""
    context, strategy = on(few_nics()), parse_strategy("tp1 pp4 dp6 mbs1")
    shared = contention_of(traffic_of(context, strategy))

    assert 1 < shared.simulated <= 6
    assert len(shared.colours) == 6


def test_stages_that_share_a_nic_slow_each_other_down_and_gain_when_the_others_are_idle() -> None:
    """Replicas on other nodes, stages on one: the rules give a device its share of two NICs. Stages that reduce one
    after the other get more of them, and all stages that reduce at once no more than that."""
    context = on(few_nics(), "megatron-lm")
    strategy = parse_strategy("pp8 dp4 mbs1 placement=tp-cp-ep-pp-dp")
    shared = contention_of(traffic_of(context, strategy))
    ring = shared.flows[0,]

    assert ring.assumed_bytes_per_s == pytest.approx(12.5e9 / 8)
    assert shared.most_bytes_per_s[0,] == pytest.approx(6.25e9)
    plain, contended = simulate(context, strategy), simulate(context, strategy, contention=True)
    assert contended.step_time_s < plain.step_time_s
    reduces = [task for task in contended.timeline() if task.kind == "reduce"]
    rules_s = step_costs(assign(context, strategy)).stages[0].reduce_s
    assert all(task.end_s - task.start_s <= rules_s * (1 + 1e-9) for task in reduces)


def test_an_oversubscribed_spine_is_felt_by_what_crosses_it() -> None:
    strategy = parse_strategy("tp2 pp2 dp8 mbs1")
    times = [
        simulate(on(few_nics(oversubscription=over, leaf_nodes=2)), strategy, contention=True).step_time_s
        for over in (1.0, 4.0, 16.0)
    ]

    assert times[0] < times[1] < times[2]


@pytest.mark.parametrize(
    "text",
    [
        "tp2 pp4 dp4 mbs1 zero1",
        pytest.param("pp4 dp4 vpp2 schedule=interleaved mbs1", marks=pytest.mark.slow),
        pytest.param("pp3 dp6 tp2 mbs1", marks=pytest.mark.slow),
    ],
)
def test_long_steps_are_what_shorter_ones_make_of_them(text: str) -> None:
    strategy = parse_strategy(text)
    context = on(few_nics(oversubscription=4.0, leaf_nodes=2))
    context = replace(context, workload=replace(context.workload, global_batch=120 * strategy.dp))
    costs = step_costs(assign(context, strategy))
    shared = contention_of(traffic_of(context, strategy))
    whole = simulate_costs(costs, replicas=shared.simulated, contention=shared)

    # Three kinds of replicas on oversubscribed links drift against each other, and never quite repeat themselves.
    near = 2e-3 if shared.simulated > 1 else 1e-7
    assert step_figures(costs, shared).step_time_s == pytest.approx(whole.step_time_s, rel=near)


def test_the_summary_lists_links_and_replicas() -> None:
    result = simulate(on(few_nics()), parse_strategy("pp4 dp4 mbs1"), contention=True)
    summary = event_summary(result)

    assert sum(summary["replicas"]) == 4
    assert summary["links"][0]["utilisation"] == max(link["utilisation"] for link in summary["links"])
    assert all(0 < link["utilisation"] <= 1 + 1e-9 for link in summary["links"])
    assert "links" not in event_summary(simulate(on(few_nics()), parse_strategy("pp4 dp4 mbs1")))


def test_a_cluster_without_a_graph_is_refused() -> None:
    context = small_request(framework="generic", global_batch=32)

    with pytest.raises(RequestError, match="has levels but no graph of links; contention needs one"):
        simulate(context, parse_strategy("pp4 dp4 mbs1"), contention=True)


def ends(graph: TaskGraph, run: Execution, name: str) -> list[float]:
    return [run.end_s[task] for task in range(len(graph)) if graph.tag[task][0] == name]


@settings(max_examples=tries(60))
@given(st.data())
def test_a_weighted_transfer_is_as_many_transfers_side_by_side(data: st.DataObject) -> None:
    """Flows of some connections that cross one link each and then a common one."""
    capacity = float(data.draw(st.integers(1, 20)))
    flows = data.draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(1, 4), st.integers(1, 9)), max_size=5)
    )
    bundled, single = TaskGraph(["send"]), TaskGraph(["send"])
    for graph in (bundled, single):
        common = graph.add_link("common", capacity)
        for number, (begin, size, count, port) in enumerate(flows):
            if graph is bundled:
                route = (graph.add_link(f"port {number}", float(port)), common)
                graph.weigh(route, (1.0, float(count)))
                graph.add_transfer(0, float(size), route, latency_s=float(begin), tag=(str(number),))
            else:
                for _ in range(count):
                    own = graph.add_link(f"port {number}", float(port))
                    graph.add_transfer(0, float(size), [own, common], latency_s=float(begin), tag=(str(number),))
    whole, parts = execute(bundled), execute(single)

    for number, (_, _, count, _) in enumerate(flows):
        (end,) = ends(bundled, whole, str(number))
        assert [end] * count == pytest.approx(ends(single, parts, str(number)), rel=1e-9)


def test_weights_that_mean_nothing_are_refused() -> None:
    graph = TaskGraph(["send"])
    link = graph.add_link("nic", 1.0)

    with pytest.raises(RequestError, match=r"a route of 1 links needs as many weights above 0, but got \[0\.0\]"):
        graph.weigh([link], [0.0])
