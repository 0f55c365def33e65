"""Trace files: what is read of whole ones, and one clear message for all others."""

import gzip
import json
import tracemalloc

import numpy as np
import pytest
from synthetic_runs import data_parallel

from forerun.simulator.replay import analyse_files, read_traces
from forerun.simulator.replay.readers.json_stream import JsonStream
from forerun.simulator.replay.trace import SpanKind
from forerun.spaces.errors import RequestError
from forerun.spaces.protobuf import varint


def kineto(events, rank=0, **more):
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events, **more}


def operator(name, ts, dur, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def test_packed_and_plain_files_say_the_same(tmp_path):
    made = data_parallel(tmp_path, ranks=2, steps=2)
    plain = read_traces(made.paths)
    packed = []
    for path in made.paths:
        packed.append(path.with_suffix(".json.gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    again = read_traces([tmp_path])
    for one, other in zip(plain, again, strict=True):
        assert np.array_equal(one.start_s, other.start_s) and np.array_equal(one.cause, other.cause)
        assert one.messages == other.messages and one.messages


def test_a_message_waits_for_what_came_before_it_in_the_operator_that_asked(tmp_path):
    events = [
        operator("autograd::engine::evaluate_function: Accumulate", 100.0, 50.0),
        operator("c10d::allreduce_", 120.0, 5.0),
        operator(
            "gloo:all_reduce",
            121.0,
            100.0,
            tid=2,
            cat="user_annotation",
            **{"Input Dims": [[8]], "Input type": ["float"]},
        ),
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(kineto(events)))
    (trace,) = read_traces([path])
    ((span, message),) = trace.messages.items()
    assert (message.operation, message.size_bytes) == ("all_reduce", 32)
    cause = trace.cause[span]
    assert (trace.end_s[cause] - trace.start_s[cause]) == pytest.approx(20e-6)
    assert int((trace.kind == SpanKind.COMPUTE).sum()) == 2


def test_a_receive_that_waits_in_its_call_came_with_the_call(tmp_path):
    """gloo records a receive at its end, where the call has waited: that wait is no computation."""
    shape = {"Input Dims": [[8]], "Input type": ["float"]}
    for rank, (call, record, begin, took, recorded) in enumerate(
        [("c10d::send", "gloo:send", 300.0, 12.0, 305.0), ("c10d::recv_", "gloo:recv", 110.0, 200.0, 308.0)]
    ):
        events = [
            operator("aten::mm", 100.0, begin - 100.0),
            operator(call, begin, took, **{"Input Dims": [[[8]], [1 - rank]]}),
            operator(record, recorded, 4.0, cat="user_annotation", **shape),
            operator("aten::relu", begin + took + 2.0, 50.0),
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(kineto(events, rank=rank)))
    analysis = analyse_files([tmp_path])
    assert analysis.uses[1].waiting_s == pytest.approx(195e-6, abs=10e-6)
    assert analysis.uses[1].compute_s < 70e-6
    assert analysis.replay.error == pytest.approx(0, abs=1e-6)


def test_kernels_know_their_launch_and_collectives_their_arguments(tmp_path):
    nccl = {
        "External id": 9,
        "correlation": 2,
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "dtype": "BFloat16",
        "Process Group Ranks": "[0, 1]",
        "Process Group Name": "5",
    }
    events = [
        operator("aten::mm", 0.0, 30.0),
        operator("cudaLaunchKernel", 10.0, 6.0, cat="cuda_runtime", correlation=1),
        operator("cudaLaunchKernelExC", 50.0, 6.0, cat="cuda_runtime", correlation=2),
        operator("ampere_bf16_gemm", 20.0, 100.0, tid=7, cat="kernel", correlation=1, grid=[1, 2, 3]),
        operator("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 130.0, 40.0, tid=20, cat="kernel", **nccl),
        operator("cudaDeviceSynchronize", 60.0, 115.0, cat="cuda_runtime", correlation=3),
        operator("aten::add", 180.0, 5.0),
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(kineto(events)))
    (trace,) = read_traces([path])
    assert trace.has_device
    gemm = trace.names.index("ampere_bf16_gemm")
    span = int(np.flatnonzero(trace.name == gemm)[0])
    assert trace.end_s[trace.cause[span]] == pytest.approx(10e-6)
    ((_, message),) = trace.messages.items()
    assert (message.operation, message.size_bytes, message.ranks, message.label) == ("all_reduce", 2048, (0, 1), "5")
    assert trace.synced.sum() == 1


@pytest.mark.parametrize("size", [0, 1, 2, 10, 300, 3000, -1000, -200, -30, -2, -1])
def test_every_torn_file_is_one_clear_message(tmp_path, size):
    made = data_parallel(tmp_path, ranks=1, steps=12)
    data = made.paths[0].read_bytes()
    for name, whole in (("rank0.json", data), ("rank0.json.gz", gzip.compress(data))):
        torn = tmp_path / "torn" / name
        torn.parent.mkdir(exist_ok=True)
        torn.write_bytes(whole[:size])
        with pytest.raises(RequestError) as error:
            read_traces([torn])
        assert name in str(error.value) and len(str(error.value)) < 500


HOSTILE = {
    "nothing": b"",
    "spaces": b"  \n ",
    "text": b"rm -rf /",
    "binary": bytes(range(256)) * 10,
    "number": b"17",
    "no events": b'{"traceEvents": []}',
    "other document": b'{"a": 1}',
    "events that are none": b'{"traceEvents": [1, null, "x", [], {}, {"ph": "X"}]}',
    "deep": b'{"traceEvents": [' + b"[" * 200_000,
    "deep object": b'{"traceEvents": [' + b'{"a":' * 200_000,
    "endless number": b'{"traceEvents": [' + b"9" * 10_000 + b"]}",
    "not a number": b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":NaN,"dur":1}]}',
    "infinity": b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":1e400,"dur":1}]}',
    "huge": b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":1' + b"0" * 400 + b',"dur":1}]}',
    "negative": b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":-5}]}',
    "text as time": b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","ts":"1","dur":"2"}]}',
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "two documents": b'{"traceEvents": []} {"traceEvents": []}',
    "comma missing": b'{"traceEvents": [{"a": 1} {"b": 2}]}',
    "not utf-8": b'{"traceEvents": [{"name": "\xff\xfe"}]}',
    "wrong close": b'{"traceEvents": [{"a": 1}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_message(tmp_path, name):
    path = tmp_path / "rank0.json"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(RequestError) as error:
        analyse_files([path])
    assert "rank0.json" in str(error.value) and len(str(error.value)) < 500


def test_mixed_versions_double_and_unknown_ranks(tmp_path):
    def write(name, document):
        (tmp_path / name).write_text(json.dumps(document))
        return tmp_path / name

    one = [operator("aten::mm", 0.0, 1.0)]
    first, second = write("a.json", kineto(one)), write("b.json", kineto(one, rank=1, schemaVersion=2))
    with pytest.raises(RequestError, match="one profiler and version"):
        read_traces([first, second])
    with pytest.raises(RequestError, match="rank 0 is in"):
        read_traces([first, write("c.json", kineto(one))])
    nameless = write("d.json", {"traceEvents": one}), write("e.json", {"traceEvents": one})
    with pytest.raises(RequestError, match="does not say its rank"):
        read_traces(nameless)
    with pytest.raises(RequestError, match="does not exist"):
        read_traces([tmp_path / "missing"])
    assert read_traces(nameless[:1])[0].rank == 0
    for host, gpu in ((0, 0), (0, 1), (1, 0), (10, 0)):
        folder = tmp_path / "trial" / f"host{host}" / str(gpu)
        folder.mkdir(parents=True)
        (folder / "trace.json").write_text(json.dumps({"traceEvents": one}))
    found = read_traces([tmp_path / "trial"])
    assert [trace.source.split("/")[-3:-1] for trace in found] == [
        ["host0", "0"], ["host0", "1"], ["host1", "0"], ["host10", "0"],
    ]  # fmt: skip
    assert [trace.rank for trace in found] == [0, 1, 2, 3]


@pytest.mark.slow  # a large file
def test_a_large_file_is_read_in_the_memory_of_one_piece(tmp_path):
    path = tmp_path / "rank0.json"
    event = json.dumps(operator("python_function", 1.0, 2.0, cat="python_function", pad="x" * 400))
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        for _ in range(300):
            file.write((event + ",") * 300)
        file.write(event + "]}")
    assert path.stat().st_size > 40e6
    seen = []
    tracemalloc.start()
    assert sum(1 for _ in JsonStream(path, seen.append).items("traceEvents")) == 90_001
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30e6
    assert sum(seen) == path.stat().st_size and len(seen) > 8


def field(number, value):
    """Return a protobuf field, as an encoder of its own for this test."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(number, name, kind, duration, after=(), start=0, **attributes):
    data = field(1, number) + field(2, name) + field(3, kind) + field(6, start) + field(7, duration)
    data += field(5, b"".join(varint(one) for one in after)) if after else b""
    for key, value in attributes.items():
        data += field(10, field(1, key) + (field(29, value) if isinstance(value, str) else field(9, value)))
    return data


def chakra(*nodes, version="0.0.4"):
    return b"".join(varint(len(data)) + data for data in (field(1, version), *nodes))


def test_execution_traces_of_chakra(tmp_path):
    for rank, took in ((0, 100), (1, 160)):
        data = chakra(
            node(1, "mm", 4, took),
            node(2, "mm2", 4, 40, after=[1]),
            node(3, "reduce", 7, 50, after=[1], comm_type=0, comm_size=4096, pg_name="0"),
            node(4, "update", 4, 10, after=[2, 3]),
        )
        (tmp_path / f"trace.{rank}.et").write_bytes(data)
    traces = read_traces([tmp_path])
    assert [trace.rank for trace in traces] == [0, 1]
    analysis = analyse_files([tmp_path])
    (one,) = analysis.replay.graph.matching.exchanges
    assert (one.operation, one.size_bytes, len(one.members)) == ("all_reduce", 4096, 2)
    # Rank 1 comes last after 160 us, the reduction takes 50, the update 10.
    assert analysis.replay.run.makespan_s == pytest.approx(220e-6)


def test_torn_and_hostile_execution_traces(tmp_path):
    good = chakra(node(1, "mm", 4, 100), node(2, "mm", 4, 100, after=[1]))
    path = tmp_path / "trace.0.et"
    for data in (
        b"",
        good[:-1],
        good[:3],
        chakra(node(1, "mm", 4, 100, after=[7])),
        chakra(node(1, "mm", 4, 0)),
        b"\xff" * 12,
        varint(1 << 27) + b"x",
        varint(2) + b"\x0b\x00" + varint(2) + b"\x0b\x00",
        b'{"traceEvents": []}',
    ):
        path.write_bytes(data)
        with pytest.raises(RequestError) as error:
            analyse_files([path])
        assert "trace.0.et" in str(error.value)


def test_control_dependencies_on_nodes_that_were_left_out_are_void(tmp_path):
    waits = field(4, varint(3))  # ctrl_deps
    path = tmp_path / "trace.0.et"
    path.write_bytes(chakra(node(1, "mm", 4, 100) + waits, node(2, "mm2", 4, 40, after=[1])))

    assert analyse_files([path]).replay.run.makespan_s == pytest.approx(140e-6)


def test_hidden_files_of_a_folder_are_no_traces(tmp_path):
    (tmp_path / "trace.0.et").write_bytes(chakra(node(1, "mm", 4, 100)))
    (tmp_path / "._trace.0.et").write_bytes(b"\x00\x05\x16\x07\xff")

    assert len(read_traces([tmp_path])) == 1


@pytest.mark.parametrize("marked", [True, False])
def test_kernels_without_recorded_calls_keep_their_time_and_unmarked_steps_are_known(tmp_path, marked):
    name = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
    spans = [(name, 7, 100 + 10 * at, 5) for at in range(4)] + [("gemm", 8, 100 + 10 * at, 8) for at in range(4)]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": lane, "ts": start, "dur": took, "args": {}}
        for name, lane, start, took in spans
    ]
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 90, "dur": 100}
    (tmp_path / "rank0.json").write_text(json.dumps(kineto([*events, mark] if marked else events)))

    analysis = analyse_files([tmp_path])

    assert analysis.replay.graph.matching.unmatched == 4
    assert analysis.replay.run.makespan_s == pytest.approx(38e-6)
    assert [trace.marked for trace in analysis.replay.graph.traces] == [marked]
