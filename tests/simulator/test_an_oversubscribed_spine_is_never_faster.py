"""A leaf and spine with less than full bisection never speed a collective up; more oversubscription slows it down."""

from dataclasses import replace
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.costs import Collective, collective_time_s
from forerun.spaces.clusters import Cluster, cluster_names, load_cluster
from forerun.spaces.clusters.levels import levels_from_spec

SIZES = np.array([0.0, 512.0, 4e4, 1e6, 3e7, 1e9, 1e11])
CLUSTERS = [
    cluster
    for cluster in map(load_cluster, cluster_names())
    if cluster.spec is not None and cluster.spec.network is not None and not cluster.groups
]


def with_leaves(cluster: Cluster, leaves: int | None, oversubscription: float) -> Cluster:
    """Return ``cluster`` with ``leaves`` scale-up domains under every leaf switch; None: full bisection."""
    assert cluster.spec is not None and cluster.spec.network is not None
    domain = max(cluster.spec.unit // cluster.spec.devices_per_node, 1)
    nodes = None if leaves is None else leaves * domain
    network = replace(cluster.spec.network, oversubscription=oversubscription, leaf_nodes=nodes)
    spec = replace(cluster.spec, network=network)
    return replace(cluster, spec=spec, levels=levels_from_spec(spec))


@settings(max_examples=tries(80))
@given(
    cluster=st.sampled_from(CLUSTERS),
    collective=st.sampled_from(get_args(Collective)),
    group=st.tuples(st.sampled_from([2, 3, 8, 16, 24, 64, 256]), st.sampled_from([1, 2, 8, 16, 64])),
    leaves=st.integers(1, 16),
    oversubscription=st.floats(1.0001, 8.0),
    lone=st.booleans(),
)
def test_less_than_full_bisection_costs(cluster, collective, group, leaves, oversubscription, lone) -> None:
    clusters = [
        with_leaves(cluster, None, 1.0),
        with_leaves(cluster, leaves, oversubscription),
        with_leaves(cluster, leaves, 2 * oversubscription),
    ]
    full, some, more = (collective_time_s(each, collective, SIZES, *group, lone=lone) for each in clusters)
    assert np.all(full <= some * (1 + 1e-9))
    assert np.all(some <= more * (1 + 1e-9))


def test_what_crosses_the_spine_of_an_exchange_leaves_its_node_as_well() -> None:
    cluster = load_cluster("dgx-h100")
    flat, leafy = with_leaves(cluster, None, 1.0), with_leaves(cluster, 2, 1.0001)
    full, some = (float(collective_time_s(each, "all_to_all", 1e11, 256)) for each in (flat, leafy))
    assert full <= some <= 1.001 * full
