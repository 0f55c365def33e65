"""Contents and seconds of inferred transfers of gradients and weights."""

import numpy as np

from forerun.simulator.costs import stride_of
from forerun.simulator.layouts import Transfer, transfer_time_s
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.messages import reduce_s
from forerun.spaces.opgraph import Operator


def sent_gradient(context: GraphContext, operator: Operator, batch: float, transfer: Transfer) -> Transfer:
    """Return the transfer of a gradient for ``batch`` samples of all replicas; of a copied table, the used rows."""
    share = float(context.sent_elements(operator, batch)) / max(operator.parameters, 1)
    if share == 1.0:
        return transfer
    return Transfer(kind=transfer.kind, groups=transfer.groups, elements=tuple(n * share for n in transfer.elements))


def weight_transfer_s(context: GraphContext, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds of a transfer of gradients or weights, at the framework's share of all-reduce rates."""
    if transfer.kind != "all_reduce":
        return transfer_time_s(context.cluster, transfer, element_bytes)
    return all_reduce_s(context, transfer, element_bytes, context.profile.gradient_share)


def all_reduce_s(context: GraphContext, transfer: Transfer, element_bytes: float, share: float) -> float:
    """Return the seconds of the slowest group's all-reduce; ``share``: reached share of the rate between nodes."""
    levels = context.cluster.levels
    distinct = {
        (elements, len(group), stride_of(levels, group))
        for group, elements in zip(transfer.groups, transfer.elements, strict=True)
    }
    elements, ranks, stride = np.array(sorted(distinct), dtype=np.float64).T
    return float(reduce_s(context.cluster, elements * element_bytes, ranks, stride, share).max())


def blocked_s(context: GraphContext, transfer: Transfer) -> float:
    """Return the seconds for which the launch of an all-reduce stops computation."""
    share = context.profile.blocked_share
    if not share or transfer.kind != "all_reduce":
        return 0.0
    empty = Transfer(kind=transfer.kind, groups=transfer.groups, elements=(1.0,) * len(transfer.groups))
    return share * weight_transfer_s(context, empty, 1.0)
