"""Reader of PyTorch programs written by ``torch.export.save`` (``.pt2``): the JSON graph inside the archive.

Neither torch nor pickle is used: weights and sample inputs in the archive are not opened, so that nothing in the file
can be executed.
"""

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import shown
from forerun.spaces.opgraph.graphs import rules
from forerun.spaces.opgraph.graphs.convert import model_of_graph
from forerun.spaces.opgraph.graphs.record import GraphCall, RecordedGraph
from forerun.spaces.opgraph.graphs.rules import Rule
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.reading import LARGEST_RATIO, SMALL_BYTES, check_ratio, opened, size_of

MAX_GRAPH_BYTES = 256 << 20
LONGEST_BLOCK = 400
GRAPHS = ("models/model.json", "serialized_exported_program.json")
"""Paths of the graph in versions of the archive."""

_ACTIVATIONS = (
    "relu relu_ leaky_relu leaky_relu_ prelu sigmoid sigmoid_ tanh tanh_ elu elu_ gelu silu silu_ mish hardtanh "
    "hardtanh_ hardswish hardswish_ hardsigmoid hardsigmoid_ softplus clamp clamp_ erf exp log sqrt rsqrt "
    "reciprocal pow neg abs sin cos floor ceil round sign where masked_fill "
    "masked_fill_ eq gt lt ge le ne logical_not bitwise_not relu6"
)
_COPIES = (
    "contiguous clone to _to_copy permute_copy pad constant_pad_nd roll flip index_select index repeat tile "
    "expand_copy pixel_shuffle pixel_unshuffle channel_shuffle triu tril cumsum gather scatter"
)
_VIEWS = (
    "view reshape flatten unflatten squeeze unsqueeze permute transpose t expand select slice split split_with_sizes "
    "chunk unbind alias detach detach_ narrow view_as expand_as unsafe_split _unsafe_view unfold"
)
_REDUCTIONS = (
    "mean sum amax amin max min adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d"
)

RULES: dict[str, Rule] = {
    "batch_norm": rules.batch_norm,
    "group_norm": rules.batch_norm,
    "instance_norm": rules.batch_norm,
    "native_batch_norm": rules.batch_norm,
    "_native_batch_norm_legit_functional": rules.batch_norm,
    "layer_norm": rules.layer_norm,
    "native_layer_norm": rules.layer_norm,
    "rms_norm": rules.layer_norm,
    "linear": rules.linear,
    "addmm": rules.linear,
    "mm": rules.linear,
    "matmul": rules.linear,
    "bmm": rules.product,
    "baddbmm": rules.product,
    "embedding": rules.embedding,
    "softmax": rules.softmax,
    "_softmax": rules.softmax,
    "log_softmax": rules.softmax,
    "_log_softmax": rules.softmax,
    "dropout": rules.dropout,
    "dropout_": rules.dropout,
    "feature_dropout": rules.dropout,
    "native_dropout": rules.dropout,
    "cat": rules.concat,
    "stack": rules.concat,
    "scaled_dot_product_attention": rules.attention,
    "cross_entropy_loss": rules.loss,
    "nll_loss_forward": rules.loss,
    **{f"conv{axes}d": rules.convolution for axes in (1, 2, 3)},
    "convolution": rules.convolution,
    **{f"conv_transpose{axes}d": rules.transposed_convolution for axes in (1, 2, 3)},
    **{f"{kind}_pool{axes}d": rules.pool for kind in ("max", "avg") for axes in (1, 2, 3)},
    **{name: rules.pool for name in _REDUCTIONS.split()},
    **{name: rules.activation for name in _ACTIVATIONS.split()},
    **{name: rules.binary for name in ("add", "add_", "sub", "sub_", "rsub", "maximum", "minimum")},
    **{name: rules.scaling for name in ("mul", "mul_", "div", "div_")},
    **{name: rules.copy for name in _COPIES.split()},
    **{name: rules.view for name in _VIEWS.split()},
    **{
        f"upsample_{kind}": rules.upsample
        for kind in ("nearest1d", "nearest2d", "nearest3d", "bilinear2d", "trilinear3d", "bicubic2d")
    },
}
"""ATen operators with a cost rule, without namespace and overload."""

SKIPPED = frozenset({"sym_size", "arange", "full", "zeros", "ones", "lift_fresh_copy", "_assert_tensor_metadata"})


