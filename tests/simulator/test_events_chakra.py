"""Execution traces are read by protobuf itself with the published schema, and can be replayed to the end."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from forerun_examples import request as small_request
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

from forerun.search.cli import main
from forerun.simulator.events import Disturbance, EventResult, simulate, trace_events, write_chakra
from forerun.simulator.events.step.sizes import step_sizes
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.strategies import Context, Strategy, parse_strategy

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
KINDS = {"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "uint32": 13}
# mlcommons/chakra, schema/protobuf/et_def.proto: the fields that are written, and one of each message that is not.
SCHEMA: dict[str, list[tuple[str, int, str, bool]]] = {
    "GlobalMetadata": [("version", 1, "string", False), ("attr", 2, ".AttributeProto", True)],
    "AttributeProto": [
        ("name", 1, "string", False),
        ("double_val", 3, "double", False),
        ("int64_val", 9, "int64", False),
        ("uint32_val", 11, "uint32", False),
        ("uint64_val", 13, "uint64", False),
        ("bool_val", 27, "bool", False),
        ("string_val", 29, "string", False),
    ],
    "Node": [
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("attr", 10, ".AttributeProto", True),
    ],
}
STRATEGIES = (
    "tp2 pp4 dp4 mbs1 zero1",
    "pp2 dp2 mbs1 zero3",
    "pp2 dp4 mbs1 zero2 shard=2",
    "pp4 dp2 vpp2 schedule=interleaved",
    "dp4 mbs2",
    "pp4 dp2 vpp2 schedule=zb-v",
)


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    """Return the classes of the schema."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, number, kind, repeated in fields:
            own = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind.startswith("."):
                own.type, own.type_name = 11, ".ChakraProtoMsg" + kind
            else:
                own.type = KINDS[kind]  # type: ignore[assignment]  # the numbers of descriptor.proto
            if name == "AttributeProto" and field != "name":
                own.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in SCHEMA
    }


