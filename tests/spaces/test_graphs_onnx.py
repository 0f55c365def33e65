"""ONNX files: counts by hand, laws that name what is missing, and files that are torn or hostile."""

import random
from pathlib import Path
from typing import Any

import pytest

from forerun.search.cli import main
from forerun.simulator.opgraph.footprint import split_footprint
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import GraphModel, Kind
from forerun.spaces.opgraph.graphs.onnx_file import read_onnx
from forerun.spaces.opgraph.split import Split

onnx = pytest.importorskip("onnx", reason="reading ONNX files needs the package onnx")
helper, numpy_helper = onnx.helper, pytest.importorskip("onnx.numpy_helper")
FLOAT = onnx.TensorProto.FLOAT


def weight(name: str, *shape: int) -> Any:
    """A tensor of zeros, kept as shape and bytes."""
    size = 4
    for extent in shape:
        size *= extent
    return helper.make_tensor(name, FLOAT, shape, b"\0" * size, raw=True)


def graph(nodes: list[Any], weights: list[Any], shape: tuple[int | str, ...] = (2, 3, 8, 8)) -> Any:
    source = helper.make_tensor_value_info("x", FLOAT, shape)
    target = helper.make_tensor_value_info("y", FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "net", [source], [target], weights))


def read(tmp_path: Path, model: Any, *, allow_generic: bool = False, shapes: tuple[str, ...] = ()) -> GraphModel:
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return read_onnx(path, allow_generic=allow_generic, shapes=shapes)


def network(shape: tuple[int | str, ...] = (2, 3, 8, 8)) -> Any:
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        make("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"], "norm"),
        make("Relu", ["n"], ["r"], "relu"),
        make("Conv", ["r", "g"], ["d"], "grouped", kernel_shape=[1, 1], group=2),
        make("Add", ["d", "r"], ["a"], "sum"),
        make("GlobalAveragePool", ["a"], ["p"], "pool"),
        make("Flatten", ["p"], ["f"], "flat"),
        make("Gemm", ["f", "k", "h"], ["z"], "dense", transB=1),
        make("Softmax", ["z"], ["y"], "soft"),
    ]
    weights = [weight("w", 8, 3, 3, 3), weight("b", 8), weight("g", 8, 4, 1, 1), weight("k", 10, 8), weight("h", 10)]
    return graph(nodes, weights + [weight(name, 8) for name in "stmv"], shape)


def test_a_network_by_hand(tmp_path: Path) -> None:
    model = read(tmp_path, network())
    assert model.input == (3, 8, 8)
    assert [operator.kind for operator in model.operators] == [
        Kind.CONV, Kind.BATCH_NORM, Kind.ACTIVATION, Kind.CONV, Kind.ADD, Kind.POOL, Kind.VIEW, Kind.LINEAR,
        Kind.SOFTMAX,
    ]  # fmt: skip
    first, _, _, grouped, *_ = model.operators
    assert (first.output, first.stride, first.padding, first.bias) == ((8, 4, 4), (2, 2), (1, 1), True)
    assert grouped.groups == 2
    assert model.parameters == (8 * 27 + 8) + 16 + 8 * 4 + (80 + 10)
    assert model.macs == 8 * 27 * 16 + 32 * 16 + 80
    assert model.operators[4].inputs == ("grouped", "relu")


def test_an_open_batch_is_one_sample_and_said(tmp_path: Path) -> None:
    open_batch, fixed = read(tmp_path, network(("N", 3, 8, 8))), read(tmp_path, network())
    assert open_batch.macs == fixed.macs
    assert "the batch axis of x is open" in open_batch.notes[0]


def test_other_open_extents_are_given_by_a_shape(tmp_path: Path) -> None:
    given = read(tmp_path, network(("N", 3, "height", 8)), shapes=("x=3x8x8",))

    assert given.macs == read(tmp_path, network()).macs


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ((), r"input 'x' has a dynamic extent at axis 2; give --shape x=3xheightx8"),
        (("y=3x8x8",), r"has no input 'y' for --shape; it has x"),
        (("x=8x8",), r"has 3 axes behind the batch, not 2"),
        (("x=4x8x8",), r"axis 1 of input 'x' has 3 elements"),
        (("x=3,8,8",), r"written like x=3x640x640"),
        (("x=3x0x8",), r"written like x=3x640x640"),
    ],
)
def test_an_open_extent_that_no_shape_gives_is_refused(tmp_path: Path, shapes: tuple[str, ...], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        read(tmp_path, network((2, 3, "height", 8)), shapes=shapes)


def test_an_operator_without_a_rule_is_named_and_may_be_allowed(tmp_path: Path) -> None:
    sums = helper.make_node("Einsum", ["c"], ["y"], equation="abcd->ab")
    model = graph([helper.make_node("Conv", ["x", "w"], ["c"]), sums], [weight("w", 8, 3, 1, 1)])
    with pytest.raises(RequestError, match=r"no cost rule for Einsum \(1\).*--allow-generic to cost it by bytes"):
        read(tmp_path, model)
    allowed = read(tmp_path, model, allow_generic=True)
    assert allowed.operators[1].kind is Kind.GENERIC
    assert allowed.operators[1].moved_elements == 8 * 64 + 8
    assert "costed by bytes and operations alone: Einsum (1)" in allowed.notes


def test_operators_of_other_domains_keep_their_name(tmp_path: Path) -> None:
    model = graph([helper.make_node("Mystery", ["x"], ["y"], domain="com.example")], [])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(RequestError, match=r"no cost rule for com.example.Mystery .* shape of its output 'y'; state"):
        read(tmp_path, model, allow_generic=True)


def test_products_of_activations_and_embeddings(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "q"], ["a"], "query"),
        make("Transpose", ["x"], ["b"], "turn", perm=[0, 2, 1]),
        make("MatMul", ["a", "b"], ["s"], "scores"),
        make("Mul", ["s", "half"], ["y"], "scale"),
    ]
    model = read(tmp_path, graph(nodes, [weight("q", 16, 16), weight("half")], (4, 10, 16)))
    assert [operator.kind for operator in model.operators] == [Kind.LINEAR, Kind.COPY, Kind.MATMUL, Kind.ACTIVATION]
    assert model.macs == 10 * 16 * 16 + 10 * 10 * 16