def read_exported(path: Path, *, allow_generic: bool = False) -> GraphModel:
    """Return the model of an exported program.

    Raises:
        RequestError: the file is truncated or not such an archive, a shape is dynamic, or an operator has no rule and
            ``allow_generic`` is not set.
    """
    try:
        with opened(path) as stream, zipfile.ZipFile(stream) as archive:
            text = _graph_text(archive, size_of(stream), path)
    except zipfile.BadZipFile:
        raise RequestError(f"{path} is not an exported PyTorch program (.pt2), or it is cut short") from None
    except (EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise RequestError(f"{path} cannot be read: {shown(error)}") from None
    document = read_json(text, str(path))
    try:
        graph = graph_of_document(document, name=path.stem, source=path.name)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise RequestError(f"{path}: the graph has another form than torch.export writes ({error!r:.120})") from None
    return model_of_graph(graph, RULES, allow_generic=allow_generic, skipped=SKIPPED)


def _graph_text(archive: zipfile.ZipFile, size: int, path: Path) -> str:
    """Return the text of the graph; the archive's stated size is not trusted."""
    entries = [info for info in archive.infolist() if info.filename.endswith(GRAPHS)]
    if not entries:
        raise RequestError(f"{path} is not an exported PyTorch program: it has no {GRAPHS[0]}")
    with archive.open(entries[0]) as stream:
        packed = min(entries[0].compress_size, size)
        text = stream.read(min(MAX_GRAPH_BYTES, max(SMALL_BYTES, LARGEST_RATIO * packed)) + 1)
    check_ratio(path, packed, len(text))
    if len(text) > MAX_GRAPH_BYTES:
        raise RequestError(f"{path}: its graph is larger than {MAX_GRAPH_BYTES} bytes")
    return text.decode("utf-8-sig")


def graph_of_document(document: Any, *, name: str, source: str) -> RecordedGraph:
    """Return the record of a program from the document of ``torch.export.save``.

    Raises:
        RequestError: a shape is dynamic, or the form is invalid.
    """
    graph = document["graph_module"]["graph"]
    signature = document["graph_module"]["signature"]
    weights: set[str] = set()
    constants: set[str] = set()
    inputs: list[str] = []
    for spec in signature["input_specs"]:
        (kind, body), *_ = spec.items()
        argument = body.get("arg", {})
        value = _text((argument.get("as_tensor") or argument).get("name") or "")
        if kind == "parameter":
            weights.add(value)
        elif kind == "user_input" and value in graph["tensor_values"]:
            inputs.append(value)
        elif value:
            constants.add(value)
    shapes = {
        value: tuple(_extent(size, value, source) for size in meta["sizes"])
        for value, meta in graph["tensor_values"].items()
    }
    nodes = tuple(_node(number, node) for number, node in enumerate(graph["nodes"]))
    if not inputs:
        raise RequestError(f"{source}: the program has no tensor among its inputs")
    first = shapes[inputs[0]]
    return RecordedGraph(
        name=name,
        source=source,
        nodes=nodes,
        shapes=shapes,
        inputs=tuple(inputs),
        weights=frozenset(weights),
        constants=frozenset(constants),
        batch=first[0] if first and first[0] > 0 else 1,
    )


def _extent(size: Any, value: str, source: str) -> int:
    if isinstance(size, dict) and isinstance(size.get("as_int"), int):
        return int(size["as_int"])
    words = json.dumps(size)[:80]
    raise RequestError(f"{source}: value {value!r} has a dynamic extent {words}; export with fixed shapes")


def _node(number: int, node: Any) -> GraphCall:
    parts = _text(node["target"]).split(".")
    # torch.ops.aten.conv2d.default; operators of other namespaces keep their namespace.
    target = parts[3] if parts[:3] == ["torch", "ops", "aten"] and len(parts) > 3 else node["target"]
    inputs: list[str] = []
    attributes: dict[str, Any] = {}
    for one in node["inputs"]:
        argument = one["arg"]
        names = _values(argument)
        if names:
            inputs.extend(names)
        elif argument:
            attributes[_text(one["name"])] = _plain(next(iter(argument.values())))
    outputs = [name for argument in node["outputs"] for name in _values(argument)]
    return GraphCall(
        name=_text(node.get("name") or "") or (outputs[0] if outputs else f"{target}.{number}"),
        target=target,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=attributes,
        block=_block(node.get("metadata")),
    )


def _block(metadata: Any) -> str:
    """Return the innermost module of an operator from ``KEY,PATH,CLASS;KEY,PATH,CLASS;...``."""
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    parts = stack.split(";")[-1].split(",") if isinstance(stack, str) else []
    path = parts[1] if len(parts) > 1 else ""
    return path.strip().removeprefix("L['self']").lstrip(".")[:LONGEST_BLOCK]


def _text(value: Any) -> str:
    """Return a name."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a name")
    return value


def _plain(value: Any) -> Any:
    """Return the value of an attribute: a scalar, a list of numbers, or a mapping (not read by any rule)."""
    if isinstance(value, list) and not all(isinstance(one, int | float | None) for one in value):
        return None
    return value


def _values(argument: Any) -> list[str]:
    """Return the names of the tensors of one argument."""
    if argument.get("as_tensor"):
        return [_text(argument["as_tensor"]["name"])]
    values = argument.get("as_tensors") or argument.get("as_optional_tensors") or []
    names = [(one.get("as_tensor") or one).get("name", "") for one in values]
    return [_text(name) for name in names if name]
