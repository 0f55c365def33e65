"""ParaDL's published logs, digit by digit, from its own assumptions; and its files."""

from pathlib import Path

import pytest
from paradl_formulas import Oracle, abci_network
from paradl_resnet50 import SAMPLES, SECONDS_PER_SAMPLE, resnet50_net

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import WEIGHTED
from forerun.spaces.opgraph.net_file import parse_net, read_net, read_platform

NET = parse_net(resnet50_net(), source="resnet50.net")
CONVOLUTIONS = frozenset(layer.name for layer in NET.layers if layer.kind == "CONV")
ORACLE = Oracle(
    layers=NET.layers,
    samples=SAMPLES,
    seconds_per_sample=SECONDS_PER_SAMPLE,
    split=CONVOLUTIONS,
    network=abci_network(),
)


def digits(value: float, printed: str) -> bool:
    """Whether ``value`` prints as ``printed`` at the digits that stand there."""
    places = len(printed.partition(".")[2])
    return abs(value - float(printed)) <= 0.5000001 * 10**-places


def test_the_file_has_the_published_sums() -> None:
    counted = [layer for layer in NET.layers if layer.kind not in ("RELU", "BNORM")]
    assert sum(layer.weight_elements for layer in NET.layers) == 22_734_016
    assert sum(layer.input_elements for layer in counted) == 14_971_596
    assert sum(layer.output_elements for layer in counted) == 14_819_368
    assert len(CONVOLUTIONS) == 49
    assert sum(layer.output_elements for layer in NET.layers if layer.kind == "CONV") == 9_096_256


@pytest.mark.parametrize(
    ("ranks", "compute", "communication"),
    [
        (4, "998.24064", "13.9104096"),
        (8, "499.12032", "32.8884724"),
        (64, "62.39004", "5.67828639504"),
        (1024, "3.8993775", "1.5584128296"),
    ],
)
def test_data_parallel(ranks: int, compute: str, communication: str) -> None:
    cost = ORACLE.data(ranks, 64)
    assert digits(cost.compute_s, compute)
    assert digits(cost.communication_s, communication)
    assert cost.memory_bytes == 15_434_845_696


@pytest.mark.parametrize(
    ("ranks", "compute", "communication", "memory"),
    [
        (4, "1150.44474057", "2175.1573824", 15_267_412_576),
        (8, "676.69177066", "10404.0742512", 15_257_607_320),
        (64, "262.157921995", "16616.8494576", 15_253_269_970),
    ],
)
def test_filter_parallel(ranks: int, compute: str, communication: str, memory: int) -> None:
    cost = ORACLE.filter(ranks, 64)
    assert digits(cost.compute_s, compute)
    assert digits(cost.communication_s, communication)
    assert cost.memory_bytes == pytest.approx(memory, abs=0.5)


@pytest.mark.parametrize(
    ("ranks", "compute", "communication"),
    [(16, "287.611185", "614.005884"), (64, "71.9027962855", "158.7424734"), (1024, "4.54425672524", "11.2944249413")],
)
def test_data_and_filter_parallel(ranks: int, compute: str, communication: str) -> None:
    cost = ORACLE.data_filter(ranks, 64)
    assert digits(cost.compute_s, compute)
    assert digits(cost.communication_s, communication)
    assert cost.memory_bytes == 15_310_729_600


def test_serial_and_pipeline_by_their_formulas() -> None:
    serial = ORACLE.serial(64)
    assert serial.total_s == pytest.approx(SAMPLES * SECONDS_PER_SAMPLE)
    one = ORACLE.pipeline([NET.layers], 64, 4)
    assert one.compute_s == pytest.approx(serial.compute_s)
    assert one.communication_s == 0.0
    halves = ORACLE.pipeline([NET.layers[:70], NET.layers[70:]], 64, 4)
    assert serial.compute_s / 2 < halves.compute_s < serial.compute_s * 5 / 4


def test_hybrids_fill_nodes() -> None:
    with pytest.raises(RequestError, match="whole nodes of 4, but got 6"):
        ORACLE.data_filter(6, 64)
    spatial = ORACLE.data_spatial(32, 256)
    assert spatial.compute_s == pytest.approx(ORACLE.data_filter(32, 64).compute_s)
    assert spatial.communication_s > 0


def test_a_net_file_becomes_a_model(tmp_path: Path) -> None:
    path = tmp_path / "resnet50.net"
    path.write_text(resnet50_net())
    model = read_net(path)
    assert (model.name, model.input) == ("ResNet-50", (3, 226, 226))
    weighted = [operator for operator in model.operators if operator.kind in WEIGHTED]
    assert sum(operator.weight_elements for operator in weighted) == 22_734_016
    assert weighted[0].stride == (2, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("CONX1, (3,4,4), (3,8,3,3), (8,4,4)", "line 4: unknown kind of layer 'CONX'; known: ADD"),
        ("CONV1, (3,4,4), (8,4,4)", r"a convolution's weight is \(C, F, K, K\)"),
        ("CONV1, (3,4,4)", "a layer has input, weight and output extents"),
        ("CONV1, (3,0,4), (3,8,3,3), (8,4,4)", "extents must be between 1"),
        ("CONV1, (3,4,4), (3,8,3,3), (8,4,4), soon", "is a number of seconds, but got 'soon'"),
        ("CONV1, (3,4,4), (3,8,3,3), (8,4,4), -1.0", "is a number of seconds, but got '-1.0'"),
        ("17", "unknown kind of layer"),
    ],
)
def test_lines_that_are_no_layers(line: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_net(f"data\n1x3x4x4\nname\n{line}\n", source="bad.net")


def test_files_that_are_no_networks(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="but got 1"):
        parse_net("data\n", source="short.net")
    with pytest.raises(RequestError, match="line 2: the input is written NxCxWxH"):
        parse_net("data\nthree\nname\nFC1, (4), (4,2), (2)\n", source="bad.net")
    broken = tmp_path / "broken.net"
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="is not UTF-8 text"):
        read_net(broken)


def test_seconds_are_read_where_they_stand() -> None:
    text = "data 10\n1x3x4x4\nname\nCONV1, 3x4x4, 3x8x3x3, 8x4x4, 0.5\nRELU1, 8x4x4, 8x4x4\n"
    layers = parse_net(text, source="t.net").layers
    assert [layer.seconds for layer in layers] == [0.5, None]


def test_platforms(tmp_path: Path) -> None:
    path = tmp_path / "abci.plat"
    path.write_text("memory 16e9\nflops: 15.7e12\nbandwidth=12.5e9\nlatency 30e-6\ngpus 1024\ngpus_per_node 4\n")
    platform = read_platform(path)
    assert (platform.memory_bytes, platform.devices, platform.devices_per_node) == (16e9, 1024, 4)
    path.write_text("16e9\n15.7e12\n12.5e9\n30e-6\n1024\n4\n")
    assert read_platform(path) == platform
    for text, message in (
        ("memory 16e9\n", "needs flops"),
        ("memroy 1\n", "did you mean memory"),
        ("memory x\n", "above 0"),
    ):
        path.write_text(text)
        with pytest.raises(RequestError, match=message):
            read_platform(path)
