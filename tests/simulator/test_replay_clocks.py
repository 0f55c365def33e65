"""Clocks of hosts are recovered, and a replay needs them."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_runs import data_parallel, pipelined

from forerun.simulator.replay import align, build_graph, match, read_traces, replay, unaligned

ASKED_S = 50e-6


def recovered(made, traces, clocks):
    """Return by how much the clock of any rank is wrong against rank 0's, anywhere in the run."""
    begin, end = min(one.start_s.min() for one in traces), max(one.end_s.max() for one in traces)
    times = np.linspace(begin, end, 9)
    base = clocks.aligned(0, times)
    worst = 0.0
    for place in range(len(traces)):
        true = made.offset_s[place] + made.drift[place] * (times - (begin + end) / 2)
        worst = max(worst, float(np.abs(clocks.aligned(place, times) - base - true).max()))
    return worst


@pytest.mark.slow  # 64 ranks are replayed
@pytest.mark.parametrize("hosts", [64, 8])
def test_offsets_of_64_ranks_and_what_a_replay_is_without(tmp_path, hosts):
    made = data_parallel(tmp_path, ranks=64, steps=6, offset_s=0.1, hosts=hosts, jitter=0.2)
    traces = read_traces(made.paths)
    matching = match(traces)
    clocks = align(traces, matching.exchanges)
    assert clocks.hosts == hosts and not clocks.broken and not clocks.unlinked
    assert recovered(made, traces, clocks) < ASKED_S
    with_clocks = replay(build_graph(traces, matching, clocks)).replayed_step_s
    without = replay(build_graph(traces, matching, unaligned(len(traces)))).replayed_step_s
    true = made.step_s.mean()
    assert abs(with_clocks / true - 1) < 0.001
    assert abs(without / true - 1) > 0.2


@pytest.mark.slow
def test_drifts_of_64_ranks_over_a_long_trace(tmp_path):
    made = data_parallel(tmp_path, ranks=64, steps=12, buckets=4, offset_s=0.1, drift=50e-6, pause_s=1.0)
    traces = read_traces(made.paths)
    clocks = align(traces, match(traces).exchanges)
    # Over 12 s a drift of 50 ppm is 600 us, twelve times what is asked.
    assert recovered(made, traces, clocks) < ASKED_S
    assert np.abs(clocks.drift - clocks.drift[0] - made.drift).max() < 5e-6


def test_offsets_of_noisy_ends(tmp_path):
    made = data_parallel(tmp_path, ranks=16, steps=8, offset_s=0.1, noise_s=100e-6)
    traces = read_traces(made.paths)
    assert recovered(made, traces, align(traces, match(traces).exchanges)) < ASKED_S


@pytest.mark.parametrize("offset_s", [0.0, 0.1])
def test_sends_and_receives_align_too(tmp_path, offset_s):
    made = pipelined(tmp_path, offset_s=offset_s)
    traces = read_traces(made.paths)
    matching = match(traces)
    assert len(matching.exchanges) == 2 * 3 * 6 * 2 and not matching.unmatched
    clocks = align(traces, matching.exchanges)
    assert recovered(made, traces, clocks) < ASKED_S
    error = replay(build_graph(traces, matching, clocks)).replayed_step_s / made.step_s.mean() - 1
    assert abs(error) < 0.001
    if offset_s:
        without = replay(build_graph(traces, matching, unaligned(len(traces)))).replayed_step_s
        assert abs(without / made.step_s.mean() - 1) > 0.1


def test_laws_hold_where_most_stamps_are_wrong(tmp_path):
    # Rank 1 notes three ends in five 3 ms late. The ends alone would move its clock by that; but then it would leave
    # the other reductions, which take 0.2 ms, before rank 0 has come to them.
    made = data_parallel(tmp_path, ranks=2, steps=5, buckets=4, offset_s=0.05, reduce_s=0.2e-3, jitter=0.0)
    first, second = read_traces(made.paths)
    end_s = second.end_s.copy()
    spans = sorted(second.messages)
    end_s[[span for number, span in enumerate(spans) if number % 5 < 3]] += 3e-3
    traces = (first, replace(second, end_s=end_s))
    clocks = align(traces, match(traces).exchanges)
    assert clocks.broken == 0
    assert recovered(made, traces, clocks) < 0.3e-3


def test_hosts_that_share_no_message_are_told(tmp_path):
    made = data_parallel(tmp_path, ranks=2, steps=2, buckets=0, offset_s=0.1)
    traces = read_traces(made.paths)
    clocks = align(traces, match(traces).exchanges)
    assert clocks.hosts == 2 and clocks.unlinked == 1
