"""Step time and memory of a mixture: every operator cut in its own way, communication inferred from the layouts.

Costs are those of the closed forms (``compute``, the collective rules); halos and collectives are what
``simulator.layouts`` finds between neighbours. Behaviour of a framework that the closed forms add between devices
(staging, shares of rates, waiting) is left out: mixtures are for software that exchanges directly.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from forerun.simulator.layered.compute import Local
from forerun.simulator.layered.context import GRADIENT_BYTES, LayeredContext
from forerun.simulator.layered.layers import AXES
from forerun.simulator.layered.memory import RESERVE_BYTES, kept_elements
from forerun.simulator.layouts import Need, Phase, Share, Transfer, needs_of, transfer_time_s
from forerun.spaces.layered import Kind
from forerun.spaces.layered.axes import operator_graph
from forerun.spaces.layered.mixture import Mixture, check_mixture, cuts_of
from forerun.spaces.operators import Cut, OperatorGraph
from forerun.spaces.operators.convolution import spatial_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureScore:
    """``phases``: seconds by the names of the closed forms, which add up to ``step_s``. ``cuts``: what every operator
    was really cut in. ``needs``: the communication between operators and of gradients."""

    phases: dict[str, float]
    hidden_s: float
    device_s: float
    host_s: float
    memory_bytes: dict[str, float]
    cuts: dict[str, tuple[Cut, ...]]
    needs: tuple[Need, ...]

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return math.fsum(self.phases.values())

    @property
    def peak_bytes(self) -> float:
        """Bytes on one device."""
        return math.fsum(self.memory_bytes.values())


def score_mixture(context: LayeredContext, mixture: Mixture, batch: int) -> MixtureScore:
    """Return what one step of ``batch`` samples costs.

    Raises:
        RequestError: the replicas do not divide the batch, or an operator has no iteration space.
    """
    check_mixture(batch, mixture)
    graph = operator_graph(context.model, batch)
    cuts = {operator.name: cuts_of(operator, mixture.of(operator.name)) for operator in graph.operators}
    devices = tuple(range(mixture.devices))
    padded = {name: _filled(found, mixture.devices) for name, found in cuts.items()}
    shares = {name: Share(cuts=found, devices=devices) for name, found in padded.items()}
    needs = needs_of(graph, shares, input_gradients=False)
    degrees = {name: _degrees(found) for name, found in cuts.items()}
    forward, backward = _device_s(context, graph, degrees, batch)
    host = 2.0 * len(graph.operators) * context.profile.operator_host_s
    slower = max(forward + backward, host) / (forward + backward)
    phases = dict.fromkeys(
        ("forward", "backward", "halo", "collective", "tail", "hop", "bubble", "gradient", "update", "input"), 0.0
    )
    phases["forward"], phases["backward"] = forward * slower, backward * slower
    hidden = _communication(context, needs, phases)
    held, kept = _memory(context, graph, degrees, batch)
    phases["update"] = float(context.update_s(held))
    return MixtureScore(
        phases=phases,
        hidden_s=hidden,
        device_s=forward + backward,
        host_s=host,
        memory_bytes={
            "parameters": held * 4.0,
            "gradients": held * 4.0,
            "optimizer": held * 4.0 * max(context.profile.state_elements - 1.0, 0.0),
            "activations": kept * context.width,
            "working": 2.0 * _largest(graph, degrees) * context.width,
            "buffers": min(2 * context.profile.bucket_bytes, held * GRADIENT_BYTES) if len(devices) > 1 else 0.0,
            "reserve": RESERVE_BYTES,
        },
        cuts=cuts,
        needs=needs,
    )


def _filled(cuts: tuple[Cut, ...], devices: int) -> tuple[Cut, ...]:
    """Cuts whose degrees multiply to the number of devices, which they do; none at all on one device."""
    return cuts or (Cut(axis=None, degree=devices),)


def _degrees(cuts: tuple[Cut, ...]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(lambda: 1)
    for cut in cuts:
        if cut.axis is not None:
            found[cut.axis] *= cut.degree
    return found


def _device_s(
    context: LayeredContext, graph: OperatorGraph, degrees: dict[str, dict[str, int]], batch: int
) -> tuple[float, float]:
    """Device seconds forward and backward, every operator with its own local shape."""
    layers = context.layers
    known = {operator.name: place for place, operator in enumerate(context.model.operators)}
    places = [known[operator.name] for operator in graph.operators]
    cases = []
    for operator in graph.operators:
        own = degrees[operator.name]
        count = len(context.model.operators[known[operator.name]].spatial)
        names = spatial_axes(count) if 1 <= count <= AXES else ()
        grid = [own[name] for name in names] + [1] * (AXES - len(names))
        cases.append((batch / own["batch"], *grid, own["channels"], own["in_channels"]))
    table = np.array(cases, dtype=np.float64)
    times = context.times(
        Local(batch_K=table[:, 0], grid_KA=table[:, 1:4], filters_K=table[:, 4], channels_K=table[:, 5])
    )
    kinds, rows = layers.kind_of_L[places], np.arange(len(places))
    return float(times.forward_KU[rows, kinds].sum()), float(times.backward_KU[rows, kinds].sum())


def _communication(context: LayeredContext, needs: tuple[Need, ...], phases: dict[str, float]) -> float:
    """Add communication to ``phases``; returns the exchange that the backward pass hides."""
    prices: dict[tuple[object, ...], float] = {}
    gradients: dict[tuple[str, tuple[tuple[int, ...], ...]], list[float]] = {}
    for need in needs:
        if need.phase is Phase.GRADIENT:
            for transfer in need.transfers:
                sums = gradients.setdefault((transfer.kind, transfer.groups), [0.0] * len(transfer.elements))
                for place, size in enumerate(transfer.elements):
                    sums[place] += size
            continue
        width = need.element_bytes or context.width
        for transfer in need.transfers:
            key = (transfer.kind, transfer.groups, transfer.elements, width)
            if key not in prices:
                prices[key] = transfer_time_s(context.cluster, transfer, width)
            phases["halo" if len(transfer.groups[0]) == 2 and transfer.kind not in _WHOLE else "collective"] += prices[
                key
            ]
    whole, shown = 0.0, 0.0
    # Gradients of layers that are exchanged among the same devices share buckets.
    for (kind, groups), sizes in gradients.items():
        buckets = max(round(max(sizes) * GRADIENT_BYTES / context.profile.bucket_bytes), 1)
        one = Transfer(kind=kind, groups=groups, elements=tuple(size / buckets for size in sizes))
        seconds = transfer_time_s(context.cluster, one, GRADIENT_BYTES)
        whole += buckets * seconds
        shown += seconds
    hidden = min(whole - shown, context.profile.overlap * phases["backward"])
    phases["gradient"] = whole - hidden
    return hidden


_WHOLE = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "scatter", "gather")


def _memory(
    context: LayeredContext, graph: OperatorGraph, degrees: dict[str, dict[str, int]], batch: int
) -> tuple[float, float]:
    """Parameters on one device, and elements that it keeps for the backward pass."""
    kept = dict(zip((o.name for o in context.model.operators), kept_elements(context), strict=True))
    known = {operator.name: operator for operator in context.model.operators}
    held, elements = 0.0, batch * math.prod(context.model.input) / _batch_degree(degrees)
    for operator in graph.operators:
        own = degrees[operator.name]
        parts = own["channels"] * own["in_channels"]
        held += known[operator.name].parameters / (1 if known[operator.name].kind is Kind.EMBEDDING else parts)
        space = math.prod(own[name] for name in ("depth", "height", "width"))
        elements += batch / own["batch"] * float(kept[operator.name]) / space
    return held, elements


def _batch_degree(degrees: dict[str, dict[str, int]]) -> int:
    return next(iter(degrees.values()))["batch"]


def _largest(graph: OperatorGraph, degrees: dict[str, dict[str, int]]) -> float:
    return max(
        operator.elements(operator.output) / math.prod(degrees[operator.name].values()) for operator in graph.operators
    )
