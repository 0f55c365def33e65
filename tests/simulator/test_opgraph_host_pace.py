"""A host that issues kernels one by one: the closed form is the recurrence; nothing faster makes it later."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.search.opgraph.what_if import stronger
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.context import paced
from forerun.simulator.opgraph.events.scores import simulate_split
from forerun.simulator.opgraph.score import score_splits
from forerun.spaces.clusters import load_cluster
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.opgraph.split import parse_split

SECONDS = st.floats(0.0, 10.0)
OPERATORS = st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), min_size=1, max_size=12)


def ends(operators: list[tuple[float, float, bool]], host_s: float) -> list[float]:
    """When every kernel has ended, one after the other: forward in order, then backward."""
    order = [(forward, own) for forward, _, own in operators]
    order += [(backward, own) for _, backward, own in reversed(operators)]
    each = host_s / max(sum(own for _, own in order), 1)
    now, issued, found = 0.0, 0, []
    for seconds, own in order:
        if own:
            now, issued = max(now, issued * each), issued + 1
        now += seconds
        found.append(now)
    return found


def by_rule(operators: list[tuple[float, float, bool]], host_s: float) -> np.ndarray:
    forward, backward, own = (np.array([column], dtype=float) for column in zip(*operators, strict=True))
    there, back = paced(forward, backward, own, np.array([host_s]))
    return np.cumsum(np.concatenate([there[0], back[0][::-1]]))


@given(OPERATORS, SECONDS)
def test_the_closed_form_is_the_recurrence(operators: list[tuple[float, float, bool]], host_s: float) -> None:
    assert by_rule(operators, 10 * host_s) == pytest.approx(ends(operators, 10 * host_s), abs=1e-9)


@given(OPERATORS, SECONDS, st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12))
def test_faster_kernels_end_no_later(
    operators: list[tuple[float, float, bool]], host_s: float, factors: list[float]
) -> None:
    faster = [(f * x, b * x, own) for (f, b, own), x in zip(operators, factors, strict=False)]
    assert np.all(by_rule(faster, host_s) <= by_rule(operators, host_s) + 1e-9)


@pytest.mark.parametrize("name", ["data8", "data4 filter2", "data2 pipeline4 segments2"])
def test_networks_of_a_slow_host_are_no_slower_on_faster_devices(name: str) -> None:
    context = GraphContext(
        model=load_graph_model("resnet50"),
        cluster=load_cluster("dgx1-v100"),
        profile=dataclasses.replace(load_graph_profile("pytorch-ddp"), operator_host_s=40e-6),
        precision="fp32",
        global_batch=PerDevice(16),
    )
    faster = dataclasses.replace(context, cluster=stronger(context.cluster))
    split = parse_split(name)
    before, after = (score_splits(one, [split], [128]).step_time_s[0] for one in (context, faster))
    assert after <= before
    played = simulate_split(context, split).step_time_s
    assert played == pytest.approx(before, rel=0.05)
    assert simulate_split(faster, split).step_time_s <= played
