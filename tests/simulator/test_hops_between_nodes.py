"""A pipeline with several stages on a node crosses some borders within it and some beyond it."""

from dataclasses import replace

import pytest
from forerun_examples import dense_model, request

from forerun.simulator.costs import point_to_point_time_s
from forerun.simulator.pipeline.p2p import p2p_time_s
from forerun.spaces.strategies import Context, Placement, Strategy, table_of


def context(*, overlap: bool = False) -> Context:
    """Return a request on nodes of eight devices, each with a port of its own to the network."""
    made = replace(request(framework="generic"), model=dense_model())
    return replace(made, framework=replace(made.framework, overlap_pipeline=overlap, p2p_fixed_s=0.0))


def p2p_s(context: Context, **degrees: int) -> float:
    return float(p2p_time_s(context, table_of([Strategy(mbs=2, **{"dp": 1, **degrees})]))[0])


def sent_s(context: Context, stride: int, tp: int) -> float:
    """Seconds of one rank's part on the level that a stride crosses; sequence parallel leaves nothing to gather."""
    size = 2 * context.workload.seq_len * context.model.hidden * 2.0 / tp
    return float(point_to_point_time_s(context.cluster, size, stride))


@pytest.mark.parametrize(
    ("overlap", "pp", "share"),
    [
        (False, 2, 0.0),  # both stages are on one node
        (False, 4, 0.5),  # the slowest stage has one neighbour on each side
        (False, 16, 0.5),
        (True, 4, 1 / 3),  # of three borders one lies between nodes
        (True, 16, 7 / 15),
    ],
)
def test_a_hop_is_the_mean_of_those_within_and_beyond_the_node(overlap: bool, pp: int, share: float) -> None:
    made = context(overlap=overlap)
    near_s, far_s = sent_s(made, 4, 4), sent_s(made, 8, 4)
    assert far_s > 2 * near_s

    found = p2p_s(made, tp=4, pp=pp, sp=True)

    assert found == pytest.approx(near_s + share * (far_s - near_s), rel=1e-9)


def test_stages_that_fill_nodes_always_leave_them() -> None:
    made = context()
    assert p2p_s(made, tp=8, pp=4, sp=True) == pytest.approx(sent_s(made, 8, 8), rel=1e-9)
    assert p2p_s(made, tp=4, dp=2, pp=4, sp=True) == pytest.approx(sent_s(made, 8, 4), rel=1e-9)


def test_replicas_outside_of_pipelines_let_stages_share_a_node() -> None:
    made = context()
    apart = p2p_s(made, tp=2, dp=8, pp=8, sp=True)
    close = p2p_s(made, tp=2, dp=8, pp=8, sp=True, placement=Placement.TP_CP_EP_PP_DP)
    near_s, far_s = sent_s(made, 2, 2), sent_s(made, 8, 2)

    assert apart == pytest.approx(far_s, rel=1e-9)
    assert close == pytest.approx((near_s + far_s) / 2, rel=1e-9)
