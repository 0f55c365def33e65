"""Operator graphs: counts are the published ones, shapes are consistent, and what cannot be is refused."""

import math

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import (
    WEIGHTED,
    GraphModel,
    Kind,
    Operator,
    graph_model_names,
    is_graph_model,
    load_graph_model,
)
from forerun.spaces.opgraph.builder import Builder
from forerun.spaces.opgraph.families.amoeba import PUBLISHED, amoebanet_d
from forerun.spaces.opgraph.families.convolutional import resnet


@pytest.mark.parametrize("name", graph_model_names())
def test_counts_are_the_published_ones_within_one_percent(name: str) -> None:
    model = load_graph_model(name)
    assert model.published_parameters is not None
    assert model.parameters == pytest.approx(model.published_parameters, rel=0.01)
    if model.published_macs is not None:
        assert model.macs == pytest.approx(model.published_macs, rel=0.01)


@pytest.mark.slow  # builds five networks of up to 3,600 operators
@pytest.mark.parametrize(("layers", "filters"), PUBLISHED)
def test_every_amoebanet_of_the_publication(layers: int, filters: int) -> None:
    printed = PUBLISHED[layers, filters]
    rounding = 0.05e9 if printed > 1e9 else 0.5e6  # the table prints 1.8B and 318M
    assert amoebanet_d(layers, filters).parameters == pytest.approx(printed, rel=0.01, abs=rounding)


@pytest.mark.parametrize("name", graph_model_names())
def test_every_operator_reads_what_its_producers_wrote(name: str) -> None:
    model = load_graph_model(name)
    shapes = {operator.name: operator.output for operator in model.operators}
    for operator in model.operators:
        read = [operator.input, *operator.extra_inputs]
        assert [shapes[producer] for producer in operator.inputs] == read[: len(operator.inputs)], operator.name
        if operator.kind is Kind.VIEW and operator.name.startswith("flatten"):
            assert math.prod(operator.input) == math.prod(operator.output)


def test_convolution_by_hand() -> None:
    b = Builder(3, 10, 12)
    b.conv(b.start, 8, (3, 5), stride=(1, 2), padding=(1, 2), bias=True)
    (conv,) = b.operators
    assert conv.output == (8, 10, 6)
    assert conv.parameters == 3 * 8 * 15 + 8
    assert conv.macs == 3 * 8 * 15 * 10 * 6
    assert conv.halo == (1, 2)


def test_grouped_convolution_contracts_over_its_group_alone() -> None:
    b = Builder(8, 6, 6)
    b.conv(b.start, 16, 3, padding=1, groups=4)
    assert b.operators[0].weight_elements == (8 // 4) * 16 * 9


def test_resnet50_has_the_layers_of_the_publication() -> None:
    model = load_graph_model("ResNet-50")
    convolutions = [o for o in model.operators if o.kind is Kind.CONV]
    assert len(convolutions) == 53  # 1 + 16 x 3 + 4 projections
    assert sum(o.kind in WEIGHTED for o in model.operators) == 54
    assert model.operators[-2].output == (1000,)


def test_stride_in_the_first_convolution_needs_fewer_operations() -> None:
    assert resnet("resnet50", stride_first=True).macs < load_graph_model("resnet50").macs
    assert resnet("resnet50", stride_first=True).parameters == load_graph_model("resnet50").parameters


def test_names_forgive_case_and_hyphens() -> None:
    assert load_graph_model("ResNet-50") is load_graph_model("ResNet-50")
    assert is_graph_model("VGG_16")
    assert not is_graph_model("llama3-8b")
    with pytest.raises(RequestError, match="did you mean resnet50"):
        load_graph_model("resnet51")


def test_a_window_that_does_not_fit_is_refused() -> None:
    b = Builder(3, 2, 2)
    with pytest.raises(RequestError, match="a window of 5 with padding 0 does not fit an extent of 2"):
        b.conv(b.start, 8, 5)


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    b = Builder(6, 4, 4)
    with pytest.raises(RequestError, match="groups divide the channels, but got 4 groups of 6"):
        b.conv(b.start, 8, 1, groups=4)


def test_a_model_whose_operator_reads_nothing_known_is_refused() -> None:
    lost = Operator(name="a", kind=Kind.ADD, input=(4,), output=(4,), inputs=("b",))
    with pytest.raises(RequestError, match="operator a reads b, which is not there"):
        GraphModel(name="m", source="test", input=(4,), operators=(lost,))
    with pytest.raises(RequestError, match="has no operators"):
        GraphModel(name="m", source="test", input=(4,), operators=())
