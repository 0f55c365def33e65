"""Communication that follows from the cuts of a transformer layer costs what the core charges for the layer: the same
collectives of the same sizes, found without being named."""

import dataclasses
import math

import numpy as np
import pytest
from forerun_examples import dense_model, moe_model, request

from forerun.simulator.layer.blocks import layer_work
from forerun.simulator.layer.communication import layer_exchange
from forerun.simulator.layer.shard import activation_bytes, shard_of
from forerun.simulator.layouts import Need, Share, TransferPhase, needs_of, transfer_time_s
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.operators import LayerDegrees, layer_cuts, transformer_layer
from forerun.spaces.strategies import Context, Strategy, table_of

SEQUENCES = 2


def context(model: Model) -> Context:
    """Return a request in which nothing hides communication, and what is gathered goes after use."""
    made = request(framework="generic", global_batch=64)
    apart = {name: 0.0 for name in ("overlap_tensor", "overlap_tensor_backward", "overlap_context", "overlap_expert")}
    framework = dataclasses.replace(made.framework, keeps_gathered=False, dispatches_once=False, **apart)
    return dataclasses.replace(made, model=model, framework=framework)


def priced(made: Context, needs: list[Need]) -> float:
    """Seconds of transfers one after the other, with the launch that the core adds to those of tensor ranks."""
    width = activation_bytes(made.workload.precision)
    return math.fsum(transfer_time_s(made.cluster, transfer, width) for need in needs for transfer in need.transfers)


def inferred(made: Context, degrees: LayerDegrees) -> list[Need]:
    layer = made.model.layers[0]
    graph = transformer_layer(layer, made.model.hidden, sequences=SEQUENCES * degrees.dp, seq_len=made.workload.seq_len)
    devices = tuple(range(degrees.devices))
    shares = {o.name: Share(cuts=layer_cuts(o, degrees), devices=devices) for o in graph.operators}
    weights = (TransferPhase.GRADIENT, TransferPhase.FETCH, TransferPhase.UPDATE)
    return [need for need in needs_of(graph, shares) if need.phase not in weights]


@pytest.mark.parametrize(
    "degrees",
    [
        LayerDegrees(tp=2),
        LayerDegrees(dp=2, tp=4),
        LayerDegrees(tp=8, sp=True),
        LayerDegrees(tp=4, dp=2, sp=True),
        LayerDegrees(dp=2, cp=2),
        LayerDegrees(tp=2, cp=4),
        LayerDegrees(tp=2, cp=2, dp=2, sp=True),
    ],
    ids=str,
)
def test_dense_layers(degrees: LayerDegrees) -> None:
    made = context(dense_model())
    needs = inferred(made, degrees)
    strategy = Strategy(dp=degrees.dp, tp=degrees.tp, cp=degrees.cp, sp=degrees.sp, mbs=SEQUENCES)
    shard = shard_of(made, table_of([strategy]), np.zeros(1, dtype=np.intp))
    layer = made.model.layers[0]
    exchange = layer_exchange(made, layer, shard, layer_work(made, layer, shard))
    launch_s = made.framework.collective_launch_s
    keys = ("keys", "values", "d keys", "d values")

    for phases, tensor_s, context_s in (
        ((TransferPhase.FORWARD,), exchange.tensor_forward_s[0], exchange.context_forward_s[0]),
        (
            (TransferPhase.BACKWARD, TransferPhase.REGATHER),
            exchange.tensor_backward_s[0],
            exchange.context_backward_s[0],
        ),
    ):
        found = [need for need in needs if need.phase in phases]
        tensor = [need for need in found if need.tensor not in keys]
        launches = sum(len(need.transfers) for need in tensor)
        assert priced(made, tensor) + launches * launch_s == pytest.approx(tensor_s, rel=1e-12)
        if degrees.cp > 1:
            # The core moves keys and values together, so that it pays latency once: never more than twice as little.
            apart = priced(made, [need for need in found if need.tensor in keys])
            assert context_s <= apart <= 2 * context_s


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_layers_with_experts(ep: int) -> None:
    made = context(moe_model())
    layer = made.model.layers[-1]
    assert isinstance(layer.mlp, MixtureOfExperts)
    routed = dataclasses.replace(layer, mlp=dataclasses.replace(layer.mlp, shared_hidden=0))
    made = dataclasses.replace(made, model=dataclasses.replace(made.model, layers=(routed,)))
    needs = inferred(made, LayerDegrees(dp=8, ep=ep))
    shard = shard_of(made, table_of([Strategy(dp=8, ep=ep, mbs=SEQUENCES)]), np.zeros(1, dtype=np.intp))
    exchange = layer_exchange(made, routed, shard, layer_work(made, routed, shard))

    for phase, seconds in (
        (TransferPhase.FORWARD, exchange.expert_forward_s[0]),
        (TransferPhase.BACKWARD, exchange.expert_backward_s[0]),
    ):
        assert priced(made, [need for need in needs if need.phase == phase]) == pytest.approx(seconds, rel=1e-12)
