"""Steps whose replicas exchange gradients, from the cost rules.

The step is that of a transformer (one stage, any tp, cp, ep) or of an operator graph.
"""

import numpy as np

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.assignment.replicas import parameter_counts
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.costs import memory_bound_time_s
from forerun.simulator.improve.step import Op, RankStep
from forerun.simulator.improve.wires import RuleWire
from forerun.simulator.layer.kinds import kind_of_entry
from forerun.simulator.layer.times import block_times
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext, own_input_s, stored_input_s
from forerun.simulator.opgraph.messages import reduce_s, rendezvous_s, straggler_wait_s
from forerun.simulator.replicas.buffers import reduced_bytes
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import Kind, Operator
from forerun.spaces.strategies import Context, Placement, Strategy

PARTS = 4
"""Gradient tensors per layer in this model: two of attention, two of its MLP, of equal size and time. Frameworks have a
few more; small ones (norms, biases) are in their neighbours' buckets."""


def strategy_step(context: Context, strategy: Strategy) -> RankStep:
    """Return the last pass of a step, whose backward pass hides the exchange of gradients.

    Raises
    ------
    RequestError
        The strategy has several stages, shards gradients or parameters, or has no replicas.
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


POINTWISE = frozenset({Kind.ACTIVATION, Kind.DROPOUT, Kind.ADD, Kind.MULTIPLY})
"""Operators that another kernel can compute on its output: they are element-wise."""
_HOSTS = frozenset(
    {Kind.CONV, Kind.CONV_TRANSPOSE, Kind.LINEAR, Kind.BATCH_NORM, Kind.LAYER_NORM, Kind.POOL, *POINTWISE}
)
"""Operators whose kernels can compute them."""


def graph_step(context: GraphContext, *, ranks: int, batch: float) -> RankStep:
    """Return the step with ``batch`` samples per device on ``ranks`` devices that exchange gradients in fp32.

    Passes, messages, waits and loading are those of all other verbs (``GraphContext.passes``, ``opgraph.messages``,
    ``opgraph.context``).

    A fused pointwise operator saves its kernel and, in the forward pass, writing and reading the tensor between the two
    operators; in the backward pass the gradient between them. The estimate is by the memory rule; other inputs of the
    operator are still read.

    Raises
    ------
    RequestError
        A cost rule does not know an operator, link or precision.
    """
    model = context.model
    forward, backward = context.passes(batch)
    profile, cluster = context.profile, context.cluster
    between = np.array([operator.input_elements for operator in model.operators], dtype=np.float64)
    first_input = between - np.array(
        [sum(float(np.prod(shape)) for shape in operator.extra_inputs) for operator in model.operators]
    )
    moved_s = memory_bound_time_s(context.cluster.device, 2 * first_input * batch * context.width)
    ops = []
    for number, operator in enumerate(model.operators):
        joins = number > 0 and _joins(model.operators[number - 1], operator)
        ops.append(
            Op(
                name=operator.name,
                forward_s=float(forward[number]),
                backward_s=float(backward[number]),
                gradient_bytes=float(context.sent_elements(operator, ranks * batch)) * GRADIENT_BYTES,
                fused_forward_s=min(float(moved_s[number]), float(forward[number])) if joins else 0.0,
                fused_backward_s=min(float(moved_s[number]), float(backward[number])) if joins else 0.0,
                kept_bytes=_kept_bytes(operator, batch, context.width),
            )
        )
    parameters = float(model.parameters)
    nodes = float(context.nodes(np.array(float(ranks))))
    waiting_s = rendezvous_s(profile, nodes) + straggler_wait_s(profile, float((forward + backward).sum()), ranks)
    empty_s = float(reduce_s(cluster, np.array(1.0), np.array(float(ranks)), np.array(1.0), profile.gradient_share))
    loading_s = max(own_input_s(context, batch), stored_input_s(context, batch * ranks / nodes))
    return RankStep(
        name=model.name,
        ops=tuple(ops),
        wire=RuleWire(cluster=cluster, ranks=ranks, share=profile.gradient_share),
        update_s=float(context.update_s(context.dense_parameters)),
        host_s=float(waiting_s),
        message_s=profile.blocked_share * empty_s,
        least_s=float(loading_s),
        fixed_bytes=parameters * 4.0 * (1 + profile.state_elements),
    )


def _joins(before: Operator, operator: Operator) -> bool:
    """Check whether an operator can be fused into its predecessor, because it reads its output."""
    return operator.kind in POINTWISE and before.kind in _HOSTS and before.name in operator.inputs


def _kept_bytes(operator: Operator, batch: float, width: float) -> float:
    """Bytes of an operator's output that its backward pass needs; a view shares the bytes of its input."""
    if operator.kind in (Kind.VIEW, Kind.ADD, Kind.LOSS):
        return 0.0
    return operator.output_elements * batch * (1.0 if operator.kind is Kind.DROPOUT else width)
