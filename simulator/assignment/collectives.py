"""Collectives inside a layer, or a module of a layer, that the cuts of its operators require, as plain data.

Collectives are inferred from the operators' iteration spaces (``spaces/operators/transformer.py``). Seconds of
collectives come from the core's rules for transformers, which include overlap with computation.
"""

from collections.abc import Sequence

from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.layouts import Share, TransferPhase, needs_of
from forerun.simulator.replicas.buffers import reduced_bytes
from forerun.spaces.errors import RequestError
from forerun.spaces.models import Layer
from forerun.spaces.operators import ATTENTION_OPERATORS, LayerDegrees, layer_cuts, transformer_layer
from forerun.spaces.strategies import Context, Strategy

MOST_DEVICES = 512
"""Devices of a stage up to which collectives are listed: inference examines each of them."""

_KEY = ("phase", "kind", "members")
_OF_SLICES, _SLICING = (
    (TransferPhase.GRADIENT, TransferPhase.FETCH, TransferPhase.UPDATE),
    ("reduce_scatter", "all_gather"),
)
"""Names of traffic of sharded weights, with the collectives of sharing groups and of copies. Where only a part of the
replicas shares one set of slices, collectives of all replicas become collectives of this part, and slices of gradients
are all-reduced over their copies."""


def collectives_inside(
    context: Context, layer: Layer, module: str, strategy: Strategy, devices: Sequence[int]
) -> list[dict[str, object]] | None:
    """Return one layer's collectives under a strategy by phase and kind, or None where its operators are not modelled.

    Collectives of one microbatch, of gradients and of weights are included; ``module``: limit to this module, "" for
    the entire layer.

    ``bytes``: size of the tensor (see ``Transfer.elements``) summed over all collectives of an entry on one device.
    """
    degrees = LayerDegrees(dp=strategy.dp, tp=strategy.tp, cp=strategy.cp, ep=strategy.ep, sp=strategy.sp)
    if strategy.etp > 1 or len(devices) > MOST_DEVICES:
        return None
    sequences = strategy.mbs * strategy.dp
    try:
        graph = transformer_layer(layer, context.model.hidden, sequences=sequences, seq_len=context.workload.seq_len)
        shares = {
            one.name: Share(cuts=layer_cuts(one, degrees), devices=tuple(devices), zero=strategy.zero)
            for one in graph.operators
        }
        needs = needs_of(graph, shares)
    except RequestError:  # latent or cross attention, or tokens not divisible by the experts
        return None
    width, parts = activation_bytes(context.workload.precision), strategy.copies
    found: dict[tuple[str, str, int], dict[str, object]] = {}
    for need in needs:
        if module and (need.operator in ATTENTION_OPERATORS) != (module == "attention"):
            continue
        each = reduced_bytes(context) if need.phase is TransferPhase.GRADIENT else need.element_bytes or width
        for transfer in need.transfers:
            size, kind, members = max(transfer.elements) * each, transfer.kind, len(transfer.groups[0])
            steps = [(kind, members, size)]
            if parts > 1 and need.phase in _OF_SLICES and kind in _SLICING:
                steps = [(kind, members // parts, size)]
                if kind == "reduce_scatter":
                    steps.append(("all_reduce", parts, size * parts / members))
            for step, among, bytes_of in steps:
                key = (need.phase.value, step, among)
                line = found.setdefault(key, {**dict(zip(_KEY, key, strict=True)), "count": 0, "bytes": 0.0})
                line["count"] = int(str(line["count"])) + 1
                line["bytes"] = float(str(line["bytes"])) + bytes_of
    return list(found.values())