def test_a_convolution_that_does_not_fit_its_input_is_refused(tmp_path: Path) -> None:
    model = graph([helper.make_node("Conv", ["x", "w"], ["y"], "conv", group=3)], [weight("w", 6, 3, 1, 1)])
    with pytest.raises(RequestError, match=r"net\.onnx"):
        read(tmp_path, model)


def test_shared_parameters_count_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "a"), helper.make_node("MatMul", ["h", "w"], ["y"], "b")]
    model = read(tmp_path, graph(nodes, [weight("w", 8, 8)], (2, 8)))
    assert any("share" in note for note in model.notes)
    assert (model.parameters, model.macs) == (64, 128)
    assert [operator.tied for operator in model.operators] == [True, False]
    assert split_footprint(model, Split()).dense == 64


def test_shapes_that_are_worked_out_in_the_graph_are_followed(tmp_path: Path) -> None:
    make, ints = helper.make_node, numpy_helper.from_array
    nodes = [
        make("MatMul", ["x", "w"], ["h"], "project"),
        make("Shape", ["h"], ["s"], "shape"),
        make("Slice", ["s", "zero", "two"], ["front"], "front"),
        make("Mul", ["heads", "one"], ["many"], "many"),
        make("Concat", ["front", "many", "rest"], ["target"], "target", axis=0),
        make("Reshape", ["h", "target"], ["parts"], "parts"),
        make("Transpose", ["parts"], ["turned"], "turned", perm=[0, 2, 1, 3]),
        make("Relu", ["turned"], ["y"], "act"),
    ]
    import numpy as np

    numbers = {"zero": [0], "two": [2], "one": [1], "heads": [4], "rest": [-1]}
    constants = [ints(np.array(value, dtype=np.int64), name) for name, value in numbers.items()]
    model = read(tmp_path, graph(nodes, [weight("w", 16, 32), *constants], (2, 10, 16)))
    assert [operator.name for operator in model.operators] == ["project", "parts", "turned", "act"]
    assert model.operators[-1].output == (4, 10, 8)


def test_weights_that_are_turned_or_copied_in_the_graph_are_weights(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [
        make("Identity", ["w"], ["v"]),
        make("Transpose", ["w"], ["t"], perm=[1, 0]),
        make("MatMul", ["x", "t"], ["a"], "first"),
        make("MatMul", ["a", "v"], ["y"], "second"),
    ]
    model = read(tmp_path, graph(nodes, [weight("w", 8, 8)], (2, 8)))
    assert [operator.kind for operator in model.operators] == [Kind.LINEAR, Kind.LINEAR]
    assert model.parameters == 128


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_short_gets_one_message(tmp_path: Path, share: float) -> None:
    data = network().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(RequestError, match=r"cut\.onnx"):
        read_onnx(path)


def test_noise_is_refused_and_never_crashes(tmp_path: Path) -> None:
    generator, data = random.Random(7), network().SerializeToString()
    path = tmp_path / "noise.onnx"
    for _ in range(60):
        torn = bytearray(data)
        for _ in range(generator.randint(1, 8)):
            torn[generator.randrange(len(torn))] = generator.randrange(256)
        path.write_bytes(bytes(torn))
        try:
            read_onnx(path, allow_generic=True)
        except RequestError as error:
            assert "\n" not in str(error)


def test_impossible_extents_are_refused(tmp_path: Path) -> None:
    model = graph([helper.make_node("Relu", ["x"], ["y"])], [], (1, 1 << 40, 1 << 40))
    with pytest.raises(RequestError, match="which fits no device"):
        read(tmp_path, model)


def test_weights_beside_the_file_are_not_opened(tmp_path: Path) -> None:
    model = network()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../../../etc/passwd"
    assert read(tmp_path, model).parameters > 0


def test_the_command_line_takes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    text = ["search", str(path), "--cluster", "abci-v100", "--gpus", "4", "--global-batch", "64/gpu"]
    assert main(text) == 0
    assert "data4" in capsys.readouterr().out
    path.write_bytes(b"\x08garbage")
    assert main(text) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "net.onnx" in message
    assert main(["show", str(path)]) == 2
    path.write_bytes(network().SerializeToString())
    capsys.readouterr()
    assert main(["show", str(path)]) == 0
    assert "dense (linear) 8 to 10" in capsys.readouterr().out


def test_weights_in_constant_nodes_are_parameters(tmp_path: Path) -> None:
    held = helper.make_node("Constant", [], ["w"], value=weight("", 8, 3, 3, 3))
    convolution = helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", kernel_shape=[3, 3])

    (operator,) = read(tmp_path, graph([held, convolution], [weight("b", 8)])).operators

    assert (operator.kind, operator.bias) == (Kind.CONV, True)
    assert read(tmp_path, graph([held, convolution], [weight("b", 8)])).parameters == 8 * 27 + 8
