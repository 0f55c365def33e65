"""From the costs of a step to the task graph of one pipeline.

Where replicas are equal (data, tensor, context and expert parallel) one of each stage stands for all. Otherwise several
pipelines stand side by side, and the traffic of replicas waits for all of them. A device-stage has three streams:
*compute* in the order of the schedule, *feature* for transfers to other stages in the order in which their passes run,
and *gradient* for the traffic of replicas, which takes what is ready. Where the two kinds of traffic leave by one port
they share it: the port is a link that passes one second of either per second.

What may overlap is cut in buckets: bucket j of a gradient reduction waits for segment j of the backward pass, and
segment j of a forward pass waits for bucket j of its parameters. Only the share that the framework hides is dealt with
like that; the rest stands behind the last backward pass, or before the first forward pass, where nothing covers it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from forerun.simulator.events.contention import Contention, Wires
from forerun.simulator.events.costs import StepCosts
from forerun.simulator.events.graph import TaskGraph
from forerun.simulator.events.kinds import COPY, GATHER, HOST, KINDS, OPTIMIZER, REDUCE, SEND, STREAMS, TIED
from forerun.simulator.schedules import Action, Pass, Programs, limited, programs_of
from forerun.spaces.errors import RequestError

MOST_SEGMENTS = 32
"""Most segments that one pass is cut into: frameworks have one per layer or bucket; fewer leave the last one bare."""
PREFETCH = 2
"""Segments that a sharded parameter's gather may run ahead of its use (Proteus prefetches two operators ahead)."""
COPY_AHEAD = 3
"""The same for copies from the host, which take longer (Proteus: three)."""

_LAST_PASSES = (Pass.BACKWARD, Pass.WEIGHT_GRADIENT)


def compile_step(costs: StepCosts, *, replicas: int = 1, contention: Contention | None = None) -> TaskGraph:
    """Return the graph of one step, with ``replicas`` pipelines side by side; with ``contention`` one for each of its
    colours, whose traffic shares the cluster's links.

    Raises:
        RequestError: the schedule has no order for this shape, or there are no replicas.
    """
    if replicas < 1:
        raise RequestError(f"replicas must be at least 1, but got {replicas}")
    graph = TaskGraph(KINDS)
    programs = limited(costs.shape, costs.in_flight) if costs.in_flight else programs_of(costs.schedule, costs.shape)
    for device in range(replicas * costs.shape.pp):
        add_streams(graph, device, costs.overlap_slowdown, costs.traffic_slowdown)
        if costs.one_port and contention is None:
            graph.add_link(f"stage {device} port", 1.0)
    common: dict[tuple[object, ...], int] | None = {} if replicas > 1 else None
    wires = Wires(contention, graph) if contention else None
    finished = []
    for replica in range(replicas):
        finished += _Pipeline(costs, programs, graph, replica, common, wires).add()
    _finish_step(costs, graph, finished)
    return graph


def add_streams(graph: TaskGraph, device: int, computation: float, traffic: float) -> None:
    """Add the streams of one device; factors on the seconds of computation beside traffic of replicas, and of that
    traffic beside computation."""
    compute, _, gradient, _, _ = (
        graph.add_stream(f"stage {device} {name}", device=device, ordered=name != "gradient") for name in STREAMS
    )
    graph.slow(compute, computation, [gradient])
    graph.slow(gradient, traffic, [compute])


def _finish_step(costs: StepCosts, graph: TaskGraph, finished: list[list[int]]) -> None:
    """Add the sum of tied gradients, the gradient norm that all devices wait for, and the optimizer."""
    compute, pp = [len(STREAMS) * device for device in range(len(finished))], costs.shape.pp
    for first in range(0, len(finished), pp) if costs.tied_s and pp > 1 else ():
        last = first + pp - 1
        graph.add_collective(TIED, costs.tied_s, (compute[first], compute[last]), [*finished[first], *finished[last]])
    norm = graph.add_collective(OPTIMIZER, 0.0, compute, [task for tasks in finished for task in tasks])
    for device, stream in enumerate(compute):
        graph.add(OPTIMIZER, costs.stages[device % pp].optimizer_s, stream, [norm])


