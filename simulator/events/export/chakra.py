"""Chakra execution traces of a step (MLCommons schema et_def.proto), which ASTRA-sim and other simulators replay.

One file per device, ``forerun.N.et``: passes are computation of fixed length, transfers between stages a send and a
receive, gradients and parameters collectives over the devices with the same part of a stage. ``forerun.groups.json``
names the devices of every communicator (ASTRA-sim: ``--comm-group-configuration``). Traffic inside a pass is part of
its length. The format requires lengths in whole microseconds; the attributes ``forerun_start_s`` and ``forerun_s`` of a
node have its exact start and duration, so that a replay of the files equals the simulated step.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.engine import Execution, execute
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.kinds import GATHER, OPTIMIZER, REDUCE, SEND, TIED
from forerun.simulator.events.export.chakra_nodes import (
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    MOST_DEVICES,
    RECEIVE_NODE,
    SEND_NODE,
    encoded,
    group_of,
    write_device,
    write_groups,
)
from forerun.simulator.events.step.compile import compile_step
from forerun.simulator.events.step.contention import Contention
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.sizes import StepSizes, step_sizes
from forerun.simulator.events.step.traffic import DeviceNumbers
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy

_NORM_BYTES = 4
"""The gradient norm summed by all stages before the optimizer: one float."""


def write_chakra(context: Context, strategy: Strategy, result: EventResult, folder: Path) -> int:
    """Write the traces of a step into a new folder; return the number of devices.

    Raises:
        RequestError: more than ``MOST_DEVICES`` devices, or a strategy whose halves differ in tp.
    """
    if strategy.devices > MOST_DEVICES or strategy.second_tp is not None:
        raise RequestError(
            f"execution traces have at most {MOST_DEVICES} devices and one tp, but got {strategy}; use a smaller dp"
        )
    groups: dict[tuple[int, ...], int] = {}
    nodes = _nodes_of_stages(_run_again(result), step_sizes(context, strategy), strategy)
    layout = DeviceNumbers(strategy)
    unequal = len(result.stages) > strategy.pp
    for replica in range(layout.replicas):
        colour = result.contention.colours[replica] if result.contention else replica if unequal else 0
        for stage in range(strategy.pp):
            for rank, device in enumerate(layout.devices(replica, stage)):
                place = _Place(
                    layout=layout,
                    sharing=strategy.sharing,
                    pp=strategy.pp,
                    replica=replica,
                    stage=stage,
                    rank=rank,
                    groups=groups,
                )
                write_device(folder, device, map(place.encoded, nodes[colour, stage]))
    write_groups(folder, groups)
    return strategy.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step as one complete graph with its edges, which a result does not store."""

    costs: StepCosts
    contention: Contention | None
    graph: TaskGraph
    run: Execution


def _run_again(result: EventResult) -> _Step:
    graph = compile_step(
        result.costs, replicas=result.replicas, contention=result.contention, disturbance=result.disturbance
    )
    return _Step(costs=result.costs, contention=result.contention, graph=graph, run=execute(graph))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node for all devices of a stage.

    ``peer``: stage at the other end of a transfer; ``among``: group of its collective ("replicas", "sharing" for ranks
    with slices, "copies" of a slice, "stages", "ends"); ``collective``: its number in the schema; ``start_s``,
    ``end_s``: start and end.
    """

    number: int
    name: str
    kind: int
    before: tuple[int, ...]
    start_s: float
    end_s: float
    micros: int = 0
    size_bytes: int = 0
    peer: int = -1
    tag: int = 0
    among: str = ""
    collective: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Position of one device, which maps stages and groups to devices."""

    layout: DeviceNumbers
    sharing: int
    pp: int
    replica: int
    stage: int
    rank: int
    groups: dict[tuple[int, ...], int]

    def encoded(self, node: _Node) -> bytes:
        """Return a node as a Protobuf message."""
        peer = self._device(node.peer) if node.peer >= 0 else 0
        device = self._device(self.stage)
        return encoded(
            node.number,
            node.name,
            node.kind,
            node.before,
            start_s=node.start_s,
            end_s=node.end_s,
            micros=node.micros,
            size_bytes=node.size_bytes,
            collective=node.collective,
            group=self._group(node.among) if node.kind == COLLECTIVE else 0,
            ends=(device, peer) if node.kind == SEND_NODE else (peer, device),
            tag=node.tag,
        )

    def _device(self, stage: int) -> int:
        return self.layout.devices(self.replica, stage)[self.rank]

    def _group(self, among: str) -> int:
        if among in ("replicas", "sharing", "copies"):
            first = self.replica - self.replica % self.sharing
            near = range(first, first + self.sharing)
            copies = range(self.replica % self.sharing, self.layout.replicas, self.sharing)
            replicas = {"replicas": range(self.layout.replicas), "sharing": near, "copies": copies}[among]
            members = [self.layout.devices(replica, self.stage)[self.rank] for replica in replicas]
        else:
            members = [self._device(stage) for stage in (range(self.pp) if among == "stages" else (0, self.pp - 1))]
        return group_of(self.groups, members)


