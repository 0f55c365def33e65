"""ParaDL's oracle for a model and a cluster of forerun, so that both can be asked the same."""

import math

from forerun.simulator.opgraph.context import PROFILED_BATCH, GraphContext
from forerun.simulator.opgraph.paradl import Network, Oracle, OracleCost, Path, abci_network
from forerun.simulator.opgraph.score import score_splits
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import WEIGHTED, Kind, Operator
from forerun.spaces.opgraph.net_file import NetLayer
from forerun.spaces.opgraph.split import Mode, Split

_KINDS = {
    Kind.CONV: "CONV",
    Kind.LINEAR: "FC",
    Kind.POOL: "APOOL",
    Kind.ACTIVATION: "RELU",
    Kind.BATCH_NORM: "BNORM",
    Kind.ADD: "ADD",
    Kind.DROPOUT: "DROPOUT",
}


def oracle_of(context: GraphContext, batch: int) -> Oracle:
    """Return the oracle of one step of ``batch`` samples: its data set is that one batch.

    Its time per sample is the measured one, else forerun's own for one device; what it does not know (concatenation,
    transposed convolutions, tables) it leaves out.
    """
    seconds = context.seconds_per_sample
    if seconds is None:
        one = score_splits(context, [Split()], [PROFILED_BATCH])
        seconds = float(one.device_s[0]) / PROFILED_BATCH
    layers = [_layer(operator) for operator in context.model.operators if operator.kind in _KINDS]
    known = {operator.name for operator in context.model.operators if operator.kind in WEIGHTED}
    return Oracle(
        layers=layers,
        samples=batch,
        seconds_per_sample=seconds,
        split=frozenset(layer.name for layer in layers if layer.kind == "CONV" and layer.name in known),
        network=abci_network(cable_s=20e-6) if context.cluster.name == "abci-v100" else _network(context.cluster),
        per_node=context.cluster.devices_per_node,
    )


def oracle_step(context: GraphContext, split: Split, batch: int) -> OracleCost:
    """Cost one step by the oracle.

    Raises:
        RequestError: it has no formula for such a split.
    """
    oracle, ranks = oracle_of(context, batch), split.devices
    hybrid = split.replicas > 1
    match split.mode:
        case Mode.DATA if not (split.mixed or split.spread):
            return oracle.data(ranks, max(batch // ranks, 1)) if ranks > 1 else oracle.serial(batch)
        case Mode.FILTER | Mode.CHANNEL if not hybrid:
            return oracle.filter(ranks, batch)
        case Mode.FILTER | Mode.CHANNEL if split.parts == oracle.per_node:
            return oracle.data_filter(ranks, batch // split.replicas)
        case Mode.SPATIAL if split.parts == oracle.per_node:
            return oracle.data_spatial(ranks, batch // split.replicas)
    raise RequestError(
        f"ParaDL has formulas for data, filter, channel and, with groups of the {oracle.per_node} devices of a node, "
        f"data+filter, data+channel and data+spatial, but not for {split}"
    )


def _layer(operator: Operator) -> NetLayer:
    weight: tuple[int, ...] = ()
    if operator.kind is Kind.CONV:
        weight = (operator.channels_in // operator.groups, operator.filters, *operator.kernel)
    elif operator.kind is Kind.LINEAR:
        weight = (operator.channels_in, operator.filters)
    elif operator.kind is Kind.POOL:
        weight = (operator.filters, operator.filters, *(operator.kernel or (1,)))
    return NetLayer(
        name=operator.name, kind=_KINDS[operator.kind], input=operator.input, weight=weight, output=operator.output
    )


def _network(cluster: Cluster) -> Network:
    def path(ranks: int) -> Path:
        level = next((level for level in cluster.levels if ranks <= level.size), None) or cluster.levels[-1]
        return Path(alpha_s=level.latency_s, bytes_per_s=level.port_bytes_per_s)

    if not cluster.levels:
        return lambda ranks: Path(alpha_s=0.0, bytes_per_s=math.inf)
    return path
