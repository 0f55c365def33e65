"""The collectives inside a layer, or a module of one: what the cuts of its operators make necessary, as plain data.

They are inferred from the operators' iteration spaces (``spaces/operators/transformer.py``). Seconds are not: those of
transformers come from the core's rules, which know what computation hides.
"""

from collections.abc import Sequence

from forerun.simulator.layouts import Phase, Share, needs_of
from forerun.simulator.replicas import reduced_bytes
from forerun.simulator.shard import activation_bytes
from forerun.spaces.errors import RequestError
from forerun.spaces.models import Layer
from forerun.spaces.operators import ATTENTION_OPERATORS, Degrees, layer_cuts, transformer_layer
from forerun.spaces.strategies import Context, Strategy

MOST_DEVICES = 512
"""Devices of a stage up to which collectives are listed: inference looks at each of them."""


def collectives_inside(
    context: Context, layer: Layer, module: str, strategy: Strategy, devices: Sequence[int]
) -> list[dict[str, object]] | None:
    """Return the collectives of one microbatch on one ``layer`` (its ``module``, "" for all of it) under a strategy,
    and those of its gradients and weights, by phase and kind; None where its operators are not known one by one.

    ``bytes``: of the tensor, as ``Transfer.elements`` counts it, of all collectives of a line on one device.
    """
    degrees = Degrees(dp=strategy.dp, tp=strategy.tp, cp=strategy.cp, ep=strategy.ep, sp=strategy.sp)
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
    except RequestError:  # latent or cross attention, or tokens that do not spread evenly over experts
        return None
    width = activation_bytes(context.workload.precision)
    found: dict[tuple[str, str, int], dict[str, object]] = {}
    for need in needs:
        if module and (need.operator in ATTENTION_OPERATORS) != (module == "attention"):
            continue
        each = reduced_bytes(context) if need.phase is Phase.GRADIENT else need.element_bytes or width
        for transfer in need.transfers:
            key = (need.phase.value, transfer.kind, len(transfer.groups[0]))
            line = found.setdefault(key, {"phase": key[0], "kind": key[1], "members": key[2], "count": 0, "bytes": 0.0})
            line["count"] = int(str(line["count"])) + 1
            line["bytes"] = float(str(line["bytes"])) + max(transfer.elements) * each
    return list(found.values())
