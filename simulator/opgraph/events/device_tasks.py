"""The tasks of one pipeline rank of an operator graph, in the order of its program."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.kinds import (
    COPY,
    EXCHANGE,
    GATHER,
    HOST,
    OPTIMIZER,
    RECOMPUTE,
    REDUCE,
    SEND,
    STREAMS,
)
from forerun.simulator.events.step.device_tasks import PREFETCH
from forerun.simulator.events.step.host_copies import HostCopies
from forerun.simulator.layouts import Need, TransferPhase
from forerun.simulator.opgraph.events.buckets import Bucket, Buckets
from forerun.simulator.opgraph.events.plan import GraphPlan, Move
from forerun.simulator.opgraph.messages import Filling
from forerun.simulator.opgraph.transfers import blocked_s
from forerun.spaces.operators import CutOperator
from forerun.spaces.schedules import Action, Pass

Key = tuple[object, ...]


@dataclass(slots=True)
class SharedTasks:
    """Data shared by the devices of a step.

    Tasks by their results (``done``), tasks that wait for these results, and the transfer of every communication task
    (``moves``).
    """

    plan: GraphPlan
    graph: TaskGraph
    done: dict[Key, int] = field(default_factory=dict)
    moves: dict[int, Move] = field(default_factory=dict)
    waiting: list[tuple[int, Key]] = field(default_factory=list)


class GraphDeviceWriter:
    """Writer of the tasks of one pipeline rank."""

    def __init__(self, step: SharedTasks, device: int, program: Sequence[Action]) -> None:
        self.step, self.plan, self.graph = step, step.plan, step.graph
        self.device, self.program = device, program
        base = len(STREAMS) * device
        self.compute, self.feature, self.gradient = base, base + 1, base + 2
        self.copies = HostCopies(self.graph, *(base + STREAMS.index(name) for name in ("to host", "from host")))
        profile = self.plan.context.profile
        self.overlaps = profile.overlap > 0
        self.places = self.plan.places_of_rank(device)
        self.last_at: dict[int, int] = {}
        self.full: list[Bucket] = []
        self.joined: dict[Key, int] = {}
        self.computed: list[int] = []
        self.at: dict[int, tuple[int, ...]] = {}
        self.exchanged: dict[int, tuple[int, ...]] = {}
        self.exchanges: list[int] = []
        self.last = {action.chunk: place for place, action in enumerate(program) if action.kind == Pass.BACKWARD}
        sent = [
            transfer
            for place, action in enumerate(program)
            if action.kind == Pass.BACKWARD
            for transfer in self.plan.sent_gradients(action.chunk, last=self.last[action.chunk] == place)
        ]
        self.buckets = Buckets(Filling.of(profile), self.plan.gradient_bytes, sent)

    def run(self) -> None:
        """Add the passes of the program, the remaining gradients, and the update."""
        first = self.graph.add(HOST, 0.0, self.compute)
        if not self.plan.on_host:
            self._load()
        self._everywhere(first)
        for place in self.places:
            self.graph.hold(first, place, self.plan.fixed_bytes(place))
            self.last_at[place] = first
        self.computed.append(first)
        for place, action in enumerate(self.program):
            if action.kind == Pass.FORWARD:
                self._forward(action)
            else:
                self._backward(action, last=self.last[action.chunk] == place)
        for bucket in self.full:
            self._reduce(bucket)
        if self.plan.on_host:
            self._load()
        # Every exchange waits for the slowest device and for other nodes.
        busy_s = max(self._busy_s(place) for place in self.places)
        waiting_s = self.plan.waiting_s(self.device, busy_s, exchanged=bool(self.exchanges))
        waited = self.graph.add(HOST, waiting_s, self.compute, self.exchanges)
        self._everywhere(waited)
        optimizer_s = max(map(self.plan.optimizer_s, self.places))
        update = self.graph.add(OPTIMIZER, optimizer_s, self.compute, (waited,))
        for move in self.plan.update_moves(self.device):
            # The next step waits for them, and no other work remains to hide them.
            update = self._move(GATHER, (move,), self.gradient, (update,), ("updated weights",))
            self.graph.join(update, (self.compute,))

    def _everywhere(self, task: int) -> None:
        """Let a task occupy the devices of all places."""
        if self.places[1:]:
            self.graph.join(task, [len(STREAMS) * place for place in self.places[1:]])

    def _busy_s(self, place: int) -> float:
        """Seconds of the computation of one place."""
        return sum(self.graph.duration_s[task] for task in self.computed if place in self.at.get(task, (place,)))

    def _hold(self, operator: CutOperator, task: int, size: float, *, at_end: bool = False) -> None:
        """Record an allocation on every device of an operator."""
        for place in self.plan.places[operator.name]:
            self.graph.hold(task, place, size, at_end=at_end)

    def _load(self) -> None:
        """Add the loading of the next step's samples, for which no task of this step waits."""
        if loading_s := self.plan.loading_s():
            self.graph.add(COPY, loading_s, self.copies.from_host, tag=("input",))

    def _move(self, kind: int, moves: Sequence[Move], stream: int, after: Sequence[int], tag: Key) -> int:
        """Add transfers in sequence and return the last; without transfers, a task of zero duration."""
        if not moves:
            return self.graph.add(kind, 0.0, stream, after, tag=tag)
        for move in moves:
            task = self.graph.add(kind, move.seconds, stream, after, tag=tag)
            self.step.moves[task] = move
            after = (task,)
        return task

    def _forward(self, action: Action) -> None:
        tasks = {}
        for operator in self.plan.operators[action.chunk]:
            task = tasks[operator.name] = self._compute_forward(operator, action, Pass.FORWARD)
            self._hold_forward(operator, action, task)
            self._send_away(operator, action, task)
        for operator in self.plan.operators[action.chunk] if self.plan.context.inference else ():
            # Without a backward pass, an output is freed after its last reader on this rank.
            readers = self.plan.graph.consumers.get(operator.output.name, ())
            last = max(tasks.get(reader.name, tasks[operator.name]) for reader in (operator, *readers))
            self._hold(operator, last, -self.plan.costs[operator.name].kept_bytes, at_end=True)

    def _compute_forward(self, operator: CutOperator, action: Action, kind: int) -> int:
        """Add an operator's forward pass with the communication before and after it; return the computation."""
        plan, microbatch = self.plan, action.microbatch
        recomputed = kind == RECOMPUTE
        tag = (microbatch, action.chunk, operator.name)
        waits: list[Key] = []
        for operand in operator.inputs:
            producer = plan.graph.producers.get(operand.name)
            if producer is not None:
                waits.append(self._source("value", microbatch, operand.name, producer))
        reads = [need for need in plan.local(TransferPhase.FORWARD, operator) if need.tensor != operator.output.name]
        after = [self._exchange(need, waits, tag) for need in reads]
        after += (*self._fetch(operator, tag), *self.copies.space())
        task = self._computation(kind, operator, plan.costs[operator.name].forward_s, after, tag)
        self.step.waiting += [(task, key) for key in waits]
        ready = task
        for need in plan.local(TransferPhase.FORWARD, operator):
            if need.tensor == operator.output.name:
                ready = self._exchange(need, (), tag, (ready,))
        if not recomputed:
            self.step.done["value", microbatch, operator.output.name, self.device] = ready
            self._send_forward(operator, ready, tag)
        return task

    def _computation(self, kind: int, operator: CutOperator, seconds: float, after: Sequence[int], tag: Key) -> int:
        """Add computation that waits for all earlier exchanges in the program of its devices."""
        places = self.plan.places[operator.name]
        waited = [task for task, members in self.exchanged.items() if not set(members).isdisjoint(places)]
        streams = [len(STREAMS) * place for place in places]
        task = self.graph.add(kind, seconds, streams[0], (*after, *waited), tag=tag)
        if streams[1:]:
            self.graph.join(task, streams[1:])
        self.computed.append(task)
        self.at[task] = places
        self.last_at |= dict.fromkeys(places, task)
        self.exchanged = {task: members for task, members in self.exchanged.items() if task not in waited}
        return task

    def _source(self, what: str, microbatch: int, tensor: str, producer: CutOperator) -> Key:
        """Return the key of a tensor for its readers: the tensor on this rank, or its arrival from another rank."""
        if self.plan.rank_of[producer.name] == self.device:
            return (what, microbatch, tensor, self.device)
        return ("sent", microbatch, tensor, self.device)

    def _send_forward(self, operator: CutOperator, ready: int, tag: Key) -> None:
        """Send an output to every other pipeline rank that reads it."""
        tensor = operator.output.name
        readers = self.plan.graph.consumers.get(tensor, ())
        for device in dict.fromkeys(self.plan.rank_of[reader.name] for reader in readers):
            if device == self.device:
                continue
            moves = self.plan.moves(
                need
                for reader in readers
                if self.plan.rank_of[reader.name] == device
                for need in self.plan.crossing(TransferPhase.FORWARD, reader)
                if need.tensor == tensor
            )
            task = self._move(SEND, moves, self.feature, (ready,), (*tag, device))
            self.step.done["sent", tag[0], tensor, device] = task

    def _exchange(self, need: Need, waits: Sequence[Key], tag: Key, after: Sequence[int] = ()) -> int:
        """Add the communication of an activation or of its gradient."""
        key = (need.phase, *tag)
        task = first = self.joined.get(key, -1) if need.joined else -1
        if task < 0:
            # Frameworks exchange in the order of their program: after earlier computation.
            places = self.plan.places[need.operator]
            after = (*after, *dict.fromkeys(self.last_at[place] for place in places))
            first = len(self.graph)
            stream = len(STREAMS) * places[0] + 1
            task = self._move(EXCHANGE, self.plan.moves((need,)), stream, after, (*tag, need.tensor))
            self.exchanged[task] = places
            if need.joined:
                self.joined[key] = task
        self.step.waiting += [(first, source) for source in waits]
        return task

    def _fetch(self, operator: CutOperator, tag: Key) -> list[int]:
        """Gather sharded weights and copy weights from the host, at most ``PREFETCH`` operators ahead."""
        gate = self.computed[-PREFETCH:][0]
        copied = self.plan.fetched_bytes(operator)
        fetched = [self.copies.fetch(self.plan.copied_s(copied), gate, tag)] if copied else []
        return fetched + [
            self._move(GATHER, self.plan.weight_moves(need), self.gradient, (gate,), (*tag, "weights"))
            for need in self.plan.local(TransferPhase.FETCH, operator)
        ]

    def _backward(self, action: Action, *, last: bool) -> None:
        for operator in reversed(self.plan.operators[action.chunk]):
            for clone in self.plan.cloned_before(operator):
                task = self._compute_forward(clone, action, RECOMPUTE)
                self._hold(clone, task, self.plan.costs[clone.name].kept_bytes)
            first, task = self._compute_backward(operator, action, last=last)
            cost = self.plan.costs[operator.name]
            self._hold(operator, first, cost.working_bytes)
            self._hold(operator, task, -cost.kept_bytes - cost.working_bytes, at_end=True)

    def _compute_backward(self, operator: CutOperator, action: Action, *, last: bool) -> tuple[int, int]:
        """Add an operator's gradients with their communication; return its first and its last computation."""
        plan, cost = self.plan, self.plan.costs[operator.name]
        tag: Key = (action.microbatch, action.chunk, operator.name)
        waits = self._gradients_of(operator, action.microbatch)
        after = [
            self._exchange(need, waits, tag)
            for need in plan.local(TransferPhase.BACKWARD, operator)
            if need.tensor == f"d {operator.output.name}"
        ]
        after += [
            self._exchange(need, (), tag, self.computed[-1:]) for need in plan.local(TransferPhase.REGATHER, operator)
        ]
        after += self._fetch(operator, tag) + self._bring_back(operator, tag)
        first = task = self._computation(Pass.INPUT_GRADIENT, operator, cost.input_s, after, tag)
        self.step.waiting += [(task, key) for key in waits]
        if operator.weights:
            task = self._computation(Pass.WEIGHT_GRADIENT, operator, cost.weight_s, (), tag)
            if plan.sends_gradients(operator, last=last):
                self._weights(operator, task)
        # Frameworks launch both gradients of an operator in one call, so the outgoing gradient leaves after both.
        self._pass_on(operator, action.microbatch, task, tag)
        return first, task

    def _gradients_of(self, operator: CutOperator, microbatch: int) -> list[Key]:
        """Return the keys that the gradient of an output waits for: the readers' contributions, local or sent."""
        readers = [r for r in self.plan.graph.consumers.get(operator.output.name, ()) if r.differentiable]
        return [("gradient", microbatch, operator.output.name, reader.name) for reader in readers]

    def _pass_on(self, operator: CutOperator, microbatch: int, task: int, tag: Key) -> None:
        """Send the gradients of an operator's inputs to the devices of these inputs."""
        for operand in operator.inputs:
            producer = self.plan.graph.producers.get(operand.name)
            if producer is None:
                continue
            name, ready = f"d {operand.name}", task
            for need in self.plan.local(TransferPhase.BACKWARD, operator):
                if need.tensor == name:
                    ready = self._exchange(need, (), tag, (ready,))
            target = self.plan.rank_of[producer.name]
            if target != self.device:
                crossing = self.plan.crossing(TransferPhase.BACKWARD, operator)
                moves = self.plan.moves(need for need in crossing if need.tensor == name)
                ready = self._move(SEND, moves, self.feature, (ready,), (*tag, target))
            self.step.done["gradient", microbatch, operand.name, operator.name] = ready

    def _weights(self, operator: CutOperator, task: int) -> None:
        for need in self.plan.local(TransferPhase.GRADIENT, operator):
            for transfer in need.transfers:
                bucket = self.buckets.add(self.plan.sent_gradient(operator, transfer), task)
                if bucket is not None and self.overlaps:
                    self._reduce(bucket)
                elif bucket is not None:  # afterwards, with all others
                    self.full.append(bucket)

    def _reduce(self, bucket: Bucket) -> None:
        """Add the collective of a bucket, and the computation time that its launch takes."""
        after = bucket.members
        if not self.overlaps:
            after = tuple(self.computed[-1:])
        elif stands_s := blocked_s(self.plan.context, bucket.transfer):
            # Computation continues after the launch, and earlier gradients are complete.
            after = (self.graph.add(HOST, stands_s, self.compute, bucket.members),)
        tag = (bucket.transfer.kind, f"{len(bucket.members)} gradients")
        moves = (self.plan.bucket_move(bucket.transfer),)
        self.exchanges.append(self._move(REDUCE, moves, self.gradient, after, tag))

    def _send_away(self, operator: CutOperator, action: Action, task: int) -> None:
        """Copy the activations of an operator to the host after its forward pass."""
        size = self.plan.costs[operator.name].kept_bytes
        tag: Key = (action.microbatch, action.chunk, operator.name)
        kept = size and operator.name not in self.plan.recomputed and not self.plan.context.inference
        if kept and self.plan.keeps_on_host(operator.name, "activations"):
            devices = self.plan.places[operator.name]
            self.copies.send_away(tag, task, self.plan.copied_s(size), size, devices, tag)

    def _bring_back(self, operator: CutOperator, tag: Key) -> list[int]:
        """Copy the activations of an operator back, at most ``PREFETCH`` operators ahead."""
        if tag not in self.copies.away:
            return []
        size, gate = self.plan.costs[operator.name].kept_bytes, self.computed[-PREFETCH:][0]
        devices = self.plan.places[operator.name]
        copy = self.copies.bring_back(tag, gate, self.plan.copied_s(size), size, devices, tag)
        self.copies.forget(tag)
        return [copy]

    def _hold_forward(self, operator: CutOperator, action: Action, task: int) -> None:
        """Record the stored activations of an operator; if it is recomputed, until the end of its run."""
        size = self.plan.costs[operator.name].kept_bytes
        self._hold(operator, task, size)
        for recomputed in self.plan.dropped_behind(operator):
            self._hold(recomputed, task, -self.plan.costs[recomputed.name].kept_bytes, at_end=True)
