"""Compilation of step costs into tasks: one complete graph, or device by device while it runs.

Where replicas (data, tensor, context and expert parallel) are equal, one pipeline represents all of them. Otherwise
several pipelines are simulated, and the traffic of replicas waits for all of them. ``device_tasks.py`` writes the tasks
of a pipeline rank; this module connects them and adds the end of the step.
"""

from array import array
from collections.abc import Sequence

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.graph import EventGraph, TaskGraph
from forerun.simulator.events.engine.kinds import KINDS, OPTIMIZER, STREAMS, TIED
from forerun.simulator.events.engine.live_graph import MOST_OWNERS, LiveGraph
from forerun.simulator.events.step.contention import Contention, Key, SharedLinks
from forerun.simulator.events.step.device_tasks import DeviceWriter, add_streams
from forerun.simulator.events.step.disturb import Disturbance, draws_of
from forerun.simulator.events.step.hand_over import Collectives, HandOver
from forerun.simulator.events.step.stage_order import StageOrder, stage_orders
from forerun.spaces.errors import RequestError


def compile_step(
    costs: StepCosts,
    *,
    replicas: int = 1,
    contention: Contention | None = None,
    disturbance: Disturbance | None = None,
) -> TaskGraph:
    """Return the complete graph of one step of ``replicas`` pipelines.

    With ``contention``, one pipeline per colour of replicas, whose traffic shares the cluster's links.

    Raises:
        RequestError: the schedule has no order for this shape, there are no replicas, or a disturbed device does not
            exist.
    """
    graph = TaskGraph(KINDS)
    step = _Step(costs, graph, replicas, contention, disturbance)
    for device in step.devices:
        device.begin()
        while device.write() is not None:
            pass
    for add in (step.end.tie, step.end.norm, step.end.update):
        for device in step.devices:
            add(device.device, device.behind)
    return graph


class StepSource:
    """Writer of a step while it runs (``live_run.Source``). ``arrows``: transfers and the tasks that they start.

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
        orders: Sequence[StageOrder] = (),
    ) -> None:
        self.graph = LiveGraph(KINDS)
        self.paused = False
        self._step = _Step(costs, self.graph, replicas, contention, disturbance, arrows, orders)
        self._writing = [True] * len(self._step.devices)
        self._pauses: Sequence[int] = ()

    @property
    def sent_bytes(self) -> dict[Key, float]:
        """Bytes that every connection of each flow has carried so far."""
        return self._step.wires.sent_bytes if self._step.wires else {}

    def open(self) -> None:
        """Write the first tasks of every device."""
        for device in self._step.devices:
            device.begin()
            while not device.write():
                pass
            self._write_on(device, -1)

    def advance(self, task: int) -> None:
        """Continue to write after a task of a compute stream ends."""
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
        """Write a device's next actions until it is far enough ahead, and after the last action the end of the step."""
        number = device.device
        while self._writing[number] and device.runs_short(ending):
            if device.write() is None:
                self._writing[number] = False
                for add in (self._step.end.tie, self._step.end.norm, self._step.end.update):
                    add(number, device.behind)
        if self._pauses and device.written >= self._pauses[number]:
            self.paused = True

    def pause_at(self, actions: Sequence[int]) -> None:
        """Pause the run as soon as a device has written the given number of actions of its program."""
        self._pauses = actions
        self.paused = any(one.written >= most for one, most in zip(self._step.devices, actions, strict=False))

    def written(self) -> list[int]:
        """Return the number of written actions of every device."""
        return [device.written for device in self._step.devices]

    def go_on(self, orders: Sequence[StageOrder]) -> None:
        """Continue to the end with other programs that have been identical so far."""
        self.pause_at(())
        for device, order in zip(self._step.devices, orders, strict=True):
            device.go_on(order)

    @property
    def read_only(self) -> list[object]:
        """Objects that are never changed, which copies of a run under way may share."""
        step = self._step
        costs = [step.costs, *(cost for stage in step.costs.stages for cost in (stage, *stage.also))]
        return [*costs, *(part for device in step.devices for part in (device.order, device.left))]


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
        orders: Sequence[StageOrder] = (),
    ) -> None:
        self.costs = costs
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
        common, orders = Collectives(replicas), orders or stage_orders(costs.programs, len(costs.chunks))
        self.end = _End(costs, graph, count)
        self.devices: list[DeviceWriter] = []
        for replica in range(replicas):
            hand_over = HandOver(graph, len(costs.chunks), arrows)
            for order in orders:
                factors = draws[len(self.devices)]
                writer = DeviceWriter(costs, graph, order, replica, hand_over, common, self.wires, factors)
                self.devices.append(writer)


def _declare_ports(costs: StepCosts, graph: EventGraph, replicas: int) -> None:
    """Declare the traffic through the ports of every stage: transfers of one device, collectives of all replicas."""
    pp = costs.shape.pp
    for stage in range(pp):
        ports = range(stage, replicas * pp, pp)
        for port in ports:
            graph.declare((port,))
        graph.declare(tuple(ports))


class _End:
    """The end of a step: sum of tied gradients, gradient norm (all devices wait for it) and optimizer.

    Every device adds its part once; its tasks have numbers after all others, in a fixed order of devices.
    """

    def __init__(self, costs: StepCosts, graph: EventGraph, devices: int) -> None:
        self._costs, self._graph, self._devices = costs, graph, devices
        self._tied: dict[int, int] = {}
        self._norm = -1

    def tie(self, device: int, after: list[int]) -> None:
        """Add the all-reduce of a table's gradient that the first and last stage of a pipeline share."""
        pp = self._costs.shape.pp
        replica, stage = divmod(device, pp)
        if not self._costs.tied_s or pp == 1 or stage not in (0, pp - 1):
            return
        compute = (len(STREAMS) * device,)
        if replica in self._tied:
            self._graph.join(self._tied.pop(replica), compute, after, promised=True)
        else:
            self._graph.at(self._devices, replica)
            self._tied[replica] = task = self._graph.add_collective(TIED, self._costs.tied_s, compute, after)
            self._graph.promise(task)

    def norm(self, device: int, after: list[int]) -> None:
        """Add the gradient norm, for which all devices wait."""
        compute = (len(STREAMS) * device,)
        if self._norm >= 0:
            self._graph.join(self._norm, compute, after, promised=True)
        else:
            self._graph.at(self._devices, self._devices)
            self._norm = self._graph.add_collective(OPTIMIZER, 0.0, compute, after)
            self._graph.promise(self._norm, self._devices - 1)

    def update(self, device: int, after: list[int]) -> None:
        """Add the optimizer after the norm."""
        self._graph.at(self._devices, self._devices + 1 + device)
        stage = self._costs.stages[device % self._costs.shape.pp]
        self._graph.add(OPTIMIZER, stage.optimizer_s, len(STREAMS) * device, [self._norm])