class _Pipeline:
    """Adds the tasks of one device after the other, then the edges between devices. ``common``: collectives that other
    replicas take part in, None where this is the only one; ``wires``: shared links of the cluster, None for ports."""

    def __init__(
        self,
        costs: StepCosts,
        programs: Programs,
        graph: TaskGraph,
        replica: int,
        common: dict[tuple[object, ...], int] | None,
        wires: Wires | None,
    ) -> None:
        self.costs = costs
        self.programs = programs
        self.graph = graph
        self.replica = replica
        self.first = replica * costs.shape.pp
        self.common = common
        self.wires = wires
        self.device_of: dict[tuple[int, int], int] = {}
        self.entry: dict[tuple[int, int, int], int] = {}
        self.sent: dict[tuple[int, int, int], int] = {}
        for stage, program in enumerate(programs):
            for kind, microbatch, chunk, _ in program:
                if kind == Pass.FORWARD:
                    self.device_of[microbatch, chunk] = stage

    def add(self) -> list[list[int]]:
        """Add all tasks up to the optimizer; return for every device-stage what the optimizer waits for."""
        finished = [_Device(self, stage, program).run() for stage, program in enumerate(self.programs)]
        self._join_stages()
        return finished

    def _join_stages(self) -> None:
        """Let every pass wait for what the stage before or behind it sends; the rest is order on a stream."""
        for (kind, microbatch, chunk), task in self.entry.items():
            if kind == Pass.FORWARD and chunk:
                self.graph.need(task, self.sent[Pass.FORWARD, microbatch, chunk - 1])
            elif kind == Pass.INPUT_GRADIENT and chunk + 1 < len(self.costs.chunks):
                self.graph.need(task, self.sent[Pass.INPUT_GRADIENT, microbatch, chunk + 1])


class _Flow(NamedTuple):
    """Seconds of traffic of replicas that one pass gives rise to and waits for, in ``buckets``."""

    zero: int
    buckets: int
    reduced_s: float
    gathered_s: float
    copied_s: float = 0.0


def _among(zero: int, flows: list[_Flow]) -> tuple[object, ...]:
    """Return what tells traffic of one stage of sharding from that of others beside the same pass."""
    return (f"zero{zero}",) if len(flows) > 1 else ()


