"""Operators as iteration spaces: every kind keeps one contract, and its counts are those of the textbook formula."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.models import layer_parameters, load_model
from forerun.spaces.models.flops import layer_forward_flops
from forerun.spaces.operators import (
    AxisKind,
    Cut,
    CutOperator,
    LayerDegrees,
    OperatorGraph,
    attention_core,
    check_cuts,
    layer_cuts,
    linear,
    pointwise,
    transformer_layer,
)
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.axes import operator_axes
from forerun.spaces.opgraph.operator import Operator as GraphOperator


def convolution(
    inputs: tuple[int, ...], outputs: tuple[int, ...], kernel: int, stride: int, groups: int = 1
) -> CutOperator:
    """Return a convolution of four samples as the operator graphs have it."""
    count = len(outputs) - 1
    described = GraphOperator(
        name="conv",
        kind=Kind.CONV,
        input=inputs,
        output=outputs,
        kernel=(kernel,) * count,
        stride=(stride,) * count,
        padding=(kernel // 2,) * count,
        dilation=(1,) * count,
        groups=groups,
    )
    return operator_axes(described, 4)


@dataclass(frozen=True, kw_only=True)
class Example:
    """One operator with what it must count."""

    operator: CutOperator
    flops: float
    weights: int
    cut: Cut


EXAMPLES = {
    "linear": Example(
        operator=linear("fc", batch={"batch": 32}, outputs={"out": 10}, inputs={"in": 84}, bias=True),
        flops=2 * 32 * 84 * 10,
        weights=84 * 10 + 10,
        cut=Cut(axis="in", degree=4),
    ),
    "conv": Example(
        # The first layer of ResNet-50: 7x7 with stride 2, 112x112 outputs.
        operator=convolution((3, 224, 224), (64, 112, 112), 7, 2),
        flops=4 * 2 * 118_013_952,
        weights=9408,
        cut=Cut(axis="height", degree=4),
    ),
    "pool": Example(
        operator=operator_axes(
            GraphOperator(
                name="pool",
                kind=Kind.POOL,
                input=(64, 112, 112),
                output=(64, 56, 56),
                kernel=(3, 3),
                stride=(2, 2),
                padding=(1, 1),
                dilation=(1, 1),
            ),
            4,
        ),
        flops=0,
        weights=0,
        cut=Cut(axis="channels", degree=4),
    ),
    "embedding": Example(
        operator=operator_axes(
            GraphOperator(name="table", kind=Kind.EMBEDDING, input=(100,), output=(64,), rows=1000, lookups=100), 16
        ),
        flops=0,
        weights=1000 * 64,
        cut=Cut(axis="rows", degree=8),
    ),
    "attention": Example(
        operator=attention_core("core", batch=2, queries=128, keys=128, kv_heads=4, group=2, head_dim=64),
        flops=4 * 2 * 8 * 128 * 128 * 64,
        weights=0,
        cut=Cut(axis="kv_heads", degree=4),
    ),
    "pointwise": Example(
        operator=pointwise(
            "norm", form="layernorm", batch={"batch": 4}, axes={}, opaque={"hidden": 32}, weight_axes=("hidden",)
        ),
        flops=0,
        weights=32,
        cut=Cut(axis="batch", degree=2),
    ),
}
"""A new operator is one file and one entry here."""


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_contract(kind: str) -> None:
    example = EXAMPLES[kind]
    operator = example.operator

    assert operator.kind == kind
    assert operator.flops == example.flops
    assert operator.weight_elements == example.weights
    assert any(axis.kind is AxisKind.BATCH for axis in operator.axes)
    check_cuts(operator, [example.cut])
    for operand in (*operator.inputs, *operator.weights, operator.output):
        counted = math.prod(operator.shape(operand)) if operand.count is None else operand.count
        assert operator.elements(operand) == counted


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: check_cuts(EXAMPLES["linear"].operator, [Cut(axis="out", degree=4)]), "10 points, which 4 does not"),
        (lambda: check_cuts(EXAMPLES["linear"].operator, [Cut(axis="of", degree=2)]), "unknown axis"),
        (lambda: check_cuts(EXAMPLES["pointwise"].operator, [Cut(axis="hidden", degree=2)]), "cannot be cut"),
        (lambda: check_cuts(EXAMPLES["conv"].operator, [Cut(axis="width", degree=112)]), "as wide as the halo"),
        (lambda: linear("fc", batch={"b": 1}, outputs={"o": 0}, inputs={"i": 1}), "must be at least 1"),
        (lambda: linear("fc", batch={"b": 1}, outputs={"o": 1}, inputs={"o": 1}), "every axis has its own name"),
    ],
)
def test_mistakes_are_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        make()


def test_a_convolution_needs_what_its_kernel_reaches_beyond_its_stride() -> None:
    first = EXAMPLES["conv"].operator
    volume = convolution((1, 8, 8, 8), (1, 8, 8, 8), 3, 1)

    assert [d.halo for d in first.inputs[0].dimensions] == [0, 0, 5, 5]
    assert first.shape(first.inputs[0]) == (4, 3, 224, 224)
    assert [d.halo for d in volume.inputs[0].dimensions] == [0, 0, 2, 2, 2]


def test_grouped_convolutions_have_fewer_weights_and_operations() -> None:
    whole, depthwise = (convolution((32, 14, 14), (32, 14, 14), 3, 1, groups) for groups in (1, 32))

    assert depthwise.weight_elements * 32 == whole.weight_elements
    assert depthwise.flops * 32 == whole.flops


def test_a_circle_of_operators_is_named() -> None:
    first = pointwise("first", form="gelu", batch={"b": 2}, axes={}, sources=("second",))
    second = pointwise("second", form="gelu", batch={"b": 2}, axes={}, sources=("first",))

    with pytest.raises(RequestError, match="loop: operators must not need each other in a circle, but first <- second"):
        OperatorGraph(name="loop", operators=(first, second))


def test_a_tensor_has_one_size() -> None:
    made = pointwise("made", form="gelu", batch={"b": 2}, axes={"w": 4})
    read = pointwise("read", form="gelu", batch={"b": 2}, axes={"w": 8}, sources=("made",))

    with pytest.raises(RequestError, match="read reads made as 2x8, but made makes 2x4"):
        OperatorGraph(name="net", operators=(made, read))


def test_operators_may_be_given_in_any_order() -> None:
    last = pointwise("last", form="residual_add", batch={"b": 2}, axes={}, sources=("one", "two"))
    two = pointwise("two", form="gelu", batch={"b": 2}, axes={}, sources=("one",))
    one = pointwise("one", form="gelu", batch={"b": 2}, axes={})
    graph = OperatorGraph(name="net", operators=(last, two, one))

    assert [operator.name for operator in graph.ordered] == ["one", "two", "last"]
    assert [operator.name for operator in graph.consumers["one"]] == ["two", "last"]


@pytest.mark.parametrize("name", ["llama3-8b", "gpt3-13b", "mixtral-8x7b"])
def test_a_transformer_layer_counts_what_its_model_counts(name: str) -> None:
    model = load_model(name)
    layer = model.layers[0]
    graph = transformer_layer(layer, model.hidden, sequences=2, seq_len=2048)
    counted = layer_parameters(layer, model.hidden)
    biases_and_router = counted.total - graph.weight_elements

    # Biases and the router's scores are left to the cost rules; both are less than a thousandth.
    assert 0 <= biases_and_router < 1e-3 * counted.total
    assert graph.flops == pytest.approx(2 * layer_forward_flops(layer, model.hidden, 2048), rel=1e-3)


@pytest.mark.parametrize(
    "degrees", [LayerDegrees(dp=2, tp=4), LayerDegrees(dp=2, cp=2, tp=2, sp=True), LayerDegrees(tp=16)]
)
def test_cuts_of_a_transformer_layer_are_legal(degrees: LayerDegrees) -> None:
    model = load_model("llama3-8b")
    graph = transformer_layer(model.layers[0], model.hidden, sequences=4, seq_len=2048)

    for operator in graph.ordered:
        cuts = layer_cuts(operator, degrees)
        check_cuts(operator, cuts)
        assert math.prod(cut.degree for cut in cuts) == degrees.devices
