"""The data-parallel step of an operator graph, from the cost rules."""

import numpy as np

from forerun.simulator.costs import memory_bound_time_s
from forerun.simulator.improve.step import Op, RankStep
from forerun.simulator.improve.wires import RuleWire
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext
from forerun.simulator.opgraph.input import own_input_s, stored_input_s
from forerun.simulator.opgraph.messages import reduce_s, rendezvous_s, straggler_wait_s
from forerun.spaces.opgraph import Kind, Operator

POINTWISE = frozenset({Kind.ACTIVATION, Kind.DROPOUT, Kind.ADD, Kind.MULTIPLY})
"""Operators that another kernel can compute on its output: they are element-wise."""
_HOSTS = frozenset(
    {Kind.CONV, Kind.CONV_TRANSPOSE, Kind.LINEAR, Kind.BATCH_NORM, Kind.LAYER_NORM, Kind.POOL, *POINTWISE}
)
"""Operators whose kernels can compute them."""


def graph_step(context: GraphContext, *, ranks: int, batch: float) -> RankStep:
    """Return the step with ``batch`` samples per device on ``ranks`` devices that exchange gradients in fp32.

    Passes, messages, waits and loading are those of all other verbs (``GraphContext.passes``, ``opgraph.messages``,
    ``opgraph.input``).

    A fused pointwise operator saves its kernel and, in the forward pass, writing and reading the tensor between the two
    operators; in the backward pass the gradient between them. The estimate is by the memory rule; other inputs of the
    operator are still read.

    Raises:
        RequestError: a cost rule does not know an operator, link or precision.
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
