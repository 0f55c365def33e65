"""Mixtures: where one split stands everywhere they are the closed forms; communication follows from the layouts."""

import pytest

from forerun.simulator.layouts import TransferPhase
from forerun.simulator.opgraph import GraphContext, score_splits
from forerun.simulator.opgraph.events.scores import simulate_split
from forerun.simulator.opgraph.memory import RESERVE_BYTES
from forerun.simulator.opgraph.mixture import mixture_needs, score_mixture
from forerun.simulator.opgraph.score import SplitScores
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import GraphModel, load_graph_model
from forerun.spaces.opgraph.axes import operator_graph
from forerun.spaces.opgraph.builder import Builder
from forerun.spaces.opgraph.mixture import cuts_of, parse_mixture
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.opgraph.split import parse_split

ABCI = load_cluster("abci-v100")


def context(model: GraphModel) -> GraphContext:
    return GraphContext(model=model, cluster=ABCI, profile=load_graph_profile("ideal"), precision="fp32")


def mixed(model: GraphModel, text: str, batch: int) -> SplitScores:
    return score_mixture(context(model), parse_mixture(text, model), batch)


def chain() -> GraphModel:
    b = Builder(4, 32, 32)
    x = b.relu(b.batch_norm(b.conv(b.start, 16, 3, padding=1)))
    x = b.pool(b.relu(b.conv(x, 32, 3, padding=1)), 2)
    b.loss(b.linear(b.flatten(x), 64))
    return b.build("chain", "test")


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "inception-v3", "unet", "cosmoflow-128"])
def test_iteration_spaces_multiply_as_often_as_the_operators(name: str) -> None:
    model = load_graph_model(name)
    graph = operator_graph(model, 2)
    assert graph.flops == pytest.approx(2 * 2 * model.macs)


@pytest.mark.parametrize("text", ["data4", "data16", "filter4", "data4 filter4", "channel8", "data8 spatial2", "data1"])
def test_computation_of_one_split_everywhere_is_that_of_the_closed_forms(text: str) -> None:
    model = chain()
    closed = score_splits(context(model), [parse_split(text)], [64])
    found = mixed(model, text, 64)
    if "spatial" not in text:  # layouts have equal parts only, and a tail of their own
        assert found.time_s["forward"] == pytest.approx(float(closed.time_s["forward"][0]))
        assert found.time_s["backward"] == pytest.approx(float(closed.time_s["backward"][0]))
    assert found.time_s["update"] == pytest.approx(float(closed.time_s["update"][0]), rel=0.02)


def test_data_parallel_exchanges_what_the_closed_form_says() -> None:
    model = load_graph_model("resnet50")
    found = mixed(model, "data16", 256)
    closed = score_splits(context(model), [parse_split("data16")], [256])
    assert found.time_s["collective"] == found.time_s["halo"] == 0.0
    assert found.time_s["gradient"] == pytest.approx(float(closed.time_s["gradient"][0]), rel=0.05)


def test_filter_gathers_outputs_and_adds_input_gradients_up() -> None:
    model = load_graph_model("resnet50")
    found, closed = mixed(model, "filter4", 64), score_splits(context(model), [parse_split("filter4")], [64])
    # Readers of one tensor share its transfer (the first convolutions of a block and its projection).
    assert found.time_s["collective"] == pytest.approx(float(closed.time_s["collective"][0]), rel=0.12)


def test_halos_are_the_rows_that_windows_reach_over() -> None:
    model = chain()
    graph, mixture = operator_graph(model, 8), parse_mixture("spatial4", model)
    cuts = {operator.name: cuts_of(operator, mixture.of(operator.name)) for operator in graph.operators}
    sent = {
        need.operator: max(transfer.elements[0] for transfer in need.transfers)
        for need in mixture_needs(context(model), graph, cuts, 4)
        if need.phase is TransferPhase.FORWARD and need.operator.startswith("conv")
    }
    assert sent == {"conv1": 8 * 4 * 32, "conv2": 8 * 16 * 32}  # one row of all samples and channels


def test_linear_layers_by_filter_exchange_features_instead_of_weights() -> None:
    model = load_graph_model("vgg16")
    plain, own = (mixed(model, text, 512) for text in ("data16", "data16, linear*: filter16"))
    assert own.time_s["collective"] > 0 == plain.time_s["collective"]
    assert own.memory_bytes["parameters"] < plain.memory_bytes["parameters"] / 5
    closed = score_splits(context(model), [parse_split("data16 mixed")], [512])
    assert own.step_time_s[0] == pytest.approx(float(closed.step_time_s[0]), rel=0.05)


@pytest.mark.parametrize(
    "text", ["data8, linear*: filter8", "data8, conv1: data2 spatial4", "data2 filter4, conv2: data8"]
)
def test_memory_is_that_of_the_step_event_by_event(text: str) -> None:
    own = context(load_graph_model("vgg16"))
    mixture = parse_mixture(text, own.model)
    closed = score_mixture(own, mixture, own.batch(mixture.devices))
    assert closed.peak_memory_bytes[0] - RESERVE_BYTES == pytest.approx(simulate_split(own, mixture).peak_memory_bytes)


def test_layers_that_cannot_be_cut_so_are_repeated() -> None:
    model = load_graph_model("resnet50")
    graph, mixture = operator_graph(model, 64), parse_mixture("channel4", model)
    axes = {
        operator.name: [cut.axis for cut in cuts_of(operator, mixture.of(operator.name))]
        for operator in graph.operators
    }
    assert axes["conv1"] == [None]  # three channels
    assert axes["conv2"] == ["in_channels"]


def test_a_border_between_two_splits_costs_what_moves_over_it() -> None:
    model = chain()
    uniform, other = mixed(model, "data4", 64), mixed(model, "data4, linear1: filter4", 64)
    assert other.time_s["collective"] > uniform.time_s["collective"] == 0.0
    assert other.memory_bytes["parameters"] < uniform.memory_bytes["parameters"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data4, linear1: filter2", "all layers need the same devices, but filter2 has 2 and data4 has 4"),
        ("data4, linear9: filter4", "unknown operator of chain 'linear9'; did you mean linear1"),
        ("data4, filter4", "a layer's split is written NAME: SPLIT"),
        ("linear1: filter4", "a mixture begins with the split of all other layers"),
        ("data4, linear1: pipeline4", "layers are split by data, spatial, filter or channel"),
        ("data5, linear1: data5", "replicas divide the global batch, but got 5 of 64"),
    ],
)
def test_mixtures_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        mixed(chain(), text, 64)


def test_texts_round_trip_and_the_last_match_counts() -> None:
    model = chain()
    mixture = parse_mixture("data4, *: data2 filter2, conv1: data4", model)
    assert parse_mixture(str(mixture), model) == mixture
    assert str(mixture.of("conv1")) == "data4"
    assert str(mixture.of("linear1")) == "data2 filter2"


def test_models_with_tables_are_mixed_too() -> None:
    found = mixed(load_graph_model("dlrm-516m"), "data4, linear*: filter4", 64)
    assert found.step_time_s[0] > 0
    assert found.time_s["collective"] > 0
