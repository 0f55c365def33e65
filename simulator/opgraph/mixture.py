"""Step time and memory of a mixture: every operator with its own cut, communication inferred from the layouts.

Costs are those of the closed forms (``compute``, ``messages``, ``input``, the collective rules); halos and collectives
between neighbours are from ``simulator.layouts``. Staging of halos through the host and shares of rates inside a
replica are left out: mixtures assume software that exchanges directly.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from forerun.simulator.layouts import Need, Share, Transfer, TransferPhase, needs_of, transfer_time_s
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext, own_input_s, stored_input_s
from forerun.simulator.opgraph.footprint import beyond_kept, footprint
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.memory import RESERVE_BYTES, bucket_bytes
from forerun.simulator.opgraph.messages import Filling, Messages, exposed_s, rendezvous_s, straggler_wait_s
from forerun.simulator.opgraph.parts import part_costs
from forerun.simulator.opgraph.score import PHASES, SplitScores, split_scores
from forerun.simulator.opgraph.split_cuts import degrees_by_axis
from forerun.simulator.opgraph.transfers import blocked_s, sent_gradient, weight_transfer_s
from forerun.spaces.operators import Cut, OperatorGraph
from forerun.spaces.opgraph.axes import operator_graph
from forerun.spaces.opgraph.mixture import Mixture, check_mixture, cuts_of


def score_mixture(context: GraphContext, mixture: Mixture, batch: int) -> SplitScores:
    """Return the scores of one step of ``batch`` samples, one row.

    Raises:
        RequestError: the replicas do not divide the batch, or an operator has no iteration space.
    """
    check_mixture(batch, mixture)
    graph = operator_graph(context.model, batch)
    cuts = {operator.name: cuts_of(operator, mixture.of(operator.name)) for operator in graph.operators}
    needs = mixture_needs(context, graph, cuts, mixture.devices)
    degrees = {name: degrees_by_axis(operator_cuts) for name, operator_cuts in cuts.items()}
    costs = part_costs(context, graph, cuts)
    local = [costs[operator.name] for operator in graph.operators]
    forward_L = np.array([cost.forward_s for cost in local])
    backward_L = np.array([cost.input_s + cost.weight_s for cost in local])
    device, host = float((forward_L + backward_L).sum()), float(context.issued_s())
    paced_NL = context.paced(forward_L[None], backward_L[None], np.array([host]))
    forward_L, backward_L = (one[0] for one in paced_NL)
    phases = dict.fromkeys(PHASES, 0.0)
    phases["forward"], phases["backward"] = float(forward_L.sum()), float(backward_L.sum())
    busy = phases["forward"] + phases["backward"]
    _communication(context, needs, phases)
    exchange_s = _gradients(context, graph, needs, backward_L, batch, phases)
    phases["straggler wait"] = float(straggler_wait_s(context.profile, busy, mixture.devices))
    parameters, tables = _parameters(context, graph, degrees)
    kept, beyond = _activations(context, graph, degrees, batch)
    gradients = (parameters + _exchanged_rows(context, needs, batch)) * GRADIENT_BYTES * (context.directions - 1.0)
    phases["update"] = float(context.update_s(parameters))
    phases["input"] = max(_loading_s(context, degrees, batch, mixture.devices) - math.fsum(phases.values()), 0.0)
    memory = {
        "parameters": (parameters + tables) * context.parameter_bytes,
        "gradients": gradients,
        "optimizer": parameters * context.state_bytes,
        "activations": kept * context.width,
        "working": beyond * context.width,
        "buffers": float(bucket_bytes(context, np.array(gradients), np.array(float(mixture.devices)))),
        "reserve": RESERVE_BYTES,
    }
    time_s, memory_bytes = ({name: np.array([value]) for name, value in one.items()} for one in (phases, memory))
    rest = {"repeated_s": np.zeros(1), "device_s": np.array([device]), "host_s": np.array([host])}
    return split_scores(context, time_s, memory_bytes, np.array([exchange_s]), **rest)


def mixture_needs(
    context: GraphContext, graph: OperatorGraph, cuts: Mapping[str, tuple[Cut, ...]], devices: int
) -> tuple[Need, ...]:
    """Return the communication between operators, and of gradients, with the ``cuts`` of a mixture."""
    shares = {
        # Degrees multiply to the number of devices, also where an operator is not cut.
        name: Share(cuts=operator_cuts or (Cut(axis=None, degree=devices),), devices=tuple(range(devices)))
        for name, operator_cuts in cuts.items()
    }
    needs = needs_of(graph, shares, input_gradients=False)
    return tuple(need for need in needs if not context.inference or need.phase is TransferPhase.FORWARD)


def _communication(context: GraphContext, needs: tuple[Need, ...], phases: dict[str, float]) -> None:
    """Add communication of activations to ``phases``."""
    prices: dict[tuple[object, ...], float] = {}
    for need in needs:
        if need.phase is TransferPhase.GRADIENT:
            continue
        width = need.element_bytes or context.width
        for transfer in need.transfers:
            key = (transfer.kind, transfer.groups, transfer.elements, width)
            if key not in prices:
                prices[key] = transfer_time_s(context.cluster, transfer, width)
            phases["halo" if len(transfer.groups[0]) == 2 and transfer.kind not in _WHOLE else "collective"] += prices[
                key
            ]


def _gradients(
    context: GraphContext,
    graph: OperatorGraph,
    needs: tuple[Need, ...],
    backward_L: Floats,
    batch: int,
    phases: dict[str, float],
) -> float:
    """Add the exposed exchange of gradients to ``phases``; return the seconds of the entire exchange."""
    profile, cluster = context.profile, context.cluster
    place = {operator.name: number for number, operator in enumerate(graph.operators)}
    known = {operator.name: operator for operator in context.model.operators}
    after_L = np.cumsum(backward_L[::-1])[::-1]
    queues: dict[tuple[str, tuple[tuple[int, ...], ...]], list[tuple[float, tuple[float, ...]]]] = {}
    for need in sorted(
        (one for one in needs if one.phase is TransferPhase.GRADIENT), key=lambda one: -place[one.operator]
    ):
        for transfer in need.transfers:
            elements = sent_gradient(context, known[need.operator], batch, transfer).elements
            sent = (float(after_L[place[need.operator]]), elements)
            queues.setdefault((transfer.kind, transfer.groups), []).append(sent)
    buckets: list[tuple[float, float, float]] = []
    nodes = 1
    # Gradients of layers with the same exchanging devices share buckets.
    for (kind, groups), queue in queues.items():
        for bucket in Filling.of(profile).buckets([max(sizes) * GRADIENT_BYTES for _, sizes in queue]):
            sizes = tuple(map(math.fsum, zip(*(queue[number][1] for number in bucket), strict=True)))
            joined = Transfer(kind=kind, groups=groups, elements=sizes)
            seconds = weight_transfer_s(context, joined, GRADIENT_BYTES)
            buckets.append((queue[bucket[-1]][0], seconds, blocked_s(context, joined)))
        nodes = max(nodes, *(len({device // cluster.devices_per_node for device in group}) for group in groups))
    if not buckets:
        return 0.0
    ready, wire, blocked = np.array(sorted(buckets)).T[:, None]
    messages = Messages(bytes_NB=np.ones_like(wire), ready_NB=ready)
    exchange_s, rendezvous = float(wire.sum()), float(rendezvous_s(profile, nodes))
    under = float(exposed_s(messages, wire, blocked.mean(axis=1), after_L[:1], cluster.overlap)[0])
    phases["gradient"] = profile.overlap * under + (1.0 - profile.overlap) * exchange_s + rendezvous
    return exchange_s + rendezvous


def _loading_s(context: GraphContext, degrees: dict[str, dict[str, int]], batch: int, devices: int) -> float:
    """Seconds to load the samples of a step onto the devices that read them first."""
    first = next(iter(degrees.values()))
    parts = first["batch"] * math.prod(first[name] for name in ("depth", "height", "width"))
    nodes = float(context.nodes(np.array(float(devices))))
    return max(float(own_input_s(context, batch / parts)), float(stored_input_s(context, batch / nodes)))


_WHOLE = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "scatter", "gather")


def _parameters(context: GraphContext, graph: OperatorGraph, degrees: dict[str, dict[str, int]]) -> tuple[float, float]:
    """Count the parameters of one device, without sparse tables and of these."""
    known = {operator.name: operator for operator in context.model.operators}
    dense, tables = 0.0, 0.0
    for operator in graph.operators:
        local = degrees[operator.name]
        if context.sparse(known[operator.name]):
            tables += known[operator.name].parameters
        else:
            dense += known[operator.name].parameters / (local["channels"] * local["in_channels"])
    return dense, tables


def _activations(
    context: GraphContext, graph: OperatorGraph, degrees: dict[str, dict[str, int]], batch: int
) -> tuple[float, float]:
    """Count the elements that one device keeps for the backward pass, and the excess of its peak over them."""
    if context.inference:
        return batch * math.prod(context.model.input) / _batch_degree(degrees), 2.0 * _largest(graph, degrees)
    made = footprint(context.model, degrees)
    return batch * float(made.kept_L.sum()), batch * beyond_kept(made.kept_L, made.working_L)


def _exchanged_rows(context: GraphContext, needs: Sequence[Need], batch: int) -> float:
    """Elements of table gradients that replicas exchange, kept until the exchange ends."""
    exchanged = {need.operator for need in needs if need.phase is TransferPhase.GRADIENT}
    tables = (table for table in context.model.tables if table.name in exchanged and context.sparse(table))
    return math.fsum(float(context.sent_elements(table, batch)) for table in tables)


def _batch_degree(degrees: dict[str, dict[str, int]]) -> int:
    return next(iter(degrees.values()))["batch"]


def _largest(graph: OperatorGraph, degrees: dict[str, dict[str, int]]) -> float:
    return max(
        operator.elements(operator.output) / math.prod(degrees[operator.name].values()) for operator in graph.operators
    )
