"""What a replay finds in runs whose truth is known."""

import json

import numpy as np
import pytest
from synthetic_runs import data_parallel

from forerun.simulator.events import execute
from forerun.simulator.replay import (
    analyse_files,
    build_graph,
    match,
    read_traces,
    replay,
    summary,
    unaligned,
    write_timeline,
)
from forerun.simulator.replay.graph import build_graphs
from forerun.simulator.replay.learned import fit_line, shared_seconds
from forerun.simulator.replay.shares import blame, covered, joined, length, outside, union
from forerun.simulator.replay.trace import SpanKind


def test_a_replay_gives_the_run_back(tmp_path):
    made = data_parallel(tmp_path, ranks=4, steps=5, jitter=0.3, noise_s=50e-6)
    analysis = analyse_files([tmp_path])
    assert abs(analysis.replay.error) < 0.002
    assert np.allclose(analysis.replay.replayed_s, made.step_s, rtol=0.01)
    waits = blame(analysis.replay.graph)
    assert np.all(np.diagonal(waits) == 0)
    assert waits.sum(axis=1) == pytest.approx([use.waiting_s for use in analysis.uses])
    for use in analysis.uses:
        assert use.compute_s + use.exposed_s + use.host_s + use.idle_s == pytest.approx(made.step_s.mean(), rel=1e-3)
        assert use.waiting_s <= use.exposed_s + 1e-9
    assert sum(part.seconds for part in analysis.path) == pytest.approx(analysis.replay.run.makespan_s)


def test_means_lose_who_was_slow_when_and_paces_keep_it(tmp_path):
    """In every step another rank takes half as long again: each is 1/8 slower on average, every step as long as 1.5."""
    paces = 1.0 + 0.5 * np.eye(4)
    made = data_parallel(tmp_path, ranks=4, steps=4, reduce_s=0.1e-3, jitter=0.0, noise_s=1e-7, paces=paces)
    analysis = analyse_files([tmp_path])
    assert abs(analysis.replay.error) < 1e-3
    assert analysis.averaged.error == pytest.approx(1.125 / 1.5 - 1, abs=0.03)
    assert abs(analysis.paced.error) < 0.03
    assert np.allclose(analysis.paced.measured_s, made.step_s, rtol=1e-3)
    (tmp_path / "even").mkdir()
    data_parallel(tmp_path / "even", ranks=4, steps=4, jitter=0.0, noise_s=1e-7)
    even = analyse_files([tmp_path / "even"])
    assert even.paced.replayed_step_s == pytest.approx(even.averaged.replayed_step_s, rel=1e-3)


def test_means_and_paces_share_the_graph_and_keep_its_sums(tmp_path):
    made = data_parallel(tmp_path, ranks=3, steps=4, jitter=0.3, noise_s=1e-6)
    traces = read_traces(made.paths)
    graphs = build_graphs(traces, match(traces), unaligned(3))
    measured, averaged, paced = (np.array(one.graph.duration_s) for one in graphs)
    own = graphs[0].step >= 0

    assert all(one.graph.successors is graphs[0].graph.successors for one in graphs[1:])
    assert averaged.sum() == pytest.approx(measured.sum())
    assert not np.allclose(averaged, measured) and not np.allclose(paced, averaged)
    for rank in range(3):
        for step in range(4):
            tasks = own & (graphs[0].rank == rank) & (graphs[0].step == step)
            assert paced[tasks].sum() == pytest.approx(measured[tasks].sum())


def test_waits_are_dependencies_and_not_times(tmp_path):
    # Twice as fast a network: the recursion of the generator says what that gives; a replay must say the same.
    slow = data_parallel(tmp_path, ranks=3, steps=3, reduce_s=4e-3, jitter=0.1, noise_s=1e-7, seed=5)
    (tmp_path / "fast").mkdir()
    fast = data_parallel(tmp_path / "fast", ranks=3, steps=3, reduce_s=1e-3, jitter=0.1, noise_s=1e-7, seed=5)
    assert slow.step_s.mean() > 1.4 * fast.step_s.mean()
    traces = read_traces(slow.paths)
    graph = build_graph(traces, match(traces), unaligned(3))
    for task, kind in enumerate(graph.graph.kind):
        if kind == SpanKind.COLLECTIVE:
            graph.graph.duration_s[task] -= 3e-3
    assert replay(graph).replayed_step_s == pytest.approx(fast.step_s.mean(), rel=0.005)


