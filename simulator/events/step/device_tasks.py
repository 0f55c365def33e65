"""Tasks of one pipeline rank, written action by action.

A pipeline rank has these streams (``kinds.STREAMS``): *compute* in the order of the schedule; *feature* for transfers
to other stages, in the order of their passes; *gradient* for the traffic of replicas, in order of readiness; and two
for copies to and from the host. Where transfers and replica traffic use one port, they share it: the port is a link
that passes one second of either per second.

Traffic that may overlap is divided into buckets: bucket j of a gradient reduction waits for segment j of the backward
pass, and segment j of a forward pass waits for bucket j of its parameters. Only the share that the framework hides is
divided; the rest runs, exposed, after the last backward pass or before the first forward pass.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.host import COPY_AHEAD
from forerun.simulator.events.engine.graph import EventGraph
from forerun.simulator.events.engine.kinds import GATHER, HOST, REDUCE, SEND, STREAMS
from forerun.simulator.events.step.contention import SharedLinks
from forerun.simulator.events.step.disturb import Draws
from forerun.simulator.events.step.hand_over import Collectives, HandOver
from forerun.simulator.events.step.host_copies import HostCopies, PassTraffic, host_traffic, stage_tag
from forerun.simulator.events.step.stage_order import LAST_PASSES, StageOrder
from forerun.simulator.replicas.buffers import MOST_SEGMENTS
from forerun.spaces.schedules import Action, Pass

PREFETCH = 2
"""Segments by which a sharded parameter's gather may precede its use (Proteus prefetches two operators ahead)."""


def add_streams(graph: EventGraph, device: int, computation: float, traffic: float) -> None:
    """Add the streams of one device.

    ``computation``: factor on the duration of computation during replica traffic; ``traffic``: factor on the duration
    of this traffic during computation.
    """
    compute, _, gradient, _, _ = (
        graph.add_stream(f"stage {device} {name}", device=device, ordered=name != "gradient") for name in STREAMS
    )
    graph.slow(compute, computation, [gradient])
    graph.slow(gradient, traffic, [compute])


