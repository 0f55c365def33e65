"""States that a part of the replicas shares: between copies everywhere (zero0) and one set of slices for all."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import moe_model, request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import contexts, legal_table

from forerun.simulator import score
from forerun.simulator.assignment.collectives import collectives_inside
from forerun.simulator.costs import collective_time_s
from forerun.simulator.events import simulate
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, replica_costs
from forerun.simulator.stages.parameters import StageParameters
from forerun.spaces.clusters import load_cluster
from forerun.spaces.strategies import Context, parse_strategy, table_of

PARAMETERS = 1e9


def costs_of(context: Context, text: str, *, expert: float = 0.0) -> ReplicaCosts:
    """Return what the replicas of one stage of 10^9 dense parameters cost under a strategy, legal or not."""
    strategy, one = parse_strategy(text), np.ones((1, 1))
    parameters = StageParameters(
        dense=one * PARAMETERS,
        expert=one * expert,
        outside=0 * one,
        tied=0 * one,
        tensors=50 * one,
        shapes=0 * one,
        frozen_dense=0 * one,
        frozen_expert=0 * one,
        beside_dense=0 * one,
        beside_expert=0 * one,
        muon_dense=0 * one,
        muon_expert=0 * one,
        muon_dense_s=0 * one,
        muon_expert_s=0 * one,
    )
    degrees = {axis: np.array([float(getattr(strategy, axis))]) for axis in REPLICA_DEGREES}
    return replica_costs(context, Replicas(parameters=parameters, **degrees))


def test_gradients_are_scattered_within_a_set_and_each_slice_is_added_up_over_its_copies() -> None:
    """Megatron-core's instances of the distributed optimizer and FSDP's hybrid sharding do it in this order."""
    context = request(framework="torchtitan")
    wire = PARAMETERS * context.framework.reduce_bytes
    units = context.model.layer_count
    within = collective_time_s(context.cluster, "reduce_scatter", wire / units, 4, 2)
    across = collective_time_s(context.cluster, "all_reduce", wire / units / 4, 8, 2 * 4)
    found = costs_of(context, "tp2 dp32 zero3 shard=4")

    assert found.reduce_s[0] == pytest.approx(units * float(within + across), rel=1e-12)
    gather = collective_time_s(context.cluster, "all_gather", 2 * PARAMETERS / units, 4, 2)
    assert found.gather_s[0] == pytest.approx(units * float(gather), rel=1e-12)


def test_collectives_of_a_layer_are_listed_by_who_takes_part() -> None:
    """Sets of 4 of 16 replicas: slices of gradients a quarter as large are added up over 4 copies."""
    context, strategy = request(framework="generic"), parse_strategy("dp16 zero1 shard=4")
    found = collectives_inside(context, context.model.layers[0], "", strategy, range(16))
    assert found is not None
    size = {(str(line["kind"]), int(str(line["members"]))): float(str(line["bytes"])) for line in found}

    assert set(size) == {("reduce_scatter", 4), ("all_reduce", 4), ("all_gather", 4)}
    assert size["reduce_scatter", 4] == 4 * size["all_reduce", 4] == 2 * size["all_gather", 4]


def test_experts_have_as_many_copies_as_the_rest() -> None:
    """Of 4 replicas of the experts on 32 devices, 2 share a set of slices where 8 of 16 replicas do."""
    context = request(moe_model())
    found = costs_of(context, "tp2 dp16 ep8 zero1 shard=8", expert=PARAMETERS)
    states = context.framework.optimizer_bytes + context.framework.master_bytes

    assert found.optimizer_bytes[0, 0] == pytest.approx(PARAMETERS * states * (1 / 8 + 1 / 2), rel=1e-12)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_replicas_that_each_hold_a_set_are_replicas_without_sharding(stage: int) -> None:
    """One replica to a set: the bytes and the traffic of zero0."""
    context = request(framework="generic")
    context = replace(context, framework=replace(context.framework, layer_units=False))  # zero0 has buckets
    alone, plain = costs_of(context, f"tp2 dp32 zero{stage} shard=1"), costs_of(context, "tp2 dp32")

    assert alone.reduce_s[0] == pytest.approx(plain.reduce_s[0], rel=1e-12)
    assert alone.gather_s[0] == plain.gather_s[0] == 0.0
    for name in ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "optimizer_s"):
        assert getattr(alone, name) == getattr(plain, name)


@pytest.mark.parametrize("more", ["", " shard=8"])
def test_whole_gradients_are_added_up_over_all_replicas_where_the_framework_does(more: str) -> None:
    """InternEvo: what is shared out decides who broadcasts parameters to whom, and nothing about gradients."""
    context = request(framework="internevo")
    sharded, plain = costs_of(context, f"dp32 zero1{more}"), costs_of(context, "dp32")
    ranks = 8 if more else 32
    one = collective_time_s(context.cluster, "broadcast", 2 * PARAMETERS / ranks, ranks, 1)

    assert sharded.reduce_s[0] == plain.reduce_s[0] > 0
    assert sharded.gather_s[0] == pytest.approx(ranks * float(one), rel=1e-12)


def test_a_layer_is_one_collective_only_where_gradients_or_parameters_are_sharded() -> None:
    layers = request(framework="torchtitan")
    buckets = replace(layers, framework=replace(layers.framework, layer_units=False))
    for stage, same in ((0, True), (2, False), (3, False)):
        first, second = (costs_of(context, f"dp32 zero{stage}").reduce_s[0] for context in (layers, buckets))
        assert (first == second) == same


@pytest.mark.parametrize("framework", ["generic", "megatron-lm", "torchtitan", "internevo"])
def test_all_replicas_named_by_number_cost_the_same_to_the_bit(framework: str) -> None:
    context = request(framework=framework)
    zero = max(context.framework.legality.partial_zero)
    table = table_of([parse_strategy(f"tp2 dp32 mbs1 sp zero{zero}")])
    choices = {**table.choices, "shard": np.array([32])}  # past the canonical form, which has no such number
    by_number, whole = score(context, replace(table, choices=choices)), score(context, table)

    assert by_number.step_time_s[0] == whole.step_time_s[0]
    assert by_number.peak_memory_bytes[0] == whole.peak_memory_bytes[0]


@settings(max_examples=tries(40))
@given(st.data())
def test_fewer_sharing_need_more_memory(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = legal_table(context, 16)
    partial = np.flatnonzero(table.column("shard"))
    if not len(partial):
        return
    row = int(data.draw(st.sampled_from(partial.tolist())))
    strategy = table.strategy(row)
    sizes = [size for size in (2, 4, 8) if strategy.dp * strategy.cp % size == 0 and size < strategy.dp * strategy.cp]
    rows = table_of([replace(strategy, shard=size) for size in (*sizes, 0)])
    live = score(context, rows).allocated_bytes

    assert np.all(np.diff(live) <= 0)


def test_sets_within_nodes_pay_at_scale_and_not_before() -> None:
    """Both send as many bytes over the network, but a ring over all replicas has as many steps as there are."""
    found = {}
    for ranks in (16, 1024):
        context = request(framework="torchtitan", global_batch=ranks)
        table = table_of([parse_strategy(f"dp{ranks} mbs1 zero3{more}") for more in ("", " shard=8")])
        scores = score(context, table)
        found[ranks] = scores.time_s["data"][1] / scores.time_s["data"][0]
        assert scores.peak_memory_bytes[1] > scores.peak_memory_bytes[0]

    assert found[16] > 1 > 5 * found[1024]


@pytest.mark.parametrize(
    "text", ["dp64 zero3 shard=8", "tp2 dp32 sp zero2 shard=4", "tp2 pp4 dp8 sp zero1 shard=4", "dp64 zero1 shard=16"]
)
@pytest.mark.parametrize("contention", [False, True])
def test_events_agree_with_the_core(text: str, contention: bool) -> None:
    context = request(framework="generic", global_batch=256, cluster=load_cluster("dgx-h100"))
    strategy = parse_strategy(text)
    core = score(context, table_of([strategy])).step_time_s[0]

    assert simulate(context, strategy, contention=contention).step_time_s == pytest.approx(core, rel=0.05)
