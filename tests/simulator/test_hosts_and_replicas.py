"""What a host's speed and a parameter broadcast per replica cost, derived from the rules they are made of."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request

from forerun.simulator import score
from forerun.simulator.block_times import layer_launches_s
from forerun.simulator.costs import collective_time_s
from forerun.simulator.parameters import StageParameters
from forerun.simulator.replicas import Replicas, replica_costs
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


def test_every_replica_broadcasts_its_part() -> None:
    ranks = 8.0
    base = request()
    context = replace(base, framework=replace(base.framework, broadcasts_parameters=True))
    one, zero = np.ones(1), np.zeros(1)
    parameters = StageParameters(dense=np.full((1, 1), 1e9), expert=np.zeros((1, 1)), tied=np.zeros((1, 1)))
    replicas = Replicas(
        dp=np.full(1, ranks), tp=one, pp=one, cp=one, ep=one, etp=one, zero=one, placement=zero, parameters=parameters
    )
    each = collective_time_s(context.cluster, "broadcast", 2e9 / ranks, ranks, 1.0)
    assert replica_costs(context, replicas).gather_s[0] == pytest.approx(ranks * float(each), rel=1e-12)
    assert replica_costs(base, replicas).gather_s[0] < replica_costs(context, replicas).gather_s[0]