class DeviceWriter:
    """Writer of the tasks of one pipeline rank.

    ``common``: collectives of all replicas; ``wires``: shared links of the cluster, None for ports; ``draws``: factors
    on the duration of its passes.
    """

    def __init__(
        self,
        costs: StepCosts,
        graph: EventGraph,
        order: StageOrder,
        replica: int,
        hand_over: HandOver,
        common: Collectives,
        wires: SharedLinks | None,
        draws: Draws | None,
    ) -> None:
        self.costs, self.graph, self.order, self.replica = costs, graph, order, replica
        self.hand_over, self.common, self.wires, self.draws = hand_over, common, wires, draws
        self.stage, self.device = order.stage, replica * costs.shape.pp + order.stage
        self.compute, self.feature, self.gradient, to_host, from_host = (
            len(STREAMS) * self.device + place for place in range(len(STREAMS))
        )
        self.copies = HostCopies(graph, to_host, from_host)
        self.cost = costs.stages[self.stage]
        self.traffic = [(costs.zero if cost.zero is None else cost.zero, cost) for cost in (self.cost, *self.cost.also)]
        self.each = costs.reduced_each_from
        self.gathered: set[int] = set()
        self.whole: set[int] = set()
        self.first = -1
        self.recent: deque[int] = deque(maxlen=COPY_AHEAD + 1)
        self.behind: list[int] = []
        self.most_behind = 64
        self.sharing = False
        # One number object for all passes, which keeps the memory of a long run small.
        self.stays = [cost.kept_bytes - cost.host_bytes + cost.logit_bytes for cost in costs.chunks]
        self.unsent: list[tuple[Pass, int, int]] = []
        self.woven = -1
        self.quiet = self._quiet()
        self.written = self.place = 0
        self.left: Iterator[Action] = iter(order.program)
        self.asked = max(order.first.values()) if any(cost.gather_s for _, cost in self.traffic) else 0
        self.pass_s = [
            (cost.forward_s, cost.backward_s, cost.backward_s - cost.weight_s, cost.weight_s) for cost in costs.chunks
        ]

    def _quiet(self) -> range:
        """Return the places of the program without any replica traffic."""
        # These places are after the first use of all parameters and before the first complete gradient. Transfers that
        # share nothing are cheaper to execute.
        order = self.order
        low = max(order.first.values()) + 1 if any(cost.gather_s for _, cost in self.traffic) else 0
        high = min(order.last.values()) if any(cost.reduce_s for _, cost in self.traffic) else order.length
        return range(0) if any(zero >= min(3, self.each) for zero, _ in self.traffic) else range(low, high)

    def runs_short(self, ending: int) -> bool:
        """Check whether more must be written when a task ends, because successors of the oldest recent segment are
        still missing.
        """
        recent = self.recent
        return len(recent) <= COPY_AHEAD or recent[0] == ending or not self.graph.pending(recent[0])

    def begin(self) -> None:
        """Write the tasks before the first action."""
        self.graph.at(self.device, 0)
        self.graph.hold(self._begin(), self.device, self.cost.fixed_bytes)
        self.place = self.graph.place

    def write(self) -> bool | None:
        """Write the next action with the actions interwoven with it, or after the last action the end of the program.

        Return None after the last action, otherwise whether the device may start to run before its next actions are
        written: it may once all parameters have been requested, since their gathers wait for the first task only.
        """
        costs = self.costs
        self.graph.at(self.device, self.place)
        for action in self.left:
            number, self.written = self.written, self.written + 1
            self.sharing = costs.one_port and number not in self.quiet
            if action.kind == Pass.FORWARD and self.order.begins(action):
                if costs.host_microbatch_s:
                    self.graph.add(HOST, costs.host_microbatch_s, self.compute, tag=(action.microbatch,))
            self._act(number, action)
            if len(self.behind) > self.most_behind:
                self.behind = [task for task in self.behind if self.graph.pending(task)]
                self.most_behind = 2 * len(self.behind) + 64
            if not action.interwoven:  # otherwise the next action adds to the dependencies of its first task
                self.place = self.graph.place
                return number >= self.asked
        # Up to ZeRO 1 gradients are reduced once, after the last pass; from ZeRO 2 on with every pass (`_act`).
        rest_s = (1 - costs.overlap_gradients) * sum(cost.reduce_s for zero, cost in self.traffic if zero < self.each)
        if rest_s:
            self.behind = [self._replicas(REDUCE, rest_s, self.behind, ("rest",), blocking=True)]
        return None

    def go_on(self, order: StageOrder) -> None:
        """Continue with another program that has been identical so far."""
        self.order = order
        self.quiet = self._quiet()
        self.left = islice(order.program, self.written, None)

    def _begin(self) -> int:
        """Add the host's work of a step and the exposed gather; return the first task."""
        first = self.graph.add(HOST, self.costs.host_step_s, self.compute)
        rest_s = (1 - self.costs.overlap_parameters) * sum(cost.gather_s for zero, cost in self.traffic if zero < 3)
        if rest_s:
            self._replicas(GATHER, rest_s, (first,), ("rest",), blocking=True)
        self.first = first
        self.recent.append(first)
        return first

    def _act(self, place: int, action: Action) -> None:
        """Add the tasks of one action."""
        kind, microbatch, chunk, interwoven = action
        flows = [] if place in self.quiet else self._traffic_s(place, action)
        flows += host_traffic(self.costs, action)
        gathered_s = sum(flow.gathered_s for flow in flows if flow.zero == 3)
        if gathered_s:
            rest_s = (1 - self.costs.overlap_parameters) * gathered_s
            self._replicas(GATHER, rest_s, (), (microbatch, chunk, "rest", kind), blocking=True)
        if flows:
            tasks = self._segments(action, flows)
            first, last = tasks[0], tasks[-1]
        else:
            seconds = self.pass_s[chunk][kind] * self._factor()
            first = last = self.graph.add(int(kind), seconds, self.compute, tag=(microbatch, chunk))
            self.recent.append(first)
        reduced_s = sum(flow.reduced_s for flow in flows if flow.zero >= self.each)
        if reduced_s:
            rest_s = (1 - self.costs.overlap_gradients) * reduced_s
            self._replicas(REDUCE, rest_s, (), (microbatch, chunk, "rest"), blocking=True)
        self._hold(action, first, last)
        # The previous stage waits only for input gradients, even where weight gradients are computed with them.
        made = Pass.INPUT_GRADIENT if kind == Pass.BACKWARD else kind
        if kind != Pass.WEIGHT_GRADIENT:
            self.woven = self.woven if self.unsent else first
            self.hand_over.enter(made, microbatch, chunk, self.woven)
            self.unsent.append((made, microbatch, chunk))
        if not interwoven:
            self._send(last)

    def _traffic_s(self, place: int, action: Action) -> list[PassTraffic]:
        """Return the replica traffic of one action, by the ZeRO stage that causes it."""
        kind, _, chunk, _ = action
        first_use = kind == Pass.FORWARD and chunk not in self.gathered
        if first_use:
            self.gathered.add(chunk)
        flows = []
        for zero, cost in self.traffic:
            share = cost.share[chunk]
            reduced_s = gathered_s = 0.0
            if kind in LAST_PASSES and (self._turns(zero, action) or self.order.last[chunk] == place):
                reduced_s = cost.reduce_s * share
            needed = (kind != Pass.WEIGHT_GRADIENT and chunk not in self.whole) if zero == 3 else first_use
            if needed:
                gathered_s = cost.gather_s * share
            if reduced_s or gathered_s:
                flows.append(PassTraffic(zero, max(round(cost.buckets * share), 1), reduced_s, gathered_s))
        if self.costs.stays_whole:
            (self.whole.discard if kind == Pass.FORWARD else self.whole.add)(chunk)
        return flows

    def _turns(self, zero: int, action: Action) -> bool:
        """Check whether gradients are reduced with this microbatch, before the last one."""
        return zero >= self.each and (action.microbatch + 1) % self.costs.reduced_every == 0

    def _segments(self, action: Action, flows: list[PassTraffic]) -> list[int]:
        """Add a pass as segments, with the buckets that they wait for and start."""
        kind, microbatch, chunk, _ = action
        graph, costs = self.graph, self.costs
        tag: tuple[object, ...] = (microbatch, chunk)
        # Traffic during a pass is divided like the finest kind, so that all kinds use segments of one length.
        count = max(min(flow.buckets, MOST_SEGMENTS) for flow in flows)
        one_s = self.pass_s[chunk][kind] / count
        gathers = [(flow.zero, flow.gathered_s * costs.overlap_parameters / count) for flow in flows]
        reductions = [(flow.zero, flow.reduced_s * costs.overlap_gradients / count) for flow in flows]
        tasks = []
        copied_s = sum(flow.copied_s for flow in flows) / count
        kept_s, kept = sum(flow.kept_s for flow in flows) / count, sum(flow.kept_bytes for flow in flows) / count
        forward = kind == Pass.FORWARD
        for number in range(count):
            after = []
            if kept and not forward:
                gate = self._before(COPY_AHEAD)
                back = (*tag, number, "back")
                after.append(self.copies.bring_back(tag, gate, kept_s, kept, (self.device,), back, (number, count)))
            elif kept:
                after += self.copies.space()
            if copied_s:
                after.append(self.copies.fetch(copied_s, self._before(COPY_AHEAD), (*tag, number, "parameters")))
            for zero, seconds in gathers:
                if seconds:
                    # ZeRO 3 keeps few gathered layers, so a gather waits for the use of earlier ones; ZeRO 1 and 2
                    # gather all parameters once, at link speed.
                    gate = self._before(PREFETCH) if zero == 3 else self.first
                    key = (*tag, number, kind, *stage_tag(zero, flows))
                    after.append(self._replicas(GATHER, seconds, (gate,), key, beside=zero == 3 or number > 0))
            task = graph.add(
                int(kind), one_s * self._factor(), self.compute, after, tag=tag if count == 1 else (*tag, number)
            )
            tasks.append(task)
            self.recent.append(task)
            if kept and forward:
                graph.hold(task, self.device, kept)
                self.copies.send_away(tag, task, kept_s, kept, (self.device,), (*tag, number, "away"))
            elif kept and kind == Pass.BACKWARD:
                graph.hold(task, self.device, -kept, at_end=True)
            for zero, seconds in reductions:
                if seconds:
                    key = (*tag, number, *stage_tag(zero, flows))
                    # Up to ZeRO 1 the last bucket of a step starts when no computation is left to hide it.
                    beside = zero >= self.each or number < count - 1
                    self.behind.append(self._replicas(REDUCE, seconds, (task,), key, beside=beside))
        if not forward:
            self.copies.forget(tag)
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
        """Add a collective of all replicas of this stage, or join it where another replica has added it.

        The tag distinguishes collectives of one kind; gathers precede reductions, since passes wait for gathers.
        ``beside``: whether segments of passes run during it. On its own stream its speed depends on them; on a shared
        port it has the slower pace for all of its time.
        """
        near = kind == GATHER and self.costs.gathers_near
        shares = self.costs.one_port and not self.wires and not near
        if beside and shares:
            seconds *= self.costs.traffic_slowdown
        streams = (self.compute, self.gradient) if blocking else (self.gradient,)
        graph, key = self.graph, (self.stage, kind, *tag)
        task = self.common.find(key)
        if task is not None:
            # The task also gets a place in this device's order, so later tasks have the same numbers.
            graph.at(self.device, graph.place + 1)
            graph.join(task, streams, after, promised=True)
        else:
            # Its number is that of the first replica's task, whichever replica adds it.
            graph.at(self.stage, graph.place)
            task = graph.add_collective(kind, seconds, streams, after, tag=tag, priority=int(kind == REDUCE))
            graph.at(self.device, graph.place)
            graph.promise(task, self.common.begin(key, task))
            if self.wires and not near:
                self.wires.carry(task, self.stage, seconds / self.cost.reduce_s)
        if shares and not blocking:
            graph.share(task, (self.device,))
        return task

    def _before(self, segments: int) -> int:
        """Return the segment a fixed number of places before the next one, or the first segment."""
        return self.recent[-min(segments, len(self.recent))]

    def _factor(self) -> float:
        return self.draws.factor() if self.draws else 1.0

    def _hold(self, action: Action, first: int, last: int) -> None:
        """Record the allocations and frees of a pass; activations live until the weight gradient, which reads them."""
        cost, graph = self.costs.chunks[action.chunk], self.graph
        if action.kind == Pass.FORWARD:
            graph.hold(first, self.device, self.stays[action.chunk])
            return
        freed = cost.kept_bytes if action.kind in LAST_PASSES else 0.0
        if action.kind == Pass.BACKWARD and cost.host_bytes:
            freed -= cost.host_bytes  # freed with the segments that read them
        if action.kind != Pass.WEIGHT_GRADIENT:
            freed += cost.logit_bytes + cost.working_bytes
            if cost.working_bytes:
                graph.hold(first, self.device, cost.working_bytes)
        if freed:
            graph.hold(last, self.device, -freed, at_end=True)

    def _send(self, last: int) -> None:
        """Send the results of the last task to the stages that need them."""
        costs = self.costs
        for kind, microbatch, chunk in self.unsent:
            target = self.order.rank_of(microbatch, chunk - 1 if kind else chunk + 1)
            sends = bool(costs.p2p_s) and target not in (None, self.stage)
            task = self._transfer(kind, microbatch, chunk, target, last) if sends and target is not None else last
            self.hand_over.leave(kind, microbatch, chunk, task, sent=sends)
        self.unsent.clear()

    def _transfer(self, kind: Pass, microbatch: int, chunk: int, target: int, last: int) -> int:
        """Add the transfer of a result to another stage."""
        stream = self.feature if self.costs.overlap_p2p else self.compute
        tag = (microbatch, chunk, target)
        if self.wires:
            return self.wires.send(SEND, (self.replica, self.stage, target), stream, last, tag)
        p2p_s = self.costs.p2p_from(chunk, back=bool(kind))
        if self.sharing:
            return self.graph.add_transfer(SEND, p2p_s, (self.device,), stream, (last,), tag=tag)
        return self.graph.add(SEND, p2p_s, stream, (last,), tag=tag)
