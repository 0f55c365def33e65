"""Gradient profiles of layer-by-layer models, from the same cost rules as their other strategies."""

import numpy as np

from forerun.simulator.layered import LayeredContext
from forerun.simulator.layered.compute import Local
from forerun.simulator.layered.context import GRADIENT_BYTES
from forerun.simulator.modes.profile import GradientLayer, GradientProfile
from forerun.spaces.errors import RequestError
from forerun.spaces.layered import Kind


def layered_profile(context: LayeredContext, batch: float) -> GradientProfile:
    """Return one worker's step: a layer is an operator with parameters and what follows it up to the next one.

    An operator takes as long as its kernels, or as the host needs to issue it. Tables exchange the rows that were
    looked up. Parameters and gradients move in fp32.

    Raises:
        RequestError: the batch is not above zero.
    """
    if not batch > 0:
        raise RequestError(f"the batch of a worker is more than 0, but got {batch}")
    layers, profile = context.layers, context.profile
    times = context.times(Local.whole(np.array([float(batch)])))
    views = layers.is_kind(Kind.VIEW)
    issue_L = np.where(views, 0.0, profile.operator_host_s)
    forward_L = np.maximum(times.forward_KU[0][layers.kind_of_L], issue_L)
    backward_L = np.maximum(times.backward_KU[0][layers.kind_of_L], issue_L)
    groups: list[list[int]] = [[]]
    for number, operator in enumerate(context.model.operators):
        if operator.parameters and any(context.model.operators[other].parameters for other in groups[-1]):
            groups.append([])
        groups[-1].append(number)
    operators = context.model.operators
    rows = tuple(
        GradientLayer(
            name=operators[group[0]].name,
            parameter_bytes=GRADIENT_BYTES * sum(context.sent_elements(operators[n], batch) for n in group),
            forward_s=float(forward_L[group].sum()),
            backward_s=float(backward_L[group].sum()),
        )
        for group in groups
    )
    update_s = float(context.update_s(context.dense_parameters))
    return GradientProfile(name=context.model.name, layers=rows, batch=batch, update_s=update_s)
