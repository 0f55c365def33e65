"""Networks and platforms in ParaDL's formats: ``.net`` and ``.plat`` files.

A ``.net`` file has a line for the data set, one for the input (``NxCxWxH`` or with a third extent), one for the name of
the model, and one per layer: name, input, weight and output extents, and optionally the measured seconds per sample::

    ImageNet 1280000
    1x3x226x226
    ResNet-50
    CONV1, (3,226,226), (3,64,7,7), (64,113,113), 0.0001

Extents may also be written ``3x226x226``. The letters at the start of a layer's name give its kind. A ``.plat`` file
has ``name value`` lines: bytes of memory per device, operations and bytes per second, latency, devices in total and per
node.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import Kind, Operator, Shape
from forerun.spaces.reading import read_text

MAX_EXTENT = 1 << 40
MOST_LAYERS = 5_000

KINDS = {
    "CONV": Kind.CONV,
    "MPOOL": Kind.POOL,
    "APOOL": Kind.POOL,
    "RELU": Kind.ACTIVATION,
    "FC": Kind.LINEAR,
    "BNORM": Kind.BATCH_NORM,
    "ADD": Kind.ADD,
    "DROPOUT": Kind.DROPOUT,
}
"""Kinds by the first letters of a layer's name."""

_KIND = re.compile(r"[A-Za-z]+")
_GROUP = re.compile(r"\(([^()]*)\)")
_EXTENTS = re.compile(r"[0-9]+(?:x[0-9]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLayer:
    """One layer as written; extents are in the file's order."""

    name: str
    kind: str
    input: Shape
    """(C, W, H)."""
    weight: Shape
    """(C, F, K, K); empty: none."""
    output: Shape
    """(F, W, H)."""
    seconds: float | None = None
    """Measured seconds per sample, None where the file has none."""

    @property
    def input_elements(self) -> int:
        """Elements of the input of one sample."""
        return math.prod(self.input)

    @property
    def output_elements(self) -> int:
        """Elements of the output of one sample."""
        return math.prod(self.output)

    @property
    def weight_elements(self) -> int:
        """Elements of the weight; pools have a window but no weight."""
        return math.prod(self.weight) if self.kind in ("CONV", "FC") and self.weight else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NetFile:
    """An entire file; ``samples`` of the data set, None where its line has no number."""

    dataset: str
    samples: int | None
    input: Shape
    name: str
    layers: tuple[NetLayer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A ``.plat`` file in SI units."""

    memory_bytes: float
    flops_per_s: float
    bytes_per_s: float
    latency_s: float
    devices: int
    devices_per_node: int


def read_net(path: Path) -> GraphModel:
    """Return the model of a ``.net`` file.

    Raises:
        RequestError: it cannot be read; the message names file and line.
    """
    return model_of(parse_net(read_text(path), source=path.name))


def parse_net(text: str, *, source: str) -> NetFile:
    """Return the layers of a ``.net`` text.

    Raises:
        RequestError: a line has another form; the message names it.
    """
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(lines) < 4:
        raise RequestError(
            f"{source}: a .net file has lines for data set, input and name and one per layer, but got {len(lines)}"
        )
    if len(lines) - 3 > MOST_LAYERS:
        raise RequestError(f"{source}: a .net file has at most {MOST_LAYERS:,} layers, but got {len(lines) - 3:,}")
    dataset = lines[0][1]
    numbers = re.findall(r"\b[0-9]{1,18}\b", dataset)
    number, extents = lines[1]
    if not re.fullmatch(r"[0-9]{1,18}(\s*[xX,]\s*[0-9]{1,18}){1,4}", extents):
        raise RequestError(f"{source}, line {number}: the input is written NxCxWxH, but got {extents[:60]!r}")
    shape = tuple(int(part) for part in re.findall(r"[0-9]+", extents))
    if any(extent < 1 or extent > MAX_EXTENT for extent in shape):
        raise RequestError(
            f"{source}, line {number}: extents must be between 1 and {MAX_EXTENT}, but got {extents[:60]!r}"
        )
    layers = tuple(_layer(line, number, source) for number, line in lines[3:])
    return NetFile(
        dataset=dataset.split()[0].strip(","),
        samples=int(numbers[-1]) if numbers else None,
        input=shape[1:],
        name=lines[2][1],
        layers=layers,
    )


def _layer(line: str, number: int, source: str) -> NetLayer:
    where = f"{source}, line {number}"
    name = re.split(r"[\s,;(]", line, maxsplit=1)[0]
    match = _KIND.match(name)
    kind = match[0].upper() if match else ""
    if kind not in KINDS:
        raise RequestError(f"{where}: {unknown('kind of layer', kind or name, KINDS)}")
    # KIND, extents of input (C, D, ...), weight (C, F, K, ...) and output (F, D, ...), and optionally seconds per
    # sample; extents are in brackets, or between spaces as 1x3x8x8.
    groups = _GROUP.findall(line) or _EXTENTS.findall(line[len(name) :])
    if any(len(part) > 18 for group in groups for part in re.findall(r"[0-9]+", group)):
        raise RequestError(f"{where}: extents must be between 1 and {MAX_EXTENT}, but got {line[:80]!r}")
    shapes = [tuple(int(part) for part in re.findall(r"[0-9]+", group)) for group in groups]
    if len(shapes) == 2:  # without a weight
        shapes.insert(1, ())
    if len(shapes) != 3 or not shapes[0] or not shapes[2]:
        raise RequestError(f"{where}: a layer has input, weight and output extents, but got {line[:80]!r}")
    if any(extent < 1 or extent > MAX_EXTENT for shape in shapes for extent in shape):
        raise RequestError(f"{where}: extents must be between 1 and {MAX_EXTENT}, but got {line[:80]!r}")
    if kind == "CONV" and len(shapes[1]) != len(shapes[0]) + 1:
        raise RequestError(f"{where}: a convolution's weight is (C, F, K, K), but got {shapes[1]}")
    # Text after the extents, empty where the line ends with them.
    rest = re.split(r"[\s,;)]+", line.rstrip(" ,;"))[-1]
    try:
        seconds = float(rest) if rest and not _EXTENTS.fullmatch(rest) and not line.rstrip().endswith(")") else None
    except ValueError:
        raise RequestError(f"{where}: the time per sample is a number of seconds, but got {rest[:40]!r}") from None
    if seconds is not None and not 0 <= seconds < math.inf:
        raise RequestError(f"{where}: the time per sample is a number of seconds, but got {rest[:40]!r}")
    x, w, y = shapes
    return NetLayer(name=name, kind=kind, input=x, weight=w, output=y, seconds=seconds)


def model_of(net: NetFile) -> GraphModel:
    """Return the layers of ``net`` as a chain of operators, with strides derived from the extents.

    Raises:
        RequestError: an input is smaller than its output, or another law of operators is broken.
    """
    operators: list[Operator] = []
    names: dict[str, int] = {}
    for layer in net.layers:
        names[layer.name] = names.get(layer.name, 0) + 1
        count = names[layer.name]
        name = layer.name if count == 1 else f"{layer.name}_{count}"
        before = (operators[-1].name,) if operators else ()
        operators.append(_operator(layer, name, before))
    return GraphModel(
        name=net.name,
        source=f"ParaDL .net file; data set {net.dataset}",
        input=net.input,
        operators=tuple(operators),
        stored_bytes=None,
        notes=("layers of a .net file are taken as one chain: what an addition adds besides is not written there",),
    )


def _operator(layer: NetLayer, name: str, before: tuple[str, ...]) -> Operator:
    kind = KINDS[layer.kind]
    if kind is Kind.LINEAR:
        return Operator(
            name=name,
            kind=kind,
            input=(math.prod(layer.input),),
            output=(math.prod(layer.output),),
            inputs=before,
        )
    if kind not in (Kind.CONV, Kind.POOL):
        more = (layer.input,) if kind is Kind.ADD else ()
        return Operator(name=name, kind=kind, input=layer.input, output=layer.output, inputs=before, extra_inputs=more)
    kernel = layer.weight[2:] or layer.input[1:]
    if len(kernel) != len(layer.input) - 1 or len(layer.output) != len(layer.input):
        raise RequestError(
            f"layer {name}: window, input and output have equally many axes, but got {kernel}, {layer.input} "
            f"and {layer.output}"
        )
    stride = tuple(max(1, round(x / y)) for x, y in zip(layer.input[1:], layer.output[1:], strict=True))
    return Operator(
        name=name,
        kind=kind,
        input=layer.input,
        output=layer.output,
        inputs=before,
        kernel=kernel,
        stride=stride,
        padding=tuple(k // 2 for k in kernel),
        dilation=(1,) * len(kernel),
    )


_PLATFORM = {
    "memory": ("memory_bytes", 1.0),
    "flops": ("flops_per_s", 1.0),
    "bandwidth": ("bytes_per_s", 1.0),
    "latency": ("latency_s", 1.0),
    "gpus": ("devices", 1.0),
    "gpus_per_node": ("devices_per_node", 1.0),
}


def read_platform(path: Path) -> Platform:
    """Return the platform of a ``.plat`` file.

    The file has ``memory``, ``flops``, ``bandwidth``, ``latency``, ``gpus`` and ``gpus_per_node`` by name, or six bare
    numbers in this order.

    Raises:
        RequestError: a value is missing, unknown or not above 0.
    """
    values: dict[str, float] = {}
    lines = [line.split("#")[0].strip() for line in read_text(path).splitlines()]
    for line in filter(None, lines):
        words = [word for word in re.split(r"[\s:=,]+", line) if word]
        key = words[0].lower() if len(words) > 1 else list(_PLATFORM)[min(len(values), len(_PLATFORM) - 1)]
        if key not in _PLATFORM:
            raise RequestError(f"{path.name}: {unknown('value of a platform', key, _PLATFORM)}")
        try:
            number = float(words[-1])
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            raise RequestError(f"{path.name}: {key} is a number above 0, but got {words[-1][:40]!r}")
        values[key] = number
    missing = [key for key in _PLATFORM if key not in values]
    if missing:
        raise RequestError(f"{path.name}: a platform needs {', '.join(missing)} too")
    return Platform(
        memory_bytes=values["memory"],
        flops_per_s=values["flops"],
        bytes_per_s=values["bandwidth"],
        latency_s=values["latency"],
        devices=int(values["gpus"]),
        devices_per_node=int(values["gpus_per_node"]),
    )
