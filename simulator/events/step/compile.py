"""From the costs of a step to its tasks: as one whole graph, or device by device while it runs.

Where replicas are equal (data, tensor, context and expert parallel) one of each stage stands for all. Otherwise several
pipelines stand side by side, and the traffic of replicas waits for all of them. What one pipeline rank does is written
by ``device_tasks.py``; here is what joins them, and the end of the step.
"""

from array import array
from collections.abc import Iterator

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.graph import EventGraph, TaskGraph
from forerun.simulator.events.engine.kinds import KINDS, OPTIMIZER, STREAMS, TIED
from forerun.simulator.events.engine.live_graph import MOST_OWNERS, LiveGraph
from forerun.simulator.events.step.contention import Contention, Key, SharedLinks
from forerun.simulator.events.step.device_tasks import DeviceWriter, add_streams
from forerun.simulator.events.step.disturb import Disturbance, draws_of
from forerun.simulator.events.step.hand_over import Collectives, HandOver
from forerun.simulator.events.step.stage_order import stage_orders
from forerun.spaces.errors import RequestError


def compile_step(
    costs: StepCosts,
    *,
    replicas: int = 1,
    contention: Contention | None = None,
    disturbance: Disturbance | None = None,
) -> TaskGraph:
    """Return the whole graph of one step, with ``replicas`` pipelines side by side; with ``contention`` one for each of
    its colours, whose traffic shares the cluster's links.

    Raises:
        RequestError: the schedule has no order for this shape, there are no replicas, or a disturbed device is none.
    """
    graph = TaskGraph(KINDS)
    step = _Step(costs, graph, replicas, contention, disturbance)
    for device in step.devices:
        for _ in device.write():
            pass
    for add in (step.end.tie, step.end.norm, step.end.update):
        for device in step.devices:
            add(device.device, device.behind)
    return graph


class StepSource:
    """Writes the same step while it runs (``live_run.Source``). ``arrows``: where transfers and what they let start are
    noted.

    Raises:
        RequestError: as for ``compile_step``.
    """

    def __init__(
        self,
        costs: StepCosts,
        *,
        replicas: int = 1,
        contention: Contention | None = None,
        disturbance: Disturbance | None = None,
        arrows: "array[int] | None" = None,
    ) -> None:
        self.graph = LiveGraph(KINDS)
        self._step = _Step(costs, self.graph, replicas, contention, disturbance, arrows)
        self._writing: list[Iterator[bool] | None] = []

    @property
    def sent_bytes(self) -> dict[Key, float]:
        """What every connection of each flow has carried so far."""
        return self._step.wires.sent_bytes if self._step.wires else {}

    def open(self) -> None:
        """Write the first tasks of every device."""
        for device in self._step.devices:
            writing = device.write()
            self._writing.append(writing)
            while not next(writing):
                pass
            self._write_on(device, -1)

    def advance(self, task: int) -> None:
        """Write on where a task of a compute stream ends."""
        graph = self.graph
        stream, members = graph.stream[task], graph.members_of.get(task)
        if members is None:
            if stream % len(STREAMS) == 0:
                self._write_on(self._step.devices[stream // len(STREAMS)], task)
            return
        for each in members:
            if each % len(STREAMS) == 0:
                self._write_on(self._step.devices[each // len(STREAMS)], task)

    def _write_on(self, device: DeviceWriter, ending: int) -> None:
        """Write a device's next actions until it is far enough ahead, and the end of the step behind the last."""
        writing = self._writing[device.device]
        while writing is not None and device.runs_short(ending):
            if next(writing, None) is None:
                writing = self._writing[device.device] = None
                for add in (self._step.end.tie, self._step.end.norm, self._step.end.update):
                    add(device.device, device.behind)


class _Step:
    """Streams, links, and the writers of all devices."""

    def __init__(
        self,
        costs: StepCosts,
        graph: EventGraph,
        replicas: int,
        contention: Contention | None,
        disturbance: Disturbance | None,
        arrows: "array[int] | None" = None,
    ) -> None:
        pp = costs.shape.pp
        count = replicas * pp
        if not 1 <= count < MOST_OWNERS:
            raise RequestError(
                f"replicas must be at least 1 and all pipeline ranks fewer than {MOST_OWNERS}, "
                f"but got {replicas} x {pp}"
            )
        for device in range(count):
            add_streams(graph, device, costs.overlap_slowdown, costs.traffic_slowdown)
            if costs.one_port and contention is None:
                graph.add_link(f"stage {device} port", 1.0)
        self.wires = SharedLinks(contention, graph) if contention else None
        if costs.one_port and contention is None:
            _declare_ports(costs, graph, replicas)
        draws = draws_of(disturbance, count) if disturbance else [None] * count
        common, orders = Collectives(replicas), stage_orders(costs.programs, len(costs.chunks))
        self.end = _End(costs, graph, count)
        self.devices: list[DeviceWriter] = []
        for replica in range(replicas):
            hand_over = HandOver(graph, len(costs.chunks), arrows)
            for order in orders:
                own = draws[len(self.devices)]
                writer = DeviceWriter(costs, graph, order, replica, hand_over, common, self.wires, own)
                self.devices.append(writer)


def _declare_ports(costs: StepCosts, graph: EventGraph, replicas: int) -> None:
    """Declare what may leave by the ports of every stage: transfers of one device, collectives of all replicas."""
    pp = costs.shape.pp
    for stage in range(pp):
        ports = range(stage, replicas * pp, pp)
        for port in ports:
            graph.declare((port,))
        graph.declare(tuple(ports))


class _End:
    """The end of a step: the sum of tied gradients, the gradient norm that all devices wait for, and the optimizer.

    Every device comes here once; it is numbered behind all other tasks, whoever comes first.
    """

    def __init__(self, costs: StepCosts, graph: EventGraph, devices: int) -> None:
        self._costs, self._graph, self._devices = costs, graph, devices
        self._tied: dict[int, int] = {}
        self._norm = -1

    def tie(self, device: int, behind: list[int]) -> None:
        """Let the first and the last stage of a pipeline add up the gradient of a table that both have."""
        pp = self._costs.shape.pp
        replica, stage = divmod(device, pp)
        if not self._costs.tied_s or pp == 1 or stage not in (0, pp - 1):
            return
        compute = (len(STREAMS) * device,)
        if replica in self._tied:
            self._graph.join(self._tied.pop(replica), compute, behind, promised=True)
        else:
            self._graph.at(self._devices, replica)
            self._tied[replica] = task = self._graph.add_collective(TIED, self._costs.tied_s, compute, behind)
            self._graph.promise(task)

    def norm(self, device: int, behind: list[int]) -> None:
        """Let all devices wait for each other."""
        compute = (len(STREAMS) * device,)
        if self._norm >= 0:
            self._graph.join(self._norm, compute, behind, promised=True)
        else:
            self._graph.at(self._devices, self._devices)
            self._norm = self._graph.add_collective(OPTIMIZER, 0.0, compute, behind)
            self._graph.promise(self._norm, self._devices - 1)

    def update(self, device: int, behind: list[int]) -> None:
        """Add the optimizer behind the norm."""
        self._graph.at(self._devices, self._devices + 1 + device)
        stage = self._costs.stages[device % self._costs.shape.pp]
        self._graph.add(OPTIMIZER, stage.optimizer_s, len(STREAMS) * device, [self._norm])