def test_a_straggler_is_named_and_dated(tmp_path):
    data_parallel(tmp_path, ranks=6, steps=10, slow=(4, 6, 1.25))
    analysis = analyse_files([tmp_path])
    (one,) = analysis.stragglers
    assert one.rank == 4 and one.since_step == 6
    assert one.excess_s == pytest.approx(0.25 * (4e-3 + 6 * 1e-3), rel=0.15)
    assert one.since_s == pytest.approx(analysis.replay.measured_s[:6].sum())
    # All steps from the sixth on wait for its first bucket: forward and one bucket's share of the backward pass.
    assert one.caused_s == pytest.approx(0.4 * 0.25 * 5e-3, rel=0.15)
    (tmp_path / "even").mkdir()
    data_parallel(tmp_path / "even", ranks=6, steps=10)
    assert analyse_files([tmp_path / "even"]).stragglers == ()


def test_a_straggler_that_becomes_slower_still_was_one_before(tmp_path):
    paces = np.ones((10, 6))
    paces[:, 4] = [1.25] * 6 + [1.6] * 4
    data_parallel(tmp_path, ranks=6, steps=10, paces=paces)
    (one,) = analyse_files([tmp_path]).stragglers
    assert one.rank == 4 and one.since_step == 0
    assert one.excess_s == pytest.approx(0.25 * (4e-3 + 6 * 1e-3), rel=0.15)


def test_a_message_that_took_longer_than_others_like_it_is_listed(tmp_path):
    made = data_parallel(tmp_path, ranks=2, steps=5, jitter=0.0, noise_s=0.0)
    assert analyse_files([tmp_path]).slow_messages == ()
    # The last reduction of step 3 took 9 ms longer on both ranks, and everything behind it was later.
    for path in made.paths:
        document = json.loads(path.read_text())
        events = document["traceEvents"]
        late = [event for event in events if event["name"] == "gloo:all_reduce"][3 * 6 + 5]
        moment = late["ts"] + late["dur"]
        for event in events:
            if event["ts"] >= moment - 1e-3:
                event["ts"] += 9000.0
            elif event["ts"] + event.get("dur", 0.0) >= moment - 1e-3:
                event["dur"] += 9000.0
        path.write_text(json.dumps(document))
    analysis = analyse_files([tmp_path])
    (one,) = analysis.slow_messages
    assert (one.operation, one.ranks, one.step) == ("all_reduce", (0, 1), 3)
    assert one.took_s == pytest.approx(one.usual_s + 9e-3, rel=0.01) and one.usual_s == pytest.approx(1.5e-3, rel=0.05)


def test_bandwidth_is_counted_from_the_last_arrival(tmp_path):
    data_parallel(tmp_path, ranks=4, steps=3, jitter=0.3, slow=(2, 0, 1.5), noise_s=1e-7, reduce_s=2e-3)
    (use,) = analyse_files([tmp_path]).links
    assert use.bandwidth_bytes_per_s == pytest.approx(2 * 3 / 4 * 1e6 / 2e-3, rel=0.01)


