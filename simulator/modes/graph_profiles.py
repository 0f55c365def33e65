"""Gradient profiles of operator graphs, by the cost rules of their other strategies."""

import numpy as np

from forerun.simulator.modes.profile import GradientLayer, GradientProfile
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.context import GRADIENT_BYTES
from forerun.simulator.opgraph.input import own_input_s, stored_input_s
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import Kind


def graph_profile(context: GraphContext, batch: float) -> GradientProfile:
    """Return one worker's step: a layer is an operator with parameters and all operators up to the next one.

    Passes are those of ``GraphContext.passes``. Of embedding tables only the looked-up rows are exchanged. Parameters
    and gradients are sent in fp32.

    Raises
    ------
    RequestError
        The batch is not above zero.
    """
    if not batch > 0:
        raise RequestError(f"the batch of a worker is more than 0, but got {batch}")
    forward_L, backward_L = context.passes(batch)
    operators = context.model.operators
    groups: list[list[int]] = []
    for number, operator in enumerate(operators):
        if operator.parameters or not groups:
            groups.append([])
        groups[-1].append(number)
    return GradientProfile(
        name=context.model.name,
        layers=tuple(_layer(context, group, batch, forward_L, backward_L) for group in groups),
        batch=batch,
        update_s=float(context.update_s(context.dense_parameters)),
        input_s=float(own_input_s(context, batch)),
        node_input_s=float(stored_input_s(context, batch)),
        node_workers=context.cluster.devices_per_node,
    )


def _layer(
    context: GraphContext, group: list[int], batch: float, forward_L: np.ndarray, backward_L: np.ndarray
) -> GradientLayer:
    """Return the layer of a group whose first operator is the only one with parameters."""
    first = context.model.operators[group[0]]
    table = first.kind is Kind.EMBEDDING
    return GradientLayer(
        name=first.name,
        parameter_bytes=GRADIENT_BYTES * float(context.sent_elements(first, batch)),
        forward_s=float(forward_L[group].sum()),
        backward_s=float(backward_L[group].sum()),
        table_bytes=GRADIENT_BYTES * first.parameters if table else 0.0,
    )