def read(path: Path, messages: dict[str, Any]) -> list[Any]:
    """Return the nodes of a file, whose first message is the metadata."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        kind = "Node" if found else "GlobalMetadata"
        found.append(messages[kind].FromString(data[at : at + size]))
        assert len(unknown_fields.UnknownFieldSet(found[-1])) == 0
        at += size
    assert found[0].version == "0.0.4"
    return found[1:]


def facts(node: Any) -> dict[str, Any]:
    return {attr.name: getattr(attr, attr.WhichOneof("value")) for attr in node.attr}


def step(text: str, *, contention: bool = False) -> tuple[Context, Strategy, EventResult]:
    context, strategy = small_request(framework="generic", global_batch=32), parse_strategy(text)
    return context, strategy, simulate(context, strategy, contention=contention)


@pytest.mark.parametrize("split", ["data4", "data2 spatial2", "data2 pipeline2 segments2", "data4, conv1: filter4"])
def test_those_of_operator_graphs_do_too(split: str, tmp_path: Path, messages: dict[str, Any]) -> None:
    words = f"simulate alexnet --cluster abci-v100 --global-batch 8/gpu --fidelity events --chakra {tmp_path}".split()
    assert main([*words, "--strategy", split]) == 0
    run_to_the_end(tmp_path, 4, messages)
    nodes = read(tmp_path / "forerun.0.et", messages)
    kinds = {node.type for node in nodes}
    assert COMPUTE in kinds and COLLECTIVE in kinds
    gradients = sum(facts(node)["comm_size"] for node in nodes if node.name.startswith("reduce"))
    assert split != "data4" or gradients == 4 * load_graph_model("alexnet").parameters


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.slow
def test_traces_replay_to_the_end(text: str, tmp_path: Path, messages: dict[str, Any]) -> None:
    """A node runs when those before it on its device are done; a receive when its message is sent; a collective when
    all of its group have come to it."""
    context, strategy, result = step(text)
    assert write_chakra(context, strategy, result, tmp_path) == strategy.devices
    run_to_the_end(tmp_path, strategy.devices, messages)


def run_to_the_end(folder: Path, devices: int, messages: dict[str, Any]) -> None:
    """Run the nodes of all devices as their dependencies and messages allow, until none is left."""
    ranks = [read(folder / f"forerun.{rank}.et", messages) for rank in range(devices)]
    groups = json.loads((folder / "forerun.groups.json").read_text(encoding="utf-8"))

    done: list[set[int]] = [set() for _ in ranks]
    sent: set[tuple[int, int, int]] = set()
    came: dict[tuple[str, int], set[int]] = defaultdict(set)
    left = [list(nodes) for nodes in ranks]
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(left):
            for node in list(nodes):
                if not done[rank].issuperset(node.data_deps):
                    continue
                own = facts(node)
                if node.type == SEND:
                    assert own["comm_src"] == rank
                    sent.add((rank, own["comm_dst"], own["comm_tag"]))
                elif node.type == RECEIVE and (own["comm_src"], rank, own["comm_tag"]) not in sent:
                    continue
                elif node.type == COLLECTIVE:
                    members = groups[own["pg_name"]]
                    assert rank in members
                    came[own["pg_name"], node.id].add(rank)
                    if came[own["pg_name"], node.id] != set(members):
                        continue
                done[rank].add(node.id)
                nodes.remove(node)
                moved = True
    assert not any(left)


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.slow
def test_traces_hold_the_step(text: str, tmp_path: Path, messages: dict[str, Any]) -> None:
    """Every device computes as long as its stage, and sends and reduces its bytes."""
    context, strategy, result = step(text)
    write_chakra(context, strategy, result, tmp_path)
    sizes, per_stage = step_sizes(context, strategy), strategy.devices // strategy.pp
    for stage in range(strategy.pp):
        nodes = read(tmp_path / f"forerun.{stage * per_stage}.et", messages)
        computed = sum(node.duration_micros for node in nodes if node.type == COMPUTE)
        own = [
            task
            for task in result.timeline()
            if task.stage == stage
            and task.stream == "compute"
            and task.kind not in ("reduce", "gather", "tied", "send")
        ]
        assert computed == pytest.approx(1e6 * sum(task.end_s - task.start_s for task in own), abs=len(own))
        assert all(facts(node)["comm_size"] == sizes.p2p_bytes for node in nodes if node.type in (SEND, RECEIVE))
        reduced = [
            facts(node)["comm_size"] for node in nodes if node.type == COLLECTIVE and node.name.startswith("reduce")
        ]
        times = (32 // strategy.dp // strategy.mbs if strategy.zero >= 2 else 1) if strategy.dp > 1 else 0
        if strategy.shard:  # every slice once more, among its copies
            times *= 1 + 1 / strategy.shard
        assert sum(reduced) == pytest.approx(times * sizes.gradient_bytes[stage], rel=1e-3)


def test_too_many_devices_are_refused(tmp_path: Path) -> None:
    context, _, result = step("dp4 mbs2")
    with pytest.raises(RequestError, match="at most 4096 devices"):
        write_chakra(context, parse_strategy("dp8192"), result, tmp_path)


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = ["simulate", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "16", "--seq-len", "2048"]
    more = ["--strategy", "tp2 pp4 dp2 mbs1 zero1 sp", "--fidelity", "events", "--contention"]
    assert main([*request, *more, "--chakra", str(tmp_path / "et"), "--timeline", str(tmp_path / "step.html")]) == 0
    assert len(list((tmp_path / "et").glob("forerun.*.et"))) == 16
    assert "<svg" in (tmp_path / "step.html").read_text(encoding="utf-8")

    assert main([*request, *more, "--timeline", str(tmp_path / "step.png")]) == 2
    assert "--timeline writes .svg or .html" in capsys.readouterr().err
    assert main([*request, *more[:2], "--chakra", str(tmp_path / "et")]) == 2
    assert "--chakra needs --fidelity events" in capsys.readouterr().err


def test_replicas_that_differ_have_traces_of_their_own(tmp_path: Path, messages: dict[str, Any]) -> None:
    context, strategy = small_request(framework="generic", global_batch=32), parse_strategy("pp2 dp2 mbs1")
    result = simulate(context, strategy, Disturbance(slow={3: 2.0}))
    write_chakra(context, strategy, result, tmp_path)
    computed = [
        sum(node.duration_micros for node in read(tmp_path / f"forerun.{rank}.et", messages) if node.type == COMPUTE)
        for rank in range(4)
    ]

    # Ranks of stage 1 are 2 and 3; the second replica of it is slow. Passes beside traffic take a little longer.
    assert computed[0] == pytest.approx(computed[1], rel=0.01)
    assert computed[3] > 1.5 * computed[2]
    names = [event["args"]["name"] for event in trace_events(result)["traceEvents"] if event["name"] == "process_name"]
    assert names == ["replica 0 stage 0", "replica 0 stage 1", "replica 1 stage 0", "replica 1 stage 1"]
