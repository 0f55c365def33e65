"""Chakra execution traces of an operator graph's step, one per device; nodes as for transformers (``events.export``).

Every operator is computation of fixed length, every transfer a collective within its group, or a send and a receive.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path

from forerun.simulator.events.engine.engine import Execution, execute
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
from forerun.simulator.opgraph.events.graph_step import CompiledStep, compile_graph
from forerun.simulator.opgraph.events.plan import GraphPlan, Move
from forerun.simulator.opgraph.events.sharing import pairs_of, share_links, shares_links
from forerun.spaces.errors import RequestError


def write_graph_chakra(plan: GraphPlan, folder: Path, *, contention: bool = False) -> int:
    """Write the traces of a plan's step into a new folder; return the number of devices.

    Raises:
        RequestError: more than ``MOST_DEVICES`` devices, or the step cannot be simulated.
    """
    count = plan.tree.device_count
    if count > MOST_DEVICES:
        raise RequestError(f"execution traces have at most {MOST_DEVICES} devices, but got {count}; use fewer replicas")
    step = compile_graph(plan)
    if shares_links(plan.context.cluster, count, contention):
        share_links(plan.context.cluster, count, step.graph, plan.wired(step.moves))
    traces = _Traces(step, execute(step.graph))
    for rank, group in enumerate(plan.tree.groups):
        for device in group:
            write_device(folder, device, traces.of_device(rank, device))
    write_groups(folder, traces.groups)
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One device's part of a transfer: a collective of ``members``, or a send or receive between them."""

    kind: int
    members: tuple[int, ...]
    size_bytes: int
    collective: int = 0


class _Traces:
    """Data shared by the traces of all devices: the run of a step, and the numbers of groups."""

    def __init__(self, step: CompiledStep, run: Execution) -> None:
        self.graph, self.moves, self.run = step.graph, step.moves, run
        self.groups: dict[tuple[int, ...], int] = {}
        self._before: dict[int, list[int]] = {task: [] for task in range(len(self.graph))}
        for task, successors in enumerate(self.graph.successors):
            for after in successors:
                self._before[after].append(task)
        self._order = tuple(TopologicalSorter(self._before).static_order())
        self._parts: dict[Move, Mapping[int, list[_Part]]] = {}
        parts = [part for move in self.moves.values() for part in self._parts_of(move).values()]
        self._most = max(map(len, parts), default=1)

    def of_device(self, rank: int, device: int) -> Iterator[bytes]:
        """Yield the nodes of a device of a pipeline rank, after their dependencies.

        A task without a part on the device is replaced by its own dependencies on the device.
        """
        nodes: dict[int, tuple[int, ...]] = {}
        for task in self._order:
            waits = tuple(dict.fromkeys(node for other in self._before[task] for node in nodes[other]))
            local = self.graph.stream_device[self.graph.stream[task]] == rank
            parts = self._parts_of(self.moves[task]).get(device, []) if task in self.moves else None
            if parts is None and local:
                parts = [_Part(kind=COMPUTE, members=(), size_bytes=0)]
            nodes[task] = waits
            if parts:
                nodes[task] = tuple(self._most * task + place for place in range(len(parts)))
                yield from map(partial(self._node, task, waits), nodes[task], parts)

    def _node(self, task: int, waits: Sequence[int], number: int, part: _Part) -> bytes:
        start_s, end_s = self.run.start_s[task], self.run.end_s[task]
        compute, collective = part.kind == COMPUTE, part.kind == COLLECTIVE
        return encoded(
            number,
            self.graph.name(task),
            part.kind,
            waits,
            start_s=start_s,
            end_s=end_s,
            micros=round((end_s - start_s) * 1e6) if compute else 0,
            size_bytes=part.size_bytes,
            collective=part.collective,
            group=group_of(self.groups, part.members) if collective else 0,
            ends=(0, 0) if compute or collective else (part.members[0], part.members[1]),
            tag=task,
        )

    def _parts_of(self, move: Move) -> Mapping[int, list[_Part]]:
        if move not in self._parts:
            parts_of: dict[int, list[_Part]] = {}
            for device, part in _parts(move):
                parts_of.setdefault(device, []).append(part)
            self._parts[move] = parts_of
        return self._parts[move]


def _parts(move: Move) -> Iterator[tuple[int, _Part]]:
    """Yield the devices of a transfer, each with its part."""
    kind = move.transfer.kind
    for members, elements in zip(move.transfer.groups, move.transfer.elements, strict=True):
        size = elements * move.element_bytes
        if kind in COLLECTIVES:
            part = _Part(kind=COLLECTIVE, members=members, size_bytes=max(round(size), 1), collective=COLLECTIVES[kind])
            yield from ((device, part) for device in members)
            continue
        each = max(round(size / (len(members) if kind in ("scatter", "gather") else 1)), 1)
        for source, target, _ in pairs_of(kind, (members,)):
            yield source, _Part(kind=SEND_NODE, members=(source, target), size_bytes=each)
            yield target, _Part(kind=RECEIVE_NODE, members=(source, target), size_bytes=each)
