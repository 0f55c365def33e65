"""Gradient profiles of unsplit transformers and of operator graphs, by the cost rules of their other strategies."""

import numpy as np

from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.costs import adam_time_s
from forerun.simulator.layer.kinds import kind_of_entry
from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.layer.times import block_times, expert_launches_s, launched_share, layer_launches_s
from forerun.simulator.modes.profile import GradientLayer, GradientProfile
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.context import GRADIENT_BYTES, own_input_s, stored_input_s
from forerun.simulator.replicas.buffers import reduced_bytes
from forerun.spaces.errors import RequestError
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.models.parameters import embedding_parameters, head_parameters, layer_parameters
from forerun.spaces.strategies import Context, Strategy


def transformer_profile(context: Context, batch: int) -> GradientProfile:
    """Return one worker's step of ``batch`` sequences: embedding, every layer, head.

    A layer takes the time of its kernels or of their launches by the host, whichever is longer. Every worker has all
    experts and their gradients.

    Raises
    ------
    RequestError
        A cost rule does not know an operator or precision.
    """
    model, framework = context.model, context.framework
    times = block_times(context, shard_with(context, Strategy(mbs=batch)))
    wire = reduced_bytes(context)

    def layer(name: str, block: int, parameters: int, host_s: float) -> GradientLayer:
        return GradientLayer(
            name=name,
            parameter_bytes=wire * parameters,
            forward_s=max(float(times.forward_s[block, 0]), host_s / 3),
            backward_s=max(float(times.backward_s[block, 0]), host_s * 2 / 3),
        )

    rows = [layer("embedding", -2, embedding_parameters(model), 0.0)]
    for kind, entry in zip(kind_of_entry(model), model.layers, strict=True):
        host_s = layer_launches_s(context) * launched_share(entry, model.hidden, framework.graphed)
        host_s += expert_launches_s(context) * isinstance(entry.mlp, MixtureOfExperts)
        for number in range(entry.count):
            parameters = layer_parameters(entry, model.hidden).total
            rows.append(layer(f"{entry.name or 'layer'} {number}", kind, parameters, host_s))
    rows.append(layer("head", -1, head_parameters(model), 0.0))
    total_parameters = sum(row.parameter_bytes for row in rows) / wire
    half = activation_bytes(context.workload.precision) == 2.0
    update_s = adam_time_s(
        context.cluster.device, total_parameters, master_weights=half, state_bytes=framework.optimizer_bytes
    )
    return GradientProfile(name=model.name, layers=tuple(rows), batch=batch, update_s=float(update_s))


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
    return GradientLayer(
        name=first.name,
        parameter_bytes=GRADIENT_BYTES * float(context.sent_elements(first, batch)),
        forward_s=float(forward_L[group].sum()),
        backward_s=float(backward_L[group].sum()),
        table_bytes=GRADIENT_BYTES * first.parameters if context.sparse(first) else 0.0,
    )
