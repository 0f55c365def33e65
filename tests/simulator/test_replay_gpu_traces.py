"""Traces of GPUs with the fields of real ones: what kernels, copies and messages of NCCL are taken for."""

import json
from enum import EnumType

import numpy as np
import pytest
from gpu_traces import BACKWARD_US, COPY_US, FORWARD_US, GRADIENTS, HIDDEN_ELEMENTS, REDUCE_US, STEPS, WORLD_US, gpu_run

from forerun.simulator.replay import analyse_files, match, read_traces
from forerun.simulator.replay.trace import Place, SpanKind, SpanPhase


def test_a_pipeline_of_gpus_is_read_and_replayed(tmp_path):
    steps = gpu_run(tmp_path)
    analysis = analyse_files([tmp_path])
    assert np.allclose(analysis.replay.measured_s, steps, rtol=1e-3)
    assert abs(analysis.replay.error) < 0.002
    assert analysis.replay.graph.matching.unmatched == 0
    kernels = 1e-6 * (COPY_US + FORWARD_US + BACKWARD_US)
    for use in analysis.uses:
        assert use.compute_s == pytest.approx(kernels, rel=0.02)
        assert use.compute_s + use.exposed_s + use.host_s + use.idle_s == pytest.approx(np.mean(steps), rel=0.01)
    # Both stages compute one after the other; reductions and what is sent are never under computation here.
    assert np.mean(steps) > 1e-6 * (2 * FORWARD_US + 2 * BACKWARD_US + REDUCE_US + WORLD_US)


def test_kernels_copies_and_messages_are_what_they_are(tmp_path):
    gpu_run(tmp_path)
    traces = read_traces([tmp_path])
    assert [trace.rank for trace in traces] == [0, 1, 2, 3]
    for trace in traces:
        assert trace.has_device and trace.world == 4
        assert trace.groups[0] == (0, 1, 2, 3)
        device = np.array([trace.places[lane] == Place.DEVICE for lane in trace.lane])
        assert device.sum() == STEPS * 7
        assert (trace.kind[~device] == SpanKind.HOST).all()
        assert (trace.cause[device] >= 0).all()
        assert (trace.end_s[trace.cause[device]] <= trace.start_s[device]).all()
        assert (trace.kind == SpanKind.COPY).sum() == STEPS
        products = [span for span in range(len(trace)) if "nvjet" in trace.title(span)]
        assert [trace.phase[span] for span in products[:2]] == [SpanPhase.FORWARD, SpanPhase.BACKWARD]
        assert all(trace.kind[span] == SpanKind.COMPUTE for span in products)
    operations = {
        (message.operation, message.ranks, message.size_bytes)
        for trace in traces
        for message in trace.messages.values()
    }
    assert operations == {
        ("send", (0, 2), 2.0 * HIDDEN_ELEMENTS),
        ("receive", (0, 2), 2.0 * HIDDEN_ELEMENTS),
        ("send", (2, 0), 2.0 * HIDDEN_ELEMENTS),
        ("receive", (2, 0), 2.0 * HIDDEN_ELEMENTS),
        ("send", (1, 3), 2.0 * HIDDEN_ELEMENTS),
        ("receive", (1, 3), 2.0 * HIDDEN_ELEMENTS),
        ("send", (3, 1), 2.0 * HIDDEN_ELEMENTS),
        ("receive", (3, 1), 2.0 * HIDDEN_ELEMENTS),
        ("all_reduce", (0, 1), 2.0 * GRADIENTS),
        ("all_reduce", (2, 3), 2.0 * GRADIENTS),
        ("all_reduce", (0, 1, 2, 3), 2.0),
    }
    sizes = sorted(len(one.members) for one in match(traces).exchanges)
    assert sizes == [2] * (STEPS * 6) + [4] * STEPS


def test_no_signal_is_lost_while_a_trace_is_read(tmp_path, monkeypatch):
    """NumPy asks what it compares for attributes, and clears any error: that of a signal, too."""
    gpu_run(tmp_path)
    asked, before = [], getattr(EnumType, "__getattr__", None)

    def attribute(cls, name):
        asked.append(name)
        if before is None:
            raise AttributeError(name)
        return before(cls, name)

    monkeypatch.setattr(EnumType, "__getattr__", attribute, raising=False)
    spans = sum(len(trace.start_s) for trace in read_traces([tmp_path]))
    assert spans and sum(name.startswith("__array") for name in asked) < spans / 2


def both_ways(tmp_path, change=lambda events: None):
    """Write two ranks whose one kernel sends to and receives from the other; rank 1 comes 100 us later."""
    for rank in (0, 1):
        late, peer = 100.0 * rank, 1 - rank
        common = {"dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000, "Process Group Name": "2"}
        send = {
            "External id": 11,
            "Collective name": "send",
            "Dst Rank": peer,
            "Process Group Ranks": "[0, 1]",
            **common,
        }
        receive = {**send, "External id": 12, "Collective name": "recv", "Src Rank": peer}
        events = [
            event("aten::mm", "cpu_op", 1, late, 20.0),
            event("record_param_comms", "cpu_op", 1, late + 21.0, 2.0, **send),
            event("record_param_comms", "cpu_op", 1, late + 24.0, 2.0, **receive),
            event("cudaLaunchKernelExC", "cuda_runtime", 1, late + 30.0, 5.0, correlation=9),
            event(
                "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
                "kernel",
                24,
                late + 40.0,
                160.0 - late,
                correlation=9,
            ),
        ]
        change(events)
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))


def event(name, cat, tid, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def test_one_kernel_may_send_and_receive(tmp_path):
    both_ways(tmp_path)
    traces = read_traces([tmp_path])
    for trace in traces:
        (send,) = np.flatnonzero(trace.kind == SpanKind.SEND)
        (receive,) = np.flatnonzero(trace.kind == SpanKind.RECEIVE)
        assert trace.start_s[send] == trace.end_s[send] == trace.start_s[receive]
    exchanges = match(traces).exchanges
    assert [one.operation for one in exchanges] == ["pair", "pair"]
    assert {(one.members[0][0], one.members[1][0]) for one in exchanges} == {(0, 1), (1, 0)}
    analysis = analyse_files([tmp_path], aligned=False)
    assert abs(analysis.replay.error) < 1e-6


def test_a_kernel_of_which_nothing_was_recorded_keeps_its_measured_time(tmp_path):
    both_ways(tmp_path, lambda events: events.__delitem__(slice(1, 3)))
    analysis = analyse_files([tmp_path])
    assert analysis.replay.graph.matching.unmatched > 0
    assert abs(analysis.replay.error) < 1e-6


def test_groups_are_told_by_their_first_rank_and_stride(tmp_path):
    def reduce(events):
        own = {
            "Collective name": "all_reduce_single",
            "Global rank start": 1,
            "Global rank stride": 2,
            "Group size": 40,
        }
        own |= {"Collective name": "_reduce_scatter_base", "Process Group Ranks": "[1, 3, ...]", "dtype": "BFloat16"}
        own |= {"In msg nelems": 80, "Out msg nelems": 2}
        events[1:] = [
            event("cudaLaunchKernelExC", "cuda_runtime", 1, 30.0, 5.0, correlation=9),
            event("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "kernel", 24, 40.0, 50.0, correlation=9, **own),
        ]

    both_ways(tmp_path, reduce)
    (message,) = read_traces([tmp_path / "rank0.json"])[0].messages.values()
    assert message.ranks == tuple(range(1, 81, 2))
    assert (message.operation, message.size_bytes) == ("reduce_scatter", 160)
