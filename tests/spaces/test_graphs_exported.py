"""Exported PyTorch programs: read without torch, counted as the catalogue counts, refused where torn or dynamic."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.graphs.exported_file import read_exported
from forerun.spaces.opgraph.graphs.torch_module import model_of_module
from forerun.spaces.opgraph.profile import load_graph_profile, with_graph_switches
from tests.fuzz.graphs_and_traces import call, exported_program, tensor


def write(path: Path, content: Any, name: str = "m/models/model.json") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content if isinstance(content, bytes | str) else json.dumps(content))
        archive.writestr("m/data/sample_inputs/model.pt", b"\x80\x04cos\nsystem\n.")  # a pickle that must stay closed
    return path


def test_a_program_by_hand(tmp_path: Path) -> None:
    model = read_exported(write(tmp_path / "m.pt2", exported_program()))
    assert [operator.kind for operator in model.operators] == [
        Kind.CONV, Kind.ACTIVATION, Kind.POOL, Kind.VIEW, Kind.LINEAR,
    ]  # fmt: skip
    assert model.input == (3, 8, 8)
    assert model.parameters == 8 * 27 + 8 + 1280
    assert model.macs == 8 * 27 * 64 + 1280
    assert model.operators[2].stride == (2, 2)


@pytest.mark.parametrize(("words", "sparse"), [({}, False), ({"sparse": True}, True), ({"sparse": False}, False)])
def test_a_table_has_gradients_of_all_rows_unless_it_is_sparse(
    words: dict[str, bool], sparse: bool, tmp_path: Path
) -> None:
    program = exported_program()
    network = program["graph_module"]["graph"]
    network["nodes"] = [call("rows", "aten.embedding.default", ["w", "x"], **words)]
    network["tensor_values"] |= {"x": tensor(4, 16), "w": tensor(1000, 32), "rows": tensor(4, 16, 32)}
    model = read_exported(write(tmp_path / "m.pt2", program))
    context = GraphContext(
        model=model, cluster=load_cluster("abci-v100"), profile=load_graph_profile("pytorch-ddp"), precision="fp32"
    )
    table = model.operators[0]
    assert float(context.sent_elements(table, 8.0)) == (8 * 16 * 32 if sparse else 1000 * 32)
    assert context.dense_parameters == (0 if sparse else 1000 * 32)
    opposite = with_graph_switches(context.profile, {"table-gradients": "dense" if sparse else "rows"})
    assert replace(context, profile=opposite).sparse(table) is not sparse


def test_dynamic_extents_are_refused(tmp_path: Path) -> None:
    open_shape = exported_program()
    open_shape["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][2] = {"as_expr": {"expr_str": "s77"}}
    with pytest.raises(RequestError, match=r"value 'x' has a dynamic extent .*s77.*; export with fixed shapes"):
        read_exported(write(tmp_path / "m.pt2", open_shape))


def test_operators_without_a_rule_are_named(tmp_path: Path) -> None:
    strange = exported_program()
    strange["graph_module"]["graph"]["nodes"][1] = call("act", "mylib.warp.default", ["conv"])
    path = write(tmp_path / "m.pt2", strange)
    with pytest.raises(RequestError, match=r"no cost rule for torch.ops.mylib.warp.default \(1\)"):
        read_exported(path)
    assert read_exported(path, allow_generic=True).operators[1].kind is Kind.GENERIC
    misspelt = exported_program()
    misspelt["graph_module"]["graph"]["nodes"][1] = call("act", "aten.rellu.default", ["conv"])
    with pytest.raises(RequestError, match="did you mean"):
        read_exported(write(tmp_path / "n.pt2", misspelt))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "the text ends inside"),
        (b"[" * 100_000, "levels deep"),
        (b"[]", "another form"),
        (b'{"graph_module": {"graph": {}, "signature": {"input_specs": []}}}', "another form"),
        (b'{"graph_module": {"graph": {"nodes": 5, "tensor_values": {}}, "signature": {"input_specs": []}}}', "form"),
    ],
)
def test_documents_of_another_form(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_exported(write(tmp_path / "m.pt2", content))


def test_archives_that_are_torn_or_hold_nothing(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.pt2", exported_program()).read_bytes()
    torn = tmp_path / "torn.pt2"
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match="or it is cut short"):
        read_exported(torn)
    with pytest.raises(RequestError, match=r"has no models/model\.json"):
        read_exported(write(tmp_path / "other.pt2", b"{}", name="other.txt"))
    with pytest.raises(RequestError, match=r"a weight of shape \(8, 4, 3, 3\)|reads 3 channels, but its weight has 4"):
        wrong = exported_program()
        wrong["graph_module"]["graph"]["tensor_values"]["w"] = tensor(8, 4, 3, 3)
        read_exported(write(tmp_path / "wrong.pt2", wrong))


@pytest.mark.slow  # imports torch and traces
def test_modules_of_this_program() -> None:
    torch = pytest.importorskip("torch", reason="exporting modules needs torch")
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    )
    model = model_of_module(module, (torch.zeros(2, 3, 8, 8),), name="small")
    assert model.name == "small"
    assert model.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert model.macs == 8 * 27 * 16 + 8 * 16 * 5
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = model_of_module(layer, (torch.zeros(2, 6, 32),))
    assert encoder.parameters == sum(parameter.numel() for parameter in layer.parameters())
    assert Kind.ATTENTION in {operator.kind for operator in encoder.operators}

    class Branching(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(RequestError, match=r"Branching cannot be exported by torch\.export"):
        model_of_module(Branching(), (torch.zeros(2, 3),))


def test_a_saved_program_is_the_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writing programs needs torch")
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh())
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, (torch.zeros(3, 8),)), buffer)
    path = tmp_path / "saved.pt2"
    path.write_bytes(buffer.getvalue())
    assert read_exported(path).parameters == 36
