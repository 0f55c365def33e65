"""Computation graphs and traces of runs, as small as their readers take them."""

import contextlib
import gzip
import io
import json
import warnings
import zipfile
from random import Random
from typing import Any

from forerun.spaces.protobuf import number, text, varint
from tests.fuzz.sample import Sample


def tensor(*shape: int) -> dict[str, Any]:
    """Return a tensor as an exported program has it."""
    return {"dtype": 7, "sizes": [{"as_int": extent} for extent in shape]}


def call(name: str, target: str, inputs: list[str], **attributes: Any) -> dict[str, Any]:
    """Return a node of an exported program."""
    arguments = [{"name": f"i{place}", "arg": {"as_tensor": {"name": value}}} for place, value in enumerate(inputs)]
    arguments += [{"name": key, "arg": {"as_ints": value}} for key, value in attributes.items()]
    return {
        "name": name,
        "target": f"torch.ops.{target}",
        "inputs": arguments,
        "outputs": [{"as_tensor": {"name": name}}],
    }


def exported_program() -> dict[str, Any]:
    """Return the document inside an exported program: a small convolutional network."""
    return {
        "graph_module": {
            "graph": {
                "nodes": [
                    call("conv", "aten.conv2d.default", ["x", "w", "b"], stride=[1, 1], padding=[1, 1]),
                    call("act", "aten.relu.default", ["conv"]),
                    call("pooled", "aten.max_pool2d.default", ["act"], kernel_size=[2, 2]),
                    call("flat", "aten.flatten.using_ints", ["pooled"]),
                    call("dense", "aten.linear.default", ["flat", "k"]),
                ],
                "tensor_values": {
                    "x": tensor(4, 3, 8, 8), "w": tensor(8, 3, 3, 3), "b": tensor(8), "conv": tensor(4, 8, 8, 8),
                    "act": tensor(4, 8, 8, 8), "pooled": tensor(4, 8, 4, 4), "flat": tensor(4, 128),
                    "k": tensor(10, 128), "dense": tensor(4, 10),
                },
            },
            "signature": {
                "input_specs": [
                    *({"parameter": {"arg": {"name": name}, "parameter_name": name}} for name in ("w", "b", "k")),
                    {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
                ]
            },
        }
    }  # fmt: skip


def graphs() -> list[Sample]:
    """Return networks as PyTorch, ONNX and ParaDL write them."""
    program = exported_program()
    search = "search {} --cluster dgx-a100-80 --gpus 8 --global-batch 64 --top 3"
    net = (
        "ImageNet 1280000\n1x3x226x226\nnet\nCONV1, (3,226,226), (3,64,7,7), (64,113,113), 0.0001\n"
        "FC1, 64x113x113, 64x10, 10\n"
    )
    found = [
        Sample(name="model.pt2", content=program, command=search),
        Sample(name="model.pt2", content=archive(json.dumps(program)), command=search),
        Sample(name="own.net", content=net, command=search),
    ]
    with contextlib.suppress(ImportError):
        found.append(Sample(name="model.onnx", content=_onnx(), command=search))
    return found


def archive(text: str) -> bytes:
    """Return the archive that PyTorch keeps a graph in."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("m/models/model.json", text)
    return stream.getvalue()


def repacked(text: str, random: Random) -> bytes:
    """Return an archive of a graph that no PyTorch wrote: members twice, elsewhere, or a bomb."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        warnings.simplefilter("ignore")  # a name that is there twice
        for _ in range(random.choice((1, 2, 500))):
            name = random.choice(("m/models/model.json", "../../model.json", "/models/model.json", "m/\x1b[2J.json"))
            packed.writestr(name, text)
        bomb = random.choice((b"", b" " * 30_000_000, b"[]," * 5_000_000, archive(text)))
        packed.writestr(random.choice(("m/models/model.json", "m/data/weights/0", "m/models/other.json")), bomb)
    return stream.getvalue()


def _onnx() -> bytes:
    from onnx import TensorProto, helper

    def weight(name: str, *sizes: int) -> Any:
        count = 1
        for size in sizes:
            count *= size
        return helper.make_tensor(name, TensorProto.FLOAT, sizes, [0.0] * count)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "k"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight("w", 8, 3, 3, 3), weight("b", 8), weight("k", 8, 10)],
    )
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return data


