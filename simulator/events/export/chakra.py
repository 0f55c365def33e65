"""Chakra execution traces of a step (MLCommons schema et_def.proto), which ASTRA-sim and other simulators replay.

One file per device, ``forerun.N.et``: passes as computation of a fixed length, transfers between stages as a send here
and a receive there, gradients and parameters as collectives over the devices that hold the same part of a stage.
``forerun.groups.json`` names the devices of every communicator (ASTRA-sim: ``--comm-group-configuration``). Traffic
inside a pass stays part of its length. Lengths are whole microseconds, as the format wants them; two attributes of a
node, ``forerun_start_s`` and ``forerun_s``, have when it began and how long it took to the last digit, so that a replay
of the files is the simulated step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
"""The gradient norm that all stages add up before the optimizer: one float."""


def write_chakra(context: Context, strategy: Strategy, result: EventResult, folder: Path) -> int:
    """Write the traces of a step into a folder, which is made; return the number of devices.

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
    """A step as one whole graph with its edges, which a result does not keep."""

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
    """One node of all devices of a stage. ``peer``: stage at the other end of a transfer; ``among``: whose collective
    it is ("replicas", those "sharing" slices, "copies" of one, "stages", "ends"); ``collective``: its number in
    the schema; ``start_s``, ``end_s``: when it ran."""

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
    """Where one device stands, which turns stages and groups into devices."""

    layout: DeviceNumbers
    sharing: int
    pp: int
    replica: int
    stage: int
    rank: int
    groups: dict[tuple[int, ...], int]

    def encoded(self, node: _Node) -> bytes:
        """Return a node as a message."""
        peer = self._device(node.peer) if node.peer >= 0 else 0
        own = self._device(self.stage)
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
            ends=(own, peer) if node.kind == SEND_NODE else (peer, own),
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
    found: dict[tuple[int, int], list[_Node]] = {}
    for task in range(len(graph)):
        for device in _devices(step, task):
            found.setdefault((device // pp, device % pp), []).extend(
                _nodes(step, sizes, strategy, task, device, before[task])
            )
    return found


def _devices(step: _Step, task: int) -> tuple[int, ...]:
    """Return the pipeline ranks that take part in a task."""
    graph = step.graph
    streams = graph.members_of.get(task, (graph.stream[task],))
    return tuple(dict.fromkeys(graph.stream_device[stream] for stream in streams))


def _nodes(
    step: _Step, sizes: StepSizes, strategy: Strategy, task: int, device: int, before: list[int]
) -> Iterator[_Node]:
    """Yield the node of a task on a device, behind the receives that it waits for."""
    graph, run, pp = step.graph, step.run, strategy.pp
    own = [other for other in before if device in _devices(step, other)]
    arrived = [
        other for other in before if graph.kind[other] == SEND and graph.stream_device[graph.stream[other]] != device
    ]
    waits = tuple(2 * other for other in own)
    ready_s = max((run.end_s[other] for other in own), default=0.0)
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
    kind, name, number = graph.kind[task], graph.name(task), 2 * task
    waits = (*waits, *(2 * other + 1 for other in arrived))
    start_s, end_s = run.start_s[task], run.end_s[task]
    begun_s = start_s
    if kind == SEND:
        peer = int(str(graph.tag[task][2]))
        size, tag = sizes.p2p_bytes, task
        yield _Node(
            number=number,
            name=name,
            kind=SEND_NODE,
            before=waits,
            size_bytes=size,
            peer=peer,
            tag=tag,
            start_s=begun_s,
            end_s=end_s,
        )
    elif kind in (REDUCE, GATHER):
        stage = device % pp
        whole = sizes.gradient_bytes[stage] if kind == REDUCE else sizes.shard_bytes[stage]
        cost = step.costs.stages[stage]
        share = _share(step, task, cost.reduce_s if kind == REDUCE else cost.gather_s)
        reduces = COLLECTIVES["reduce_scatter"] if sizes.scattered else COLLECTIVES["all_reduce"]
        slices = strategy.shard and (sizes.scattered or kind == GATHER)
        among, size = "sharing" if slices else "replicas", max(round(whole * share), 1)
        if slices and kind == REDUCE:
            scattered = 2 * task + 1
            yield _Node(
                number=scattered,
                name=f"{name} within a set of slices",
                kind=COLLECTIVE,
                before=waits,
                size_bytes=size,
                among=among,
                collective=reduces,
                start_s=begun_s,
                end_s=end_s,
            )
            begun_s = end_s
            waits, reduces, among = (scattered,), COLLECTIVES["all_reduce"], "copies"
            size = max(size // strategy.sharing, 1)
        yield _Node(
            number=number,
            name=name,
            kind=COLLECTIVE,
            before=waits,
            size_bytes=size,
            among=among,
            collective=reduces if kind == REDUCE else COLLECTIVES["all_gather"],
            start_s=begun_s,
            end_s=end_s,
        )
    elif kind == TIED or (kind == OPTIMIZER and task in graph.members_of and pp > 1):
        size, among = (sizes.tied_bytes, "ends") if kind == TIED else (_NORM_BYTES, "stages")
        yield _Node(
            number=number,
            name=name,
            kind=COLLECTIVE,
            before=waits,
            size_bytes=size,
            among=among,
            start_s=begun_s,
            end_s=end_s,
        )
    else:
        micros = round((end_s - start_s) * 1e6)
        yield _Node(number=number, name=name, kind=COMPUTE, before=waits, micros=micros, start_s=begun_s, end_s=end_s)


def _share(step: _Step, task: int, whole_s: float) -> float:
    """Return the share of a pass over all gradients (or parameters) that one collective is."""
    graph = step.graph
    if step.contention is None or (graph.kind[task] == GATHER and step.costs.gathers_near):
        return (graph.transfers[task][0] if task in graph.transfers else graph.duration_s[task]) / whole_s
    stage = graph.stream_device[graph.stream[task]] % step.costs.shape.pp
    return step.contention.share_of(graph, task, (stage,)) * step.costs.stages[stage].reduce_s / whole_s
