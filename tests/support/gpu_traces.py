"""Kineto traces of ranks with GPUs, made up to the microsecond, with the fields and habits of real ones.

Two pipeline stages of two data-parallel replicas. A rank launches products on stream 7 and copies its input; stages
exchange by ``batch_isend_irecv``, whose one kernel carries no arguments; gradients are reduced on stream 20 after
``cudaStreamWaitEvent``; ``cudaDeviceSynchronize`` ends a step. As PyTorch does, the group of all ranks has an empty
list of ranks in the header and lists of more than 30 end in an ellipsis; flow events, annotations and counters that
matter to nobody stand in between.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORWARD_US, BACKWARD_US, SEND_US, REDUCE_US, WORLD_US, COPY_US = 3000.0, 6000.0, 200.0, 1500.0, 100.0, 80.0
HIDDEN_ELEMENTS, GRADIENTS = 4 * 1024 * 1024, 25_000_000
STEPS = 3


@dataclass
class Writer:
    """Events of one rank; ``host`` and ``streams``: when its thread and each stream are free."""

    rank: int
    events: list[dict[str, Any]] = field(default_factory=list)
    host: float = 1000.0
    streams: dict[int, float] = field(default_factory=lambda: {7: 0.0, 20: 0.0, 24: 0.0})
    correlation: int = 100
    external: int = 5000

    def event(self, name: str, cat: str, pid: Any, tid: Any, ts: float, dur: float, **args: Any) -> None:
        """Write one complete event."""
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )

    def call(self, name: str, cat: str = "cuda_runtime", took: float = 5.0, **args: Any) -> int:
        """Let the thread call the runtime; return the number that its work on the device has."""
        self.correlation += 1
        numbers = {"External id": self.external, "correlation": self.correlation}
        self.event(name, cat, 4242, 4242, self.host, took, cbid=211, **numbers, **args)
        self.host += took
        return self.correlation

    def kernel(self, name: str, stream: int, after: float, took: float, correlation: int, **args: Any) -> float:
        """Run a kernel; return its end."""
        start = max(self.streams[stream], self.host + 1.0, after)
        more = {"queued": 0, "device": self.rank % 2, "context": 1, "stream": stream, "correlation": correlation}
        shape = {"grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 18}
        category = "kernel" if "Mem" not in name else "gpu_memcpy"
        self.event(name, category, self.rank % 2, stream, start, took, **more, **shape, **args)
        self.events.append(
            {"ph": "f", "id": correlation, "pid": 0, "tid": stream, "ts": start, "cat": "ac2g", "name": "ac2g"}
        )
        self.streams[stream] = start + took
        return start + took

    def operator(self, name: str, took: float, **args: Any) -> float:
        """Begin an operator around what is called next; return its start."""
        self.external += 1
        self.event(name, "cpu_op", 4242, 4242, self.host, took, **{"External id": self.external}, **args)
        return self.host

    def record(self, name: str, elements: int, ranks: str, group: str, **args: Any) -> dict[str, Any]:
        """Note a collective as c10d does; return its arguments."""
        self.external += 1
        noted = {
            "External id": self.external,
            "Collective name": name,
            "dtype": "BFloat16",
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": 2,
            "Process Group Name": group,
            "Process Group Description": "undefined",
            "Process Group Ranks": ranks,
            **args,
        }
        self.event("record_param_comms", "cpu_op", 4242, 4242, self.host, 2.0, **noted)
        self.host += 2.0
        return {key: value for key, value in noted.items() if key != "External id"}


def gpu_run(folder: Path) -> list[float]:
    """Write four ranks (rank = 2 * stage + replica) and return the seconds of every step.

    All ranks run in lockstep here: kernels that exchange start when the last of their members has come.
    """
    writers = [Writer(rank) for rank in range(4)]
    ends: list[float] = []
    for step in range(STEPS):
        begin = max(one.host for one in writers)
        for one in writers:
            one.host = begin
        _forward(writers)
        _backward(writers)
        _reduce(writers)
        for one in writers:
            # The host waits for both streams, then a little of its own.
            done = max(one.streams.values())
            one.event("cudaDeviceSynchronize", "cuda_runtime", 4242, 4242, one.host, done - one.host, correlation=0)
            one.host = done
            one.operator("aten::item", 10.0)
            one.host += 10.0
            one.event(f"ProfilerStep#{step}", "user_annotation", 4242, 4242, begin, one.host - begin)
            one.event("nccl:all_reduce", "gpu_user_annotation", one.rank % 2, 20, begin, 5.0)
        ends.append(max(one.host for one in writers))
    for one in writers:
        _write(folder, one)
    first = 1000.0
    return [(end - start) * 1e-6 for start, end in zip([first, *ends[:-1]], ends, strict=True)]


def _work(one: Writer, name: str, took: float, after: float = 0.0) -> float:
    one.operator(name, 15.0, **{"Input Dims": [[4096, 1024]], "Input type": ["c10::BFloat16"]})
    number = one.call("cudaLaunchKernelExC")
    end = one.kernel("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", 7, after, took, number)
    one.host += 10.0
    return end


def _forward(writers: list[Writer]) -> None:
    for one in writers:
        one.operator("aten::copy_", 15.0)
        one.kernel("Memcpy HtoD (Pinned -> Device)", 7, 0.0, COPY_US, one.call("cudaMemcpyAsync"), bytes=8388608)
        one.call("cudaEventRecord", took=1.0)
    for first, second in zip(writers[:2], writers[2:], strict=True):
        _work(first, "aten::mm", FORWARD_US)
        _exchange(first, second)
        _work(second, "aten::mm", FORWARD_US, after=second.streams[24])


def _backward(writers: list[Writer]) -> None:
    for first, second in zip(writers[:2], writers[2:], strict=True):
        _work(second, "autograd::engine::evaluate_function: MmBackward0", BACKWARD_US)
        _exchange(second, first)
        _work(first, "autograd::engine::evaluate_function: MmBackward0", BACKWARD_US, after=first.streams[24])


def _exchange(source: Writer, target: Writer) -> None:
    """Send by ``batch_isend_irecv``: a record on each side, then a kernel that says nothing."""
    numbers = {}
    for one, name, peer in ((source, "send", {"Dst Rank": target.rank}), (target, "recv", {"Src Rank": source.rank})):
        one.record(name, HIDDEN_ELEMENTS, f"[{source.rank % 2}, {source.rank % 2 + 2}]", "3", **peer)
        one.call("cudaStreamWaitEvent", took=1.0)
        numbers[one.rank] = one.call("cudaLaunchKernelExC")
    begin = max(source.streams[7], source.host, target.host)
    for one in (source, target):
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        one.streams[24] = one.kernel(name, 24, begin, SEND_US, numbers[one.rank])


def _reduce(writers: list[Writer]) -> None:
    for group in (writers[:2], writers[2:]):
        ranks = str([one.rank for one in group])
        _collective(group, "allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", REDUCE_US, GRADIENTS, ranks, "1")
    long = f"[{', '.join(map(str, range(30)))}, ...]"
    _collective(writers, "allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", WORLD_US, 1, long, "0")


def _collective(
    group: list[Writer], call: str, kernel: str, took: float, elements: int, ranks: str, label: str
) -> None:
    numbers, arguments = [], []
    for one in group:
        one.operator("c10d::allreduce_", 30.0)
        arguments.append(one.record(call, elements, ranks, label, **{"In split size": "[]", "Seq": 7}))
        one.call("cudaStreamWaitEvent", took=1.0)
        numbers.append(one.call("cudaLaunchKernelExC"))
        one.host += 10.0
    begin = max(max(one.streams[7], one.streams[20], one.host + 1.0) for one in group)
    for one, number, more in zip(group, numbers, arguments, strict=True):
        one.kernel(f"{kernel}(ncclDevKernelArgsStorage<4096ul>)", 20, begin, took, number, **more)


def _write(folder: Path, one: Writer) -> None:
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": []},
        {"pg_name": "1", "pg_desc": "data", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]},
        {"pg_name": "3", "pg_desc": "pipe", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 2]},
    ]
    noise = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": 4242, "tid": 0, "args": {"name": "python"}},
        {
            "ph": "X",
            "cat": "overhead",
            "name": "Activity Buffer Request",
            "pid": -1,
            "tid": 0,
            "ts": 1001.0,
            "dur": 9.0,
        },
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 990, "dur": 9e5},
        {"ph": "C", "cat": "counter", "name": "GPU Util", "pid": 0, "ts": 1002.0, "args": {"util": 1}},
    ]
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": one.rank, "world_size": 4, "pg_count": 3, "pg_config": groups},
        "cuda_driver_version": 12040,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1700000000000000000,
        "host_name": "node-0",
        "traceEvents": [*noise, *one.events],
        "traceName": "trace.json",
    }
    (folder / f"rank{one.rank}.1234.pt.trace.json").write_text(json.dumps(document))
