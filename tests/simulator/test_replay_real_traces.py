"""Traces of real processes (see traces/README.md): they replay, and what they show is what was run."""

from pathlib import Path

import pytest

from forerun.simulator.improve.from_replay import replayed_step
from forerun.simulator.improve.step import simulate
from forerun.simulator.replay import analyse_files
from forerun.spaces.errors import RequestError

TRACES = Path(__file__).parent / "traces"


@pytest.mark.parametrize("kind", ["dp-transformer", "tp-transformer"])
def test_real_runs_replay_within_5_percent(kind):
    analysis = analyse_files([TRACES / kind])
    assert abs(analysis.replay.error) < 0.05
    assert analysis.averaged is not None and abs(analysis.averaged.error) < 0.05
    assert analysis.paced is not None and abs(analysis.paced.error) < 0.05
    assert analysis.replay.graph.matching.unmatched == 0
    assert analysis.replay.graph.clocks.hosts == 1


def test_reductions_of_data_parallel_training_hide_under_its_backward_pass():
    analysis = analyse_files([TRACES / "dp-transformer"])
    (use,) = analysis.links
    assert (use.operation, use.ranks, use.count) == ("all_reduce", (0, 1), 6)
    # Four layers of width 192 and hidden width 768, in fp32 and two steps: attention, both products, two norms.
    layer = 4 * 192 * 193 + 193 * 768 + 769 * 192 + 2 * 2 * 192
    assert use.total_bytes == 2 * 4 * 4 * layer
    found = replayed_step(analysis)
    assert found.split and len(found.plan.buckets) == 3
    assert found.step.gradient_bytes == pytest.approx(use.total_bytes / 2)
    assert simulate(found.step, found.plan).step_s == pytest.approx(found.measured_s, rel=0.25)


def test_reductions_of_tensor_parallel_training_are_waited_for_within_operators():
    analysis = analyse_files([TRACES / "tp-transformer"])
    (use,) = analysis.links
    # Four layers, two halves, forward and backward, in each of two steps.
    assert use.count == 4 * 2 * 2 * 2
    assert all(one.exposed_s > 0.02 * analysis.replay.step_s for one in analysis.uses)
    with pytest.raises(RequestError, match="not of gradients"):
        replayed_step(analysis)
    ranks = {part.rank for part in analysis.path}
    assert ranks == {0, 1}
