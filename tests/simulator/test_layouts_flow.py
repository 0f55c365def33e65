"""Communication of whole graphs: what follows from the cuts of a transformer layer is what the core charges for."""

from collections import Counter

import pytest

from forerun.simulator.layouts import Need, Share, TransferPhase, needs_of
from forerun.spaces.models import load_model
from forerun.spaces.operators import Cut, LayerDegrees, OperatorGraph, layer_cuts, linear, pointwise, transformer_layer
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.axes import operator_axes
from forerun.spaces.opgraph.operator import Operator as GraphOperator


def layer_needs(degrees: LayerDegrees, model: str = "llama3-8b", zero: int = 0) -> tuple[Need, ...]:
    made = load_model(model)
    graph = transformer_layer(made.layers[0], made.hidden, sequences=8, seq_len=1024)
    devices = tuple(range(degrees.devices))
    shares = {
        operator.name: Share(cuts=layer_cuts(operator, degrees), devices=devices, zero=zero)
        for operator in graph.operators
    }
    return needs_of(graph, shares)


def kinds(needs: tuple[Need, ...], *phases: TransferPhase) -> Counter[str]:
    return Counter(transfer.kind for need in needs if need.phase in phases for transfer in need.transfers)


ACTIVATIONS = 8 * 1024 * 4096
BOTH = (TransferPhase.BACKWARD, TransferPhase.REGATHER)


def test_tensor_parallel_adds_up_after_every_block() -> None:
    """Shoeybi et al. (arXiv 1909.08053, figure 4): two all-reduces of the activations in each direction."""
    needs = layer_needs(LayerDegrees(dp=2, tp=4))

    assert kinds(needs, TransferPhase.FORWARD) == {"all_reduce": 2}
    assert kinds(needs, *BOTH) == {"all_reduce": 2}
    sizes = {t.elements[0] for n in needs if n.phase != TransferPhase.GRADIENT for t in n.transfers}
    assert sizes == {ACTIVATIONS / 2}


def test_sequence_parallel_gathers_and_scatters() -> None:
    """Korthikanti et al. (arXiv 2205.05198, figure 5): an all-gather and a reduce-scatter around each block, the same
    backwards, and the input gathered again for the gradient of the weights."""
    needs = layer_needs(LayerDegrees(tp=8, sp=True))

    assert kinds(needs, TransferPhase.FORWARD) == {"all_gather": 2, "reduce_scatter": 2}
    assert kinds(needs, TransferPhase.BACKWARD) == {"all_gather": 2, "reduce_scatter": 2}
    assert kinds(needs, TransferPhase.REGATHER) == {"all_gather": 2}


def test_context_parallel_gathers_keys_and_values() -> None:
    needs = layer_needs(LayerDegrees(cp=4))
    gathered = [n for n in needs if n.phase == TransferPhase.FORWARD]

    assert [n.tensor for n in gathered] == ["keys", "values"]
    assert {t.elements[0] for n in gathered for t in n.transfers} == {8 * 1024 * 8 * 128.0}
    assert kinds(needs, *BOTH) == {"all_gather": 2, "reduce_scatter": 2}


def test_experts_exchange_tokens_twice_in_each_direction() -> None:
    needs = layer_needs(LayerDegrees(dp=4, ep=4), "mixtral-8x7b")

    assert kinds(needs, TransferPhase.FORWARD) == {"all_to_all": 2}
    assert kinds(needs, *BOTH) == {"all_to_all": 2}


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_data_parallel_is_one_rule_for_all_sharding(zero: int) -> None:
    needs = layer_needs(LayerDegrees(dp=4), zero=zero)
    weights = 9
    gradient = "reduce_scatter" if zero else "all_reduce"

    assert not kinds(needs, TransferPhase.FORWARD, *BOTH)
    assert kinds(needs, TransferPhase.GRADIENT) == {gradient: weights}
    assert kinds(needs, TransferPhase.FETCH) == ({"all_gather": weights} if zero == 3 else {})
    assert kinds(needs, TransferPhase.UPDATE) == ({"all_gather": weights} if zero == 1 else {})


def test_gradient_traffic_is_all_that_a_device_holds() -> None:
    made = load_model("llama3-8b")
    graph = transformer_layer(made.layers[0], made.hidden, sequences=8, seq_len=1024)
    needs = layer_needs(LayerDegrees(dp=2, tp=4))
    norms = 2 * made.hidden
    reduced = sum(n.transfers[0].elements[0] for n in needs if n.phase == TransferPhase.GRADIENT)

    assert reduced == (graph.weight_elements - norms) / 4 + norms


def convolutional() -> OperatorGraph:
    described = GraphOperator(
        name="conv",
        kind=Kind.CONV,
        input=(3, 8, 8),
        output=(16, 8, 8),
        inputs=("x",),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1),
        dilation=(1, 1),
    )
    conv = operator_axes(described, 32)
    flat = linear("fc", batch={"batch": 32}, outputs={"out": 64}, inputs={"in": 16 * 64}, source="conv")
    loss = pointwise("loss", form="cross_entropy", batch={"batch": 32}, axes={"out": 64}, sources=("fc",))
    return OperatorGraph(name="net", operators=(conv, flat, loss))


def shares(*cuts: Cut) -> dict[str, Share]:
    return {
        name: Share(cuts=(cut,), devices=(0, 1, 2, 3)) for name, cut in zip(("conv", "fc", "loss"), cuts, strict=True)
    }


def test_data_parallel_convolutions_with_a_sharded_classifier() -> None:
    """The classic mixture (Krizhevsky, arXiv 1404.5997): images are gathered before the classifier, whose weights
    never move; its input's gradient goes back to the images' devices as a reduce-scatter."""
    batch, out = Cut(axis="batch", degree=4), Cut(axis="out", degree=4)
    needs = needs_of(convolutional(), shares(batch, out, out), input_gradients=False)

    assert [(n.phase, n.operator, n.transfers[0].kind) for n in needs] == [
        (TransferPhase.FORWARD, "fc", "all_gather"),
        (TransferPhase.REGATHER, "fc", "all_gather"),
        (TransferPhase.BACKWARD, "fc", "reduce_scatter"),
        (TransferPhase.GRADIENT, "conv", "all_reduce"),
    ]


def test_spatial_cuts_exchange_halos_in_both_directions() -> None:
    height, batch = Cut(axis="height", degree=4), Cut(axis="batch", degree=4)
    needs = needs_of(convolutional(), shares(height, batch, batch))

    assert [(n.phase, n.operator, n.transfers[0].kind) for n in needs[:2]] == [
        (TransferPhase.FORWARD, "conv", "halo"),
        (TransferPhase.FORWARD, "fc", "all_to_all"),
    ]
    assert (TransferPhase.BACKWARD, "conv", "halo") in [(n.phase, n.operator, n.transfers[0].kind) for n in needs]
