"""Input of the compilation of an operator graph's step: placement, costs and transfers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from forerun.simulator.costs.host import host_link_rate, states_on_host
from forerun.simulator.events.step.device_tasks import PREFETCH
from forerun.simulator.layouts import Need, Share, Transfer, TransferPhase
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.context import GRADIENT_BYTES, own_input_s, stored_input_s
from forerun.simulator.opgraph.events.meshes import Places
from forerun.simulator.opgraph.messages import rendezvous_s, straggler_wait_s
from forerun.simulator.opgraph.parts import PartCost, activation_s
from forerun.simulator.opgraph.transfers import sent_gradient, weight_transfer_s
from forerun.spaces.operators import CutOperator, OperatorGraph
from forerun.spaces.opgraph import Operator
from forerun.spaces.schedules import Pass, PipelineShape, Programs, limited, programs_of
from forerun.spaces.trees.resolve import ResolvedTree
from forerun.spaces.trees.values import KeyPath


class Move(NamedTuple):
    """A transfer with its bytes per element, and its duration when it is alone."""

    transfer: Transfer
    element_bytes: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """Placement, costs and communication of one step.

    ``operators``: operators of every virtual stage in order; ``rank_of``: pipeline rank of every operator; ``shares``:
    its cuts and devices; ``costs``: its part's cost on one microbatch; ``recomputed``: recomputed operators with the
    tree node that requires it (neighbours of one node are one run). ``elsewhere``: operators placed on other devices of
    their stage than the fullest, which represents all. ``needs``: all communication of a microbatch and of the weights.
    ``on_host``: tensors (of ``HOST_TENSORS``) of every operator in host memory. ``places``: see ``meshes``.
    """

    context: GraphContext
    tree: ResolvedTree
    graph: OperatorGraph
    operators: tuple[tuple[CutOperator, ...], ...]
    rank_of: Mapping[str, int]
    shares: Mapping[str, Share]
    costs: Mapping[str, PartCost]
    recomputed: Mapping[str, KeyPath]
    elsewhere: frozenset[str]
    needs: tuple[Need, ...]
    on_host: Mapping[str, frozenset[str]]
    places: Places

    @cached_property
    def place_count(self) -> int:
        """Number of simulated devices: one per pipeline rank, more where operators use some of its devices."""
        return max(max(places) for places in self.places.values()) + 1

    def places_of_rank(self, rank: int) -> tuple[int, ...]:
        """Return the places of a pipeline rank, its own first."""
        devices = {place for name, places in self.places.items() if self.rank_of[name] == rank for place in places}
        return (rank, *sorted(devices - {rank}))

    @property
    def gradient_bytes(self) -> float:
        """Bytes per gradient as it is sent."""
        return GRADIENT_BYTES

    def programs(self) -> Programs:
        """Return the passes of every pipeline rank in order.

        Raises:
            RequestError: the schedule has no order for this shape.
        """
        stages, devices = len(self.tree.stages), len(self.tree.groups)
        shape = PipelineShape(pp=devices, vpp=stages // devices, microbatches=self.tree.microbatches)
        if self.tree.in_flight:
            programs = limited(shape, self.tree.in_flight)
        else:
            programs = programs_of(int(self.tree.order), shape)
        if not self.context.inference:
            return programs
        return tuple(tuple(action for action in one if action.kind == Pass.FORWARD) for one in programs)

    @cached_property
    def _by_operator(self) -> Mapping[tuple[TransferPhase, str], tuple[tuple[Need, ...], tuple[Need, ...]]]:
        needs_of: dict[tuple[TransferPhase, str], tuple[list[Need], list[Need]]] = {}
        groups = [set(group) for group in self.tree.groups]
        for need in self.needs:
            needs_of_rank = groups[self.rank_of[need.operator]]
            members = {device for t in need.transfers for group in t.groups for device in group}
            needs_of.setdefault((need.phase, need.operator), ([], []))[0 if members <= needs_of_rank else 1].append(
                need
            )
        return {key: (tuple(local), tuple(crossing)) for key, (local, crossing) in needs_of.items()}

    def local(self, phase: TransferPhase, operator: CutOperator) -> tuple[Need, ...]:
        """Transfers of an operator among the devices of its stage."""
        return self._by_operator.get((phase, operator.name), ((), ()))[0]

    def crossing(self, phase: TransferPhase, operator: CutOperator) -> tuple[Need, ...]:
        """Transfers of an operator from or to the devices of another stage."""
        return self._by_operator.get((phase, operator.name), ((), ()))[1]

    def moves(self, needs: Iterable[Need]) -> tuple[Move, ...]:
        """Return the transfers of activations, in sequence."""
        return tuple(move for need in needs for move in self._activations(need))

    def _activations(self, need: Need) -> tuple[Move, ...]:
        if id(need) not in self._known:
            width = self.context.width if need.element_bytes is None else need.element_bytes
            self._known[id(need)] = tuple(
                Move(transfer, width, activation_s(self.context, transfer, width)) for transfer in need.transfers
            )
        return self._known[id(need)]

    @cached_property
    def _known(self) -> dict[int, tuple[Move, ...]]:
        return {}

    def weight_moves(self, need: Need) -> tuple[Move, ...]:
        """Return the gathers of weights, which are stored in fp32 and used in the training precision."""
        return tuple(self._weights(transfer, self.context.width) for transfer in need.transfers)

    def bucket_move(self, transfer: Transfer) -> Move:
        """Return one bucket of gradients."""
        return self._weights(transfer, self.gradient_bytes)

    def _weights(self, transfer: Transfer, element_bytes: float) -> Move:
        return Move(transfer, element_bytes, weight_transfer_s(self.context, transfer, element_bytes))

    def wired(self, moves: Mapping[int, Move]) -> dict[int, Move]:
        """Return the transfers (by task) that cross the cluster's links: all but halos copied through host memory."""
        staged = self.context.profile.staged_bytes_per_s is not None
        return {task: move for task, move in moves.items() if not (staged and move.transfer.kind == "halo")}

    def sent_gradient(self, operator: CutOperator, transfer: Transfer) -> Transfer:
        """Return the transfer of a gradient: of a copied table, only the looked-up rows."""
        batch = operator.axis("batch").size * self.tree.microbatches
        return sent_gradient(self.context, self._whole[operator.name], batch, transfer)

    @cached_property
    def _whole(self) -> Mapping[str, Operator]:
        """The operators of the model, by name."""
        return {operator.name: operator for operator in self.context.model.operators}

    def _sparse(self, operator: CutOperator) -> bool:
        return self.context.sparse(self._whole[operator.name])

    def sends_gradients(self, operator: CutOperator, *, last: bool) -> bool:
        """Check whether a backward pass of an operator (``last``: the last of a step) sends weight gradients."""
        return bool(operator.weights) and (last or self.shares[operator.name].zero >= 2)

    def sent_gradients(self, stage: int, *, last: bool) -> list[Transfer]:
        """Return the gradients sent by a backward pass of a virtual stage, in order."""
        return [
            self.sent_gradient(operator, transfer)
            for operator in reversed(self.operators[stage])
            if self.sends_gradients(operator, last=last)
            for need in self.local(TransferPhase.GRADIENT, operator)
            for transfer in need.transfers
        ]

    def waiting_s(self, device: int, busy_s: float, *, exchanged: bool) -> float:
        """Seconds that devices of a stage wait for the slowest device, and for the rendezvous of replicas on several
        nodes.

        ``busy_s``: duration of the passes; ``exchanged``: whether replicas exchange.
        """
        profile, group = self.context.profile, self.tree.groups[device]
        nodes = len({number // self.context.cluster.devices_per_node for number in group})
        waiting = straggler_wait_s(profile, busy_s, self.tree.device_count)
        return float(waiting + (rendezvous_s(profile, nodes) if exchanged else 0.0))

    def loading_s(self) -> float:
        """Seconds to load the samples of a step onto the devices that read them first, a lower bound of the step."""
        first = self.graph.operators[0]
        batch, devices = first.axis("batch").size * self.tree.microbatches, self.tree.device_count
        cut = {cut.axis: cut.degree for cut in self.shares[first.name].cuts}
        parts = math.prod(cut.get(axis, 1) for axis in ("batch", "depth", "height", "width"))
        nodes = -(-devices // self.context.cluster.devices_per_node)
        return float(max(own_input_s(self.context, batch / parts), stored_input_s(self.context, batch / nodes)))

    def cloned_before(self, operator: CutOperator) -> Sequence[CutOperator]:
        """Return the operators to recompute before the backward pass of the last one of their run."""
        run = self._runs.get(operator.name, ())
        return run[:-1] if run and run[-1].name == operator.name else ()

    def dropped_behind(self, operator: CutOperator) -> Sequence[CutOperator]:
        """Return the operators whose outputs are freed after the forward pass of the last one of their run."""
        return self.cloned_before(operator)

    @cached_property
    def _runs(self) -> Mapping[str, tuple[CutOperator, ...]]:
        """Run of neighbouring recomputed operators, by operator."""
        runs: dict[str, tuple[CutOperator, ...]] = {}
        for operators in self.operators:
            for place, run in groupby(operators, lambda operator: self.recomputed.get(operator.name)):
                same = tuple(run)
                if place is not None:
                    runs |= {operator.name: same for operator in same}
        return runs

    def keeps_on_host(self, operator: str, tensor: str) -> bool:
        """Check whether a kind of tensors of an operator is in host memory."""
        return tensor in self.on_host.get(operator, ())

    def copied_s(self, size: float) -> float:
        """Seconds of a copy of ``size`` bytes between a device and its host.

        Raises:
            RequestError: the cluster has no rate for its host links.
        """
        return size / host_link_rate(self.context.cluster)

    def fetched_bytes(self, operator: CutOperator) -> float:
        """Bytes of an operator's parameters copied from the host for one pass."""
        if not (operator.weights and self.keeps_on_host(operator.name, "parameters")):
            return 0.0
        return self._own_elements(operator, 3) * self.context.width

    def held_elements(self, device: int, from_stage: int, tensor: str = "", *, away: bool = False) -> float:
        """Parameters on one device, sharded from ZeRO stage ``from_stage`` on.

        ``away``: count parameters whose ``tensor`` kind is on the host, otherwise the others. Rows of sparse tables
        are updated in the backward pass: they have no gradients (2) or states (1).
        """
        total = 0.0
        for operator in self.graph.operators:
            if device not in self.places[operator.name]:
                continue
            if operator.name in self.elsewhere or (self._sparse(operator) and from_stage < 3):
                continue
            if tensor and self.keeps_on_host(operator.name, tensor) != away:
                continue
            total += self._own_elements(operator, from_stage)
        return total

    def _own_elements(self, operator: CutOperator, from_stage: int) -> float:
        share, total = self.shares[operator.name], 0.0
        cuts = {cut.axis: cut.degree for cut in share.cuts if cut.axis is not None}
        for weight in operator.weights:
            parts = math.prod(degree for axis, degree in cuts.items() if axis in weight.axes)
            replicas = math.prod(degree for axis, degree in cuts.items() if axis not in weight.axes)
            total += operator.elements(weight) / parts / (replicas if share.zero >= from_stage else 1)
        return total

    def fixed_bytes(self, device: int) -> float:
        """Bytes of parameters, gradients, optimizer states and buckets of one place's device."""
        parameters = self.held_elements(device, 3, "parameters") + self._fetched_at_once(device)
        if self.context.inference:
            return self.context.parameter_bytes * parameters
        gradients, others = self.held_elements(device, 2), self.held_elements(device, 1, "optimizer")
        gradients += self._exchanged_rows(device)
        several = any(len(self.shares[name].devices) > 1 for name, devices in self.places.items() if device in devices)
        buckets = min(2 * self.context.profile.bucket_bytes, gradients * GRADIENT_BYTES) if several else 0.0
        return (
            4.0 * (parameters + gradients) + others * self.context.state_bytes + buckets + self._update_away(device)[0]
        )

    def _fetched_at_once(self, device: int) -> float:
        """Elements of the host's parameters on the device while their operators run: at most ``PREFETCH`` operators."""
        local = (one for one in self.graph.operators if device in self.places[one.name])
        return math.fsum(sorted(self.fetched_bytes(one) for one in local)[-PREFETCH:]) / self.context.width

    def _update_away(self, device: int) -> tuple[float, float]:
        """Bytes of states beyond the host's memory, and seconds of the update of the other states on the host."""
        states = self.held_elements(device, 1, "optimizer", away=True) * (4.0 + self.context.state_bytes)
        if not states or self.context.inference:
            return 0.0, 0.0
        stay, update_s = states_on_host(self.context.cluster, np.array(states))
        return float(stay), float(update_s)

    def _exchanged_rows(self, device: int) -> float:
        """Elements of table gradients that replicas exchange, kept until the exchange ends."""
        tables = [one for one in self.graph.operators if self._sparse(one)]
        return math.fsum(
            max(self.sent_gradient(table, transfer).elements)
            for table in tables
            if device in self.places[table.name]
            for need in self.local(TransferPhase.GRADIENT, table)
            for transfer in need.transfers
        )

    def optimizer_s(self, device: int) -> float:
        """Seconds of the update of the parameters whose states one device, or its host, stores."""
        on_device = float(self.context.update_s(self.held_elements(device, 1, "optimizer")))
        stay, update_s = self._update_away(device)
        return on_device + update_s + float(self.context.update_s(stay / (4.0 + self.context.state_bytes)))

    def update_moves(self, device: int) -> tuple[Move, ...]:
        """Return the gathers of weights after a sharded update: one transfer per group."""
        sizes: dict[tuple[str, tuple[tuple[int, ...], ...]], float] = {}
        for need in self.needs:
            if need.phase == TransferPhase.UPDATE and self.rank_of[need.operator] == device:
                for transfer in need.transfers:
                    key = (transfer.kind, transfer.groups)
                    sizes[key] = sizes.get(key, 0.0) + max(transfer.elements)
        return tuple(
            self._weights(Transfer(kind=kind, groups=groups, elements=(size,) * len(groups)), self.context.width)
            for (kind, groups), size in sizes.items()
        )
