"""The step of a transformer whose replicas exchange gradients, from the cost rules (one stage, any tp, cp, ep)."""

import numpy as np

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.assignment.replicas import parameter_counts
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.improve.step import Op, RankStep
from forerun.simulator.improve.wires import RuleWire
from forerun.simulator.layer.kinds import kind_of_entry
from forerun.simulator.layer.times import block_times
from forerun.simulator.replicas.buffers import reduced_bytes
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Placement, Strategy

PARTS = 4
"""Gradient tensors per layer in this model: two of attention, two of its MLP, of equal size and time. Frameworks have a
few more; small ones (norms, biases) are in their neighbours' buckets."""


def strategy_step(context: Context, strategy: Strategy) -> RankStep:
    """Return the last pass of a step, whose backward pass hides the exchange of gradients.

    Raises:
        RequestError: the strategy has several stages, shards gradients or parameters, or has no replicas.
    """
    if strategy.pp > 1 or strategy.zero >= 2:
        raise RequestError(
            f"buckets are searched for strategies of one stage with whole gradients, but got pp{strategy.pp} "
            f"zero{strategy.zero}; use pp1 and zero0 or zero1, or `forerun explain` for the others"
        )
    if strategy.shard:
        raise RequestError(
            f"buckets are searched for gradients that all replicas add up at once, but shard={strategy.shard} shares "
            "them out twice; use shard=all"
        )
    replicas = strategy.dp * strategy.cp
    if replicas < 2:
        raise RequestError(f"gradients are exchanged between replicas, but dp x cp is {replicas}; use dp2 or more")
    times = block_times(context, shard_with(context, strategy))
    bytes_of = parameter_counts(context, strategy, np.eye(len(times.forward_s))) * reduced_bytes(context)
    kinds = kind_of_entry(context.model)
    ops = [_op("embedding", times.forward_s[-2, 0], times.backward_s[-2, 0], bytes_of[-2])]
    number = 0
    for entry, layer in enumerate(context.model.layers):
        kind = int(kinds[entry])
        for _ in range(layer.count):
            share = [float(values[kind, 0]) / PARTS for values in (times.forward_s, times.backward_s)]
            ops += [
                _op(f"layer{number}.part{part}", share[0], share[1], bytes_of[kind] / PARTS) for part in range(PARTS)
            ]
            number += 1
    ops.append(_op("head", times.forward_s[-1, 0], times.backward_s[-1, 0], bytes_of[-1]))
    costs = step_costs(assign(context, strategy))
    # Passes of other microbatches precede it, and the host's gaps are spread over all passes.
    chunk, count = costs.chunks[0], costs.shape.microbatches
    device_s = sum(op.forward_s + op.backward_s for op in ops)
    pass_s = chunk.forward_s + chunk.backward_s
    strided = strategy.placement == Placement.TP_CP_EP_PP_DP
    return RankStep(
        name=f"{context.model.name} {strategy}",
        ops=tuple(_stretched(op, pass_s / device_s if device_s else 1.0) for op in ops),
        wire=RuleWire(cluster=context.cluster, ranks=replicas, stride=strategy.tp * (strategy.pp if strided else 1)),
        update_s=costs.stages[0].optimizer_s,
        host_s=costs.host_step_s + count * costs.host_microbatch_s + (count - 1) * pass_s,
        slowdown=costs.overlap_slowdown,
    )


def _op(name: str, forward_s: float, backward_s: float, size: float) -> Op:
    return Op(name=name, forward_s=float(forward_s), backward_s=float(backward_s), gradient_bytes=float(size))


def _stretched(op: Op, factor: float) -> Op:
    return Op(
        name=op.name,
        forward_s=op.forward_s * factor,
        backward_s=op.backward_s * factor,
        gradient_bytes=op.gradient_bytes,
    )