def _nodes_of_stages(step: _Step, sizes: StepSizes, strategy: Strategy) -> Mapping[tuple[int, int], list[_Node]]:
    """Return the nodes of the devices of every (simulated replica, stage)."""
    graph, pp = step.graph, strategy.pp
    before: list[list[int]] = [[] for _ in graph.stream]
    for task, successors in enumerate(graph.successors):
        for after in successors:
            before[after].append(task)
    nodes_of: dict[tuple[int, int], list[_Node]] = {}
    for task in range(len(graph)):
        for device in _devices(step, task):
            nodes_of.setdefault((device // pp, device % pp), []).extend(
                _nodes(step, sizes, strategy, task, device, before[task])
            )
    return nodes_of


def _devices(step: _Step, task: int) -> tuple[int, ...]:
    """Return the pipeline ranks that take part in a task."""
    graph = step.graph
    streams = graph.members_of.get(task, (graph.stream[task],))
    return tuple(dict.fromkeys(graph.stream_device[stream] for stream in streams))


def _nodes(
    step: _Step, sizes: StepSizes, strategy: Strategy, task: int, device: int, before: list[int]
) -> Iterator[_Node]:
    """Yield the node of a task on a device, after the receives that it waits for."""
    graph, run, pp = step.graph, step.run, strategy.pp
    local = [other for other in before if device in _devices(step, other)]
    arrived = [
        other for other in before if graph.kind[other] == SEND and graph.stream_device[graph.stream[other]] != device
    ]
    waits = tuple(2 * other for other in local)
    ready_s = max((run.end_s[other] for other in local), default=0.0)
    for other in arrived:
        begun_s = max(run.start_s[other], ready_s)
        yield _Node(
            number=2 * other + 1,
            name=f"receive {graph.name(other)}",
            kind=RECEIVE_NODE,
            before=waits,
            start_s=begun_s,
            end_s=max(run.end_s[other], begun_s),
            size_bytes=sizes.p2p_bytes,
            peer=graph.stream_device[graph.stream[other]] % pp,
            tag=other,
        )
    node = partial(
        _Node,
        number=2 * task,
        name=graph.name(task),
        before=(*waits, *(2 * other + 1 for other in arrived)),
        start_s=run.start_s[task],
        end_s=run.end_s[task],
    )
    kind = graph.kind[task]
    if kind == SEND:
        yield node(kind=SEND_NODE, size_bytes=sizes.p2p_bytes, peer=int(str(graph.tag[task][2])), tag=task)
    elif kind in (REDUCE, GATHER):
        yield from _replica_nodes(step, sizes, strategy, task, device % pp, node)
    elif kind == TIED:
        yield node(kind=COLLECTIVE, size_bytes=sizes.tied_bytes, among="ends")
    elif kind == OPTIMIZER and task in graph.members_of and pp > 1:
        yield node(kind=COLLECTIVE, size_bytes=_NORM_BYTES, among="stages")
    else:
        yield node(kind=COMPUTE, micros=round((run.end_s[task] - run.start_s[task]) * 1e6))


def _replica_nodes(
    step: _Step, sizes: StepSizes, strategy: Strategy, task: int, stage: int, node: Callable[..., _Node]
) -> Iterator[_Node]:
    """Yield the collectives of one exchange of gradients or parameters; ``node`` has the common attributes.

    Gradients of slices with copies are reduced twice: to the slices, and over their copies."""
    reduces = step.graph.kind[task] == REDUCE
    total_bytes = sizes.gradient_bytes[stage] if reduces else sizes.shard_bytes[stage]
    cost = step.costs.stages[stage]
    size = max(round(total_bytes * _share(step, task, cost.reduce_s if reduces else cost.gather_s)), 1)
    slices = strategy.shard and (sizes.scattered or not reduces)
    collective = ("reduce_scatter" if sizes.scattered else "all_reduce") if reduces else "all_gather"
    near = node(
        kind=COLLECTIVE,
        size_bytes=size,
        among="sharing" if slices else "replicas",
        collective=COLLECTIVES[collective],
    )
    if not (slices and reduces):
        yield near
    else:
        yield replace(near, number=2 * task + 1, name=f"{near.name} within a set of slices")
        yield replace(
            near,
            before=(2 * task + 1,),
            start_s=near.end_s,
            size_bytes=max(size // strategy.sharing, 1),
            among="copies",
            collective=COLLECTIVES["all_reduce"],
        )


def _share(step: _Step, task: int, whole_s: float) -> float:
    """Return the share of one collective in a pass over all gradients (or parameters)."""
    graph = step.graph
    if step.contention is None or (graph.kind[task] == GATHER and step.costs.gathers_near):
        return (graph.transfers[task][0] if task in graph.transfers else graph.duration_s[task]) / whole_s
    stage = graph.stream_device[graph.stream[task]] % step.costs.shape.pp
    return step.contention.share_of(graph, task, (stage,)) * step.costs.stages[stage].reduce_s / whole_s
