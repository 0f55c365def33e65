"""Rings of stages on common ports: who shares with whom, and for how long."""

from collections.abc import Sequence

import numpy as np
import pytest

from forerun.simulator.opgraph.groups import stage_strides
from forerun.simulator.opgraph.shared_ports import shared_s
from forerun.spaces.clusters import load_cluster

REPLICAS, STAGES = 4, 8
"""Each replica fills two nodes of four V100. One ring may use twice the share that it has when all four exchange."""


def took_s(wire_S: Sequence[float], ready_S: Sequence[float] = (0.0,) * STAGES, *, pipelines: int = 1) -> list[float]:
    """Return the seconds of one bucket per stage; ``wire_S``: seconds while all devices exchange."""
    cluster = load_cluster("abci-v100")
    shape = (pipelines, STAGES, 1)
    wire, ready = (np.broadcast_to(np.array(one)[:, None], shape) for one in (wire_S, ready_S))
    strides = np.array([stage_strides(cluster.levels, REPLICAS, STAGES)])
    pipeline = np.zeros(pipelines, dtype=np.int64)
    took = shared_s(cluster, np.array([[REPLICAS, STAGES]]), strides, pipeline, ready, wire, np.zeros(shape))
    assert (took == took[:1]).all()
    return [float(seconds) for seconds in took[0, :, 0]]


def test_rings_that_exchange_at_once_take_what_the_rule_says() -> None:
    assert took_s([1.0] * STAGES, pipelines=3) == pytest.approx([1.0] * STAGES)


def test_a_ring_without_others_on_its_node_is_faster_whatever_other_nodes_do() -> None:
    assert took_s([1.0, 0, 0, 0, 1.0, 1.0, 1.0, 1.0]) == pytest.approx([0.5, 0, 0, 0, 1.0, 1.0, 1.0, 1.0])
    assert took_s([1.0, 1.0, 1.0, 1.0, 0, 0, 0, 1.0]) == pytest.approx([1.0, 1.0, 1.0, 1.0, 0, 0, 0, 0.5])


def test_rings_share_only_while_both_exchange() -> None:
    apart = took_s([1.0] * STAGES, [0, 9, 18, 27, 0, 0, 0, 0])
    assert apart == pytest.approx([0.5] * 4 + [1.0] * 4)
    # All four share for a second, in which half of the longest is sent; the rest has the port for itself.
    assert took_s([2.0, 1.0, 1.0, 1.0, 0, 0, 0, 0])[:4] == pytest.approx([1.5, 1.0, 1.0, 1.0])