def device_run(folder, kernel_us, *, launch_us=10.0, count=40, ranks=2):
    """Write ranks that launch kernels one by one, reduce on a second stream and wait for the device at the end."""
    for rank in range(ranks):
        host, device, events, correlation = 0.0, 0.0, [], 0

        def event(name, cat, tid, ts, dur, events=events, **args):
            events.append(
                {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}
            )

        for _ in range(count):
            correlation += 1
            event("aten::mm", "cpu_op", 1, host, launch_us - 1)
            event("cudaLaunchKernel", "cuda_runtime", 1, host + 3, 4.0, correlation=correlation)
            begin = max(device + 1, host + 5)
            device = begin + kernel_us
            event("gemm", "kernel", 7, begin, kernel_us, correlation=correlation, grid=[1])
            host += launch_us
        correlation += 1
        event("cudaLaunchKernel", "cuda_runtime", 1, host, 3.0, correlation=correlation)
        args = {"Collective name": "allreduce", "In msg nelems": 10**6, "Out msg nelems": 10**6, "dtype": "Float"}
        args["Process Group Ranks"] = list(range(ranks))
        begin = max(device, host + 5)
        event("ncclDevKernel_AllReduce", "kernel", 20, begin, 200.0, correlation=correlation, **args)
        event("cudaDeviceSynchronize", "cuda_runtime", 1, host + 4, begin + 205 - host - 4, correlation=0)
        event("aten::item", "cpu_op", 1, begin + 210, 20.0)
        info = {"rank": rank, "world_size": ranks}
        document = {"schemaVersion": 1, "distributedInfo": info, "host_name": "a", "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(document))


def test_a_device_that_its_host_holds_up(tmp_path):
    (tmp_path / "slow").mkdir()
    (tmp_path / "fast").mkdir()
    device_run(tmp_path / "slow", 50.0)
    device_run(tmp_path / "fast", 2.0)
    slow, fast = analyse_files([tmp_path / "slow"]), analyse_files([tmp_path / "fast"])
    assert abs(slow.replay.error) < 1e-3 and abs(fast.replay.error) < 1e-3
    assert slow.uses[0].host_s < 20e-6
    assert fast.uses[0].host_s == pytest.approx(40 * 8e-6, rel=0.1)
    assert slow.uses[0].compute_s == pytest.approx(40 * 50e-6)
    # Kernels of 50 us made 25 times faster end where those of 2 us do: the launches decide.
    graph = slow.replay.graph
    for place, trace in enumerate(graph.traces):
        for span in np.flatnonzero(trace.kind == SpanKind.COMPUTE):
            graph.graph.duration_s[graph.task[place][span]] = 2e-6
    assert execute(graph.graph).makespan_s == pytest.approx(fast.replay.run.makespan_s, rel=0.05)


def test_overlap_is_compared_between_alike_kernels(tmp_path):
    events = []
    for number in range(8):
        under = number % 2
        at = 1000.0 * number
        for shape, took in ((8, 100.0), (9, 200.0)):
            dur = took * (1.3 if under else 1.0)
            args = {"Input Dims": [[shape]]}
            events.append(
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": at, "dur": dur, "args": args}
            )
            at += 300
        if under:
            args = {"Input Dims": [[4]], "Input type": ["float"]}
            event = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2}
            events.append({**event, "ts": 1000.0 * number - 5, "dur": 900.0, "args": args})
    (tmp_path / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (one,) = analyse_files([tmp_path]).overlaps
    assert one.kind == "gemm" and one.kernels == 2 and one.factor == pytest.approx(1.3)


def test_summary_and_timeline_are_plain_data(tmp_path):
    data_parallel(tmp_path, ranks=2, steps=2)
    analysis = analyse_files([tmp_path])
    document = json.loads(json.dumps(summary(analysis, link_bytes_per_s=1e9), allow_nan=False))
    assert document["schema"] == 1 and document["steps"] == 2 and len(document["ranks"]) == 2
    assert document["links"][0]["share_of_link"] == pytest.approx(document["links"][0]["bandwidth_bytes_per_s"] / 1e9)
    out = tmp_path / "out" / "timeline.json.gz"
    out.parent.mkdir()
    write_timeline(analysis.replay, out)
    import gzip

    shown = [event for event in json.loads(gzip.decompress(out.read_bytes()))["traceEvents"] if event["ph"] == "X"]
    assert len(shown) == sum(len(trace) for trace in analysis.replay.graph.traces) - sum(
        int((trace.end_s == trace.start_s).sum()) for trace in analysis.replay.graph.traces
    )


def test_messages_under_way_at_once_share_the_link():
    assert shared_seconds([(0.0, 4.0), (2.0, 6.0)]) == [3.0, 3.0]
    assert shared_seconds([(0.0, 1.0), (1.0, 3.0)]) == [1.0, 2.0]
    three = shared_seconds([(0.0, 6.0), (0.0, 6.0), (3.0, 9.0)])
    assert three == pytest.approx([2.5, 2.5, 4.0]) and sum(three) == pytest.approx(9.0)


def test_intervals():
    both = union(np.array([0.0, 1.0, 5.0, 5.0]), np.array([2.0, 3.0, 6.0, 5.0]))
    assert both.tolist() == [[0.0, 3.0], [5.0, 6.0]] and length(both) == 4.0
    other = union(np.array([2.0]), np.array([5.5]))
    assert joined(both, other).tolist() == [[0.0, 6.0]] and outside(both, other) == 2.5
    assert covered(both, np.array([1.0, -1.0, 4.0]), np.array([5.5, 0.0, 4.5])).tolist() == [2.5, 0.0, 0.0]


def test_a_line_through_sizes_and_times():
    sizes = np.array([1e6, 2e6, 8e6])
    latency, rate = fit_line(sizes, 1e-4 + sizes / 2e9)
    assert latency == pytest.approx(1e-4) and rate == pytest.approx(2e9)
    assert np.isnan(fit_line(np.array([1e6, 1e6]), np.array([1.0, 2.0]))[0])
    # Events of strangers: a message that took no time, one that never ended.
    torn = np.array([4e6, 4e6]), np.array([0.0, np.inf])
    more = np.concatenate([sizes, torn[0]]), np.concatenate([1e-4 + sizes / 2e9, torn[1]])
    assert fit_line(*more) == (latency, rate)
