"""What a host's speed and a parameter broadcast per replica cost, derived from the rules they are made of."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request, small_cluster

from forerun.simulator import score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.costs import collective_time_s
from forerun.simulator.costs.slowest import WAIT_PER_DOUBLING, wait_share
from forerun.simulator.layer.times import host_passes_s, layer_launches_s
from forerun.simulator.replicas.reduction import Replicas, replica_costs
from forerun.simulator.stages.parameters import StageParameters
from forerun.spaces.strategies import Context, parse_strategy, table_of


def with_host(context: Context, speed: float) -> Context:
    cluster = context.cluster
    return replace(context, cluster=replace(cluster, device=replace(cluster.device, host_speed=speed)))


def test_a_host_of_half_the_speed_launches_in_twice_the_time() -> None:
    context = request()
    assert layer_launches_s(with_host(context, 0.5)) == 2 * layer_launches_s(context)
    table = table_of([parse_strategy("mbs1")])
    bound = replace(context, framework=replace(context.framework, host_layer_s=1.0))
    slow, fast = (score(with_host(bound, speed), table).step_time_s[0] for speed in (0.5, 1.0))
    rest_s = 2 * fast - slow  # what does not depend on the host's speed
    layers, microbatches = context.model.layer_count, context.workload.global_batch
    assert fast - rest_s == pytest.approx(layers * microbatches * 1.0, rel=1e-9)


def some_replicas(ranks: float, zero: float, shard: float = 0.0) -> Replicas:
    """Replicas of one stage of 10^9 dense parameters in 50 tensors."""
    one = np.ones(1)
    parameters = StageParameters(
        dense=np.full((1, 1), 1e9),
        expert=np.zeros((1, 1)),
        outside=np.zeros((1, 1)),
        tied=np.zeros((1, 1)),
        tensors=np.full((1, 1), 50.0),
        shapes=np.zeros((1, 1)),
        frozen_dense=np.zeros((1, 1)),
        frozen_expert=np.zeros((1, 1)),
        beside_dense=np.zeros((1, 1)),
        beside_expert=np.zeros((1, 1)),
        muon_dense=np.zeros((1, 1)),
        muon_expert=np.zeros((1, 1)),
        muon_dense_s=np.zeros((1, 1)),
        muon_expert_s=np.zeros((1, 1)),
    )
    degrees = {"tp": one, "pp": one, "cp": one, "ep": one, "etp": one, "placement": np.zeros(1)}
    return Replicas(
        dp=np.full(1, ranks), zero=np.full(1, zero), shard=np.full(1, shard), parameters=parameters, **degrees
    )


def test_every_replica_broadcasts_its_part() -> None:
    ranks = 8.0
    base = request()
    context = replace(base, framework=replace(base.framework, broadcasts_parameters=True))
    replicas = some_replicas(ranks, zero=1.0)
    each = collective_time_s(context.cluster, "broadcast", 2e9 / ranks, ranks, 1.0)
    assert replica_costs(context, replicas).gather_s[0] == pytest.approx(ranks * float(each), rel=1e-12)
    assert replica_costs(base, replicas).gather_s[0] < replica_costs(context, replicas).gather_s[0]


def test_sharded_parameters_are_gathered_tensor_by_tensor() -> None:
    base = request()
    context = replace(base, framework=replace(base.framework, gathers_tensors=True))
    each = collective_time_s(context.cluster, "all_gather", 2e9 / 50, 8.0, 1.0)
    found = replica_costs(context, some_replicas(8.0, zero=1.0)).gather_s[0]
    assert found == pytest.approx(50 * float(each), rel=1e-12)


def test_buckets_are_filled_by_the_width_of_a_gradient_and_reduced_at_that_of_the_wire() -> None:
    base = request()
    profile = replace(
        base.framework, bucket_bytes=20e6, bucket_rank_bytes=0.0, reduce_bytes=4.0, bucket_width_bytes=2.0
    )
    context = replace(base, framework=profile)
    each = collective_time_s(context.cluster, "reduce_scatter", 40e6, 8.0, 1.0)
    found = replica_costs(context, some_replicas(8.0, zero=1.0)).reduce_s[0]
    assert found == pytest.approx(100 * float(each), rel=1e-12)


def test_without_a_tree_gradients_are_scattered_and_gathered() -> None:
    base = request()
    profile = replace(base.framework, tree_reduction=False, reduce_bytes=2.0)
    context = replace(base, framework=profile)
    sharded, whole = (replica_costs(context, some_replicas(8.0, zero)) for zero in (1.0, 0.0))
    assert whole.reduce_s[0] == pytest.approx(sharded.reduce_s[0] + sharded.gather_s[0], rel=1e-12)


def test_gradients_that_fill_buckets_stand_beside_the_buffer_of_replicas_only() -> None:
    base = request()
    profile = replace(base.framework, bucket_gradient_bytes=2.0, bucket_copies=0.0, workspace_bytes=0.0)
    context = replace(base, framework=profile)
    several, alone = (replica_costs(context, some_replicas(ranks, zero=0.0)) for ranks in (8.0, 1.0))
    assert several.buffer_bytes[0, 0] == pytest.approx(2e9)
    assert alone.buffer_bytes[0, 0] == 0.0


def test_every_tensor_rank_adds_to_the_launches_of_a_layer() -> None:
    base = request()
    profile = replace(base.framework, host_layer_s=1.0, host_rank_s=0.5, pipeline_rank_s=0.25)
    context, layers, none = replace(base, framework=profile), np.ones((1, 2)), np.zeros(2, dtype=np.int64)
    alone_s = layer_launches_s(context)
    for pp, rank_s in ((1.0, 0.5), (2.0, 0.75)):
        forward_s, backward_s = host_passes_s(context, layers, none, np.array([1.0, 4.0]), pp)
        assert forward_s + backward_s == pytest.approx([alone_s, alone_s + 3 * rank_s])


def test_passes_over_gradients_are_not_sharded() -> None:
    base = request()
    context = replace(base, framework=replace(base.framework, step_bytes=base.framework.step_bytes + 100.0))
    more_s = [
        replica_costs(context, replicas).optimizer_s[0] - replica_costs(base, replicas).optimizer_s[0]
        for replicas in (some_replicas(8.0, zero) for zero in (0.0, 1.0))
    ]
    assert more_s[0] > 0
    assert more_s[0] == pytest.approx(more_s[1], rel=1e-3)


def test_every_doubling_of_many_replicas_waits_as_much_longer() -> None:
    """Beyond the eight that clocks were taken from, and for both levels alike."""
    waits = {}
    for replicas in (1, 8, 16, 64):
        context = request(global_batch=2 * replicas, cluster=small_cluster())
        strategy = parse_strategy(f"dp{replicas} mbs2")
        time_s = {part: values[0] for part, values in score(context, table_of([strategy])).time_s.items()}
        waits[replicas] = time_s["host"], time_s["compute"]
        assert step_costs(assign(context, strategy)).host_step_s - context.framework.host_step_s == pytest.approx(
            float(wait_share(replicas)) * time_s["compute"]
        )
    assert waits[1] == waits[8]
    assert 0.005 < WAIT_PER_DOUBLING < 0.015
    assert waits[16][0] - waits[8][0] == pytest.approx(WAIT_PER_DOUBLING * waits[8][1])
    assert waits[64][0] - waits[16][0] == pytest.approx(2 * WAIT_PER_DOUBLING * waits[8][1])