class _Device:
    """Writes the tasks of one device-stage."""

    def __init__(self, pipeline: _Pipeline, stage: int, program: list[Action]) -> None:
        self.pipeline, self.costs, self.graph = pipeline, pipeline.costs, pipeline.graph
        self.stage, self.device, self.program = stage, pipeline.first + stage, program
        self.compute, self.feature, self.gradient, self.to_host, self.from_host = (
            len(STREAMS) * self.device + place for place in range(len(STREAMS))
        )
        self.cost = self.costs.stages[stage]
        self.traffic = [
            (self.costs.zero if cost.zero is None else cost.zero, cost) for cost in (self.cost, *self.cost.also)
        ]
        self.started: set[int] = set()
        self.gathered: set[int] = set()
        self.segments: list[int] = []
        self.behind: list[int] = []
        self.sharing = False
        self.away: dict[tuple[int, int], int] = {}
        self.unsent: list[tuple[Pass, int, int]] = []
        self.last = {action.chunk: place for place, action in enumerate(program) if action.kind in _LAST_PASSES}
        self.quiet = self._quiet()
        self.pass_s = [
            (cost.forward_s, cost.backward_s, cost.backward_s - cost.weight_s, cost.weight_s)
            for cost in self.costs.chunks
        ]

    def _quiet(self) -> range:
        """Return the places of the program at which no traffic of replicas can be under way: behind the first use of
        all parameters and before the first whole gradient. A transfer that shares nothing is cheaper to execute."""
        first: dict[int, int] = {}
        for place, action in enumerate(self.program):
            first.setdefault(action.chunk, place)
        low = max(first.values()) + 1 if any(cost.gather_s for _, cost in self.traffic) else 0
        high = min(self.last.values()) if any(cost.reduce_s for _, cost in self.traffic) else len(self.program)
        return range(0) if any(zero >= 2 for zero, _ in self.traffic) else range(low, high)

    def run(self) -> list[int]:
        """Add all tasks of the program; return those that must end before the optimizer starts."""
        costs, cost = self.costs, self.cost
        self.graph.hold(self._begin(), self.device, cost.fixed_bytes)
        for place, action in enumerate(self.program):
            self.sharing = costs.one_port and place not in self.quiet
            if action.kind == Pass.FORWARD and action.microbatch not in self.started:
                self.started.add(action.microbatch)
                if costs.host_microbatch_s:
                    self.graph.add(HOST, costs.host_microbatch_s, self.compute, tag=(action.microbatch,))
            self._act(place, action)
        rest_s = (1 - costs.overlap_gradients) * sum(cost.reduce_s for zero, cost in self.traffic if zero < 2)
        if rest_s:
            self.behind = [self._replicas(REDUCE, rest_s, self.behind, ("rest",), blocking=True)]
        return self.behind

    def _begin(self) -> int:
        """Add the host's work of a step and the gather that nothing covers; return the first task."""
        first = self.graph.add(HOST, self.costs.host_step_s, self.compute)
        rest_s = (1 - self.costs.overlap_parameters) * sum(cost.gather_s for zero, cost in self.traffic if zero < 3)
        if rest_s:
            self._replicas(GATHER, rest_s, (first,), ("rest",), blocking=True)
        self.segments.append(first)
        return first

    def _act(self, place: int, action: Action) -> None:
        """Add the tasks of one action."""
        kind, microbatch, chunk, interwoven = action
        flows = [] if place in self.quiet else self._traffic_s(place, action)
        flows += self._fetched(action)
        gathered_s = sum(flow.gathered_s for flow in flows if flow.zero == 3)
        if gathered_s:
            rest_s = (1 - self.costs.overlap_parameters) * gathered_s
            self._replicas(GATHER, rest_s, (), (microbatch, chunk, "rest", kind), blocking=True)
        brought = self._bring_back(action)
        if flows:
            tasks = self._segments(action, flows)
            first, last = tasks[0], tasks[-1]
        else:
            first = last = self.graph.add(kind, self.pass_s[chunk][kind], self.compute, tag=(microbatch, chunk))
            self.segments.append(first)
        if brought is not None:
            self.graph.need(first, brought)
        reduced_s = sum(flow.reduced_s for flow in flows if flow.zero >= 2)
        if reduced_s:
            rest_s = (1 - self.costs.overlap_gradients) * reduced_s
            self._replicas(REDUCE, rest_s, (), (microbatch, chunk, "rest"), blocking=True)
        self._hold(action, first, last)
        made = Pass.INPUT_GRADIENT if kind == Pass.BACKWARD else kind
        if kind != Pass.WEIGHT_GRADIENT:
            entry = self.pipeline.entry[self.unsent[0]] if self.unsent else first
            self.pipeline.entry[made, microbatch, chunk] = entry
            self.unsent.append((made, microbatch, chunk))
        if not interwoven:
            self._send(last)

    def _traffic_s(self, place: int, action: Action) -> list[_Flow]:
        """Return the traffic of replicas that belongs to one action, by the stage of sharding that causes it."""
        kind, _, chunk, _ = action
        first_use = kind == Pass.FORWARD and chunk not in self.gathered
        if first_use:
            self.gathered.add(chunk)
        flows = []
        for zero, cost in self.traffic:
            share = cost.share[chunk]
            reduced_s = gathered_s = 0.0
            if kind in _LAST_PASSES and (zero >= 2 or self.last[chunk] == place):
                reduced_s = cost.reduce_s * share
            needed = kind != Pass.WEIGHT_GRADIENT if zero == 3 else first_use
            if needed:
                gathered_s = cost.gather_s * share
            if reduced_s or gathered_s:
                flows.append(_Flow(zero, cost.buckets, reduced_s, gathered_s))
        return flows

    def _fetched(self, action: Action) -> list[_Flow]:
        """Return the copies of parameters from the host that a pass waits for, layer by layer."""
        cost = self.costs.chunks[action.chunk]
        if not cost.fetch_bytes or action.kind == Pass.WEIGHT_GRADIENT:
            return []
        return [_Flow(3, cost.fetches, 0.0, 0.0, cost.fetch_bytes / self.costs.host_bytes_per_s)]

    def _bring_back(self, action: Action) -> int | None:
        """Copy activations that lie in the host's memory back before the pass that needs them, while another runs."""
        cost = self.costs.chunks[action.chunk]
        if not cost.host_bytes or action.kind in (Pass.FORWARD, Pass.WEIGHT_GRADIENT):
            return None
        away = self.away.pop((action.microbatch, action.chunk))
        gate = self.segments[-PREFETCH:][0]
        seconds = cost.host_bytes / self.costs.host_bytes_per_s
        task = self.graph.add(
            COPY, seconds, self.from_host, (gate, away), tag=(action.microbatch, action.chunk, "back")
        )
        self.graph.hold(task, self.device, cost.host_bytes)
        return task

    def _segments(self, action: Action, flows: list[_Flow]) -> list[int]:
        """Add a pass in segments with the buckets that they wait for and give rise to."""
        kind, microbatch, chunk, _ = action
        graph, costs = self.graph, self.costs
        tag: tuple[object, ...] = (microbatch, chunk)
        count = max(min(flow.buckets, MOST_SEGMENTS) for flow in flows)
        one_s = self.pass_s[chunk][kind] / count
        gathers = [(flow.zero, flow.gathered_s * costs.overlap_parameters / count) for flow in flows]
        reductions = [(flow.zero, flow.reduced_s * costs.overlap_gradients / count) for flow in flows]
        tasks = []
        copied_s = sum(flow.copied_s for flow in flows) / count
        for number in range(count):
            after = []
            if copied_s:
                gate = self.segments[-COPY_AHEAD:][0]
                after.append(graph.add(COPY, copied_s, self.from_host, (gate,), tag=(*tag, number, "parameters")))
            for zero, seconds in gathers:
                if seconds:
                    gate = self.segments[-PREFETCH:][0] if zero == 3 else self.segments[0]
                    key = (*tag, number, kind, *_among(zero, flows))
                    after.append(self._replicas(GATHER, seconds, (gate,), key, beside=zero == 3 or number > 0))
            task = graph.add(kind, one_s, self.compute, after, tag=tag if count == 1 else (*tag, number))
            tasks.append(task)
            self.segments.append(task)
            for zero, seconds in reductions:
                if seconds:
                    key = (*tag, number, *_among(zero, flows))
                    beside = zero >= 2 or number < count - 1
                    self.behind.append(self._replicas(REDUCE, seconds, (task,), key, beside=beside))
        return tasks

    def _replicas(
        self,
        kind: int,
        seconds: float,
        after: Iterable[int],
        tag: tuple[object, ...],
        *,
        blocking: bool = False,
        beside: bool = False,
    ) -> int:
        """Add a collective of all replicas of this stage, or take part in it where one of them has added it.

        Its tag names it among those of its kind; gathers go before reductions, for passes wait for them. ``beside``:
        segments of passes run while it does. On a stream of its own its speed follows them; on a port that it shares
        it takes its slower pace for all of its time.
        """
        if beside and self.costs.one_port and not self.pipeline.wires:
            seconds *= self.costs.traffic_slowdown
        streams = (self.compute, self.gradient) if blocking else (self.gradient,)
        common, key = self.pipeline.common, (self.stage, kind, *tag)
        if common is not None and key in common:
            task = common[key]
            self.graph.join(task, streams, after)
        else:
            task = self.graph.add_collective(kind, seconds, streams, after, tag=tag, priority=int(kind == REDUCE))
            if common is not None:
                common[key] = task
            if self.pipeline.wires:
                self.pipeline.wires.carry(task, self.stage, seconds / self.cost.reduce_s)
        if self.costs.one_port and not blocking and not self.pipeline.wires:
            self.graph.share(task, (self.device,))
        return task

    def _hold(self, action: Action, first: int, last: int) -> None:
        """Note what a pass allocates and frees; activations live until the weight gradient, which reads them."""
        cost, graph = self.costs.chunks[action.chunk], self.graph
        if action.kind == Pass.FORWARD:
            graph.hold(first, self.device, cost.kept_bytes + cost.logit_bytes)
            if cost.host_bytes:
                seconds, key = cost.host_bytes / self.costs.host_bytes_per_s, (action.microbatch, action.chunk)
                self.away[key] = graph.add(COPY, seconds, self.to_host, (last,), tag=(*key, "away"))
                graph.hold(self.away[key], self.device, -cost.host_bytes, at_end=True)
            return
        freed = cost.kept_bytes if action.kind in _LAST_PASSES else 0.0
        if action.kind != Pass.WEIGHT_GRADIENT:
            freed += cost.logit_bytes + cost.working_bytes
            if cost.working_bytes:
                graph.hold(first, self.device, cost.working_bytes)
        if freed:
            graph.hold(last, self.device, -freed, at_end=True)

    def _send(self, last: int) -> None:
        """Send the results that the last task completes to the stages that need them."""
        costs, pipeline = self.costs, self.pipeline
        for made in self.unsent:
            kind, microbatch, chunk = made
            task = last
            if costs.hop_s:
                target = pipeline.device_of.get((microbatch, chunk - 1 if kind else chunk + 1), self.stage)
                if target != self.stage:
                    stream = self.feature if costs.overlap_hops else self.compute
                    tag = (microbatch, chunk, target)
                    hop_s = costs.hop_from(chunk, back=bool(kind))
                    if pipeline.wires:
                        task = pipeline.wires.send(SEND, (pipeline.replica, self.stage, target), stream, last, tag)
                    elif self.sharing:
                        task = self.graph.add_transfer(SEND, hop_s, (self.device,), stream, (last,), tag=tag)
                    else:
                        task = self.graph.add(SEND, hop_s, stream, (last,), tag=tag)
            pipeline.sent[made] = task
        self.unsent.clear()