def dpro_events() -> list[dict[str, Any]]:
    """Return the trace of dPRO of two ranks and two steps, the second rank 30 us late."""
    events = []
    for rank in (0, 1):
        pid = f"host{rank}.rank{rank}"
        for step in range(2):
            at = 1000 * step + 30 * rank
            for name, ts, took in (("FW.conv", at, 100), ("BW.conv", at + 100, 200), ("UPDATE_0", at + 700, 50)):
                events.append(
                    {"name": name, "ts": ts, "dur": took, "ph": "X", "pid": pid, "tid": 0, "args": {"step": step}}
                )
            for turn in range(2):
                for word in ("SEND", "RECV"):
                    args = {"name": f"Comm.0.{word}~>0_0_{turn}_0", "step": step, "size": 4096}
                    ts = 320 + 1000 * step + 150 * turn + (20 if word == "RECV" else 10)
                    events.append(
                        {
                            "name": f"Comm.0.{word}",
                            "ts": ts,
                            "dur": 120,
                            "ph": "X",
                            "pid": pid,
                            "tid": word,
                            "args": args,
                        }
                    )
    return events


def traces() -> list[Sample]:
    """Return traces as PyTorch's profiler, dPRO and Chakra write them."""
    events: list[Any] = []
    for step in range(2):
        at = 1000 * step
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "pid": 1,
                "tid": 1,
                "ts": at,
                "dur": 900,
            }
        )
        events.append(
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": "aten::mm",
                "pid": 1,
                "tid": 1,
                "ts": at + 10,
                "dur": 50,
                "args": {"External id": step, "Input Dims": [[2, 3], [3, 4]]},
            }
        )
        events.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 1,
                "tid": 1,
                "ts": at + 20,
                "dur": 5,
                "args": {"correlation": step + 1, "External id": step},
            }
        )
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "sgemm",
                "pid": 0,
                "tid": 7,
                "ts": at + 40,
                "dur": 300,
                "args": {"correlation": step + 1, "stream": 7, "device": 0},
            }
        )
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce",
                "pid": 0,
                "tid": 20,
                "ts": at + 400,
                "dur": 200,
                "args": {
                    "stream": 20,
                    "device": 0,
                    "Collective name": "allreduce",
                    "In msg nelems": 1024,
                    "Out msg nelems": 1024,
                    "dtype": "Float",
                    "Group size": 2,
                    "Process Group Ranks": "[0, 1]",
                    "Process Group Name": "0",
                },
            }
        )
    kineto = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "deviceProperties": [{"id": 0, "name": "H100"}],
        "traceEvents": events,
    }
    chakra = b"".join(
        varint(len(part)) + part
        for part in (
            text(1, "0.0.4"),
            *(
                number(1, op)
                + text(2, f"op{op}")
                + number(3, 4)
                + number(6, 10 * op)
                + number(7, 9)
                + number(5, op - 1)
                for op in range(1, 6)
            ),
        )
    )
    packed = gzip.compress(json.dumps(kineto).encode())
    return [
        Sample(name="rank0.json", content=kineto, command="replay {}"),
        Sample(name="rank0.json", content=kineto, command="improve --traces {}"),
        Sample(name="rank0.json", content=kineto, command="replay {} --against {} --statistics {folder}/out.csv"),
        Sample(name="rank0.json", content=kineto, command="replay {} --what-if all_reduce*=0.5 --what-if host=+2ms"),
        Sample(name="rank0.json.gz", content=packed, command="replay {} --json"),
        Sample(name="events.json", content=dpro_events(), command="replay {}"),
        Sample(name="trace.0.et", content=chakra, command="replay {}"),
    ]  # fmt: skip
