"""Conversion rules for the nodes of a graph, one per kind of operator, shared by all languages.

A language maps its operator names to these rules; an unmapped operator is an error that names it, unless the user
allows a cost by bytes and operations alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.graphs.record import GraphCall, RecordedGraph
from forerun.spaces.opgraph.operator import Kind, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One node during conversion. ``tensors``: inputs that are activations; ``weights``: trained inputs, in order.

    ``get`` finds an attribute by its names in different languages.
    """

    graph: RecordedGraph
    node: GraphCall
    tensors: tuple[str, ...]
    weights: tuple[str, ...]

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first existing attribute."""
        return next((self.node.attributes[name] for name in names if name in self.node.attributes), default)

    def whole(self, value: str) -> Shape:
        """Return the shape of a value with the batch."""
        return self.graph.shape(self.node, value)

    def sample(self, value: str) -> Shape:
        """Return the shape of a value per sample."""
        return self.graph.per_sample(self.whole(value))

    @property
    def output(self) -> Shape:
        """The shape of the first result per sample."""
        return self.sample(self.node.outputs[0])

    @property
    def weight_elements(self) -> int:
        """Elements of all weights of the node."""
        return sum(math.prod(self.whole(name)) for name in self.weights)

    def refuse(self, why: str) -> RequestError:
        """Return the error for a node that breaks a law of its operator."""
        return RequestError(f"{self.graph.source}: {self.node.target} ({self.node.name}) {why}")


Facts = dict[str, Any]
Rule = Callable[[Call], Facts]


def convolution(call: Call) -> Facts:
    """A convolution: weight [filters, channels of a group, window]."""
    return _convolved(call, transposed=False)


def transposed_convolution(call: Call) -> Facts:
    """A transposed convolution: weight [channels, filters of a group, window]."""
    return _convolved(call, transposed=True)


def _convolved(call: Call, *, transposed: bool) -> Facts:
    if len(call.tensors) != 1 or not call.weights:
        raise call.refuse("has no weight among the graph's parameters; only such convolutions are trained")
    source, weight = call.sample(call.tensors[0]), call.whole(call.weights[0])
    axes = len(weight) - 2
    if axes < 1 or axes > 3 or len(source) != axes + 1 or len(call.output) != axes + 1:
        raise call.refuse(f"has a weight of shape {weight}, which does not fit an input of {source}")
    groups = int(call.get("group", "groups", default=1))
    channels = weight[0] if transposed else weight[1] * groups
    if groups < 1 or channels != source[0]:
        raise call.refuse(f"reads {source[0]} channels, but its weight has {channels}")
    return {
        "kind": Kind.CONV_TRANSPOSE if transposed else Kind.CONV,
        "kernel": weight[2:],
        "stride": _axes(call.get("strides", "stride", default=1), axes),
        "padding": _axes(call.get("pads", "padding", default=0), axes),
        "dilation": _axes(call.get("dilations", "dilation", default=1), axes),
        "groups": groups,
        "bias": len(call.weights) > 1,
    }


def _axes(value: Any, axes: int) -> Shape:
    """Return one entry per axis; the larger of ONNX's paddings of both sides counts."""
    if not isinstance(value, list | tuple):
        number = int(value) if isinstance(value, int | float) else 0  # "same" and "valid"
        return (number,) * axes
    entries = tuple(int(entry) for entry in value if isinstance(entry, int | float))
    if len(entries) == 2 * axes:
        return tuple(max(pair) for pair in zip(entries[:axes], entries[axes:], strict=True))
    return entries if len(entries) == axes else (entries[0],) * axes if entries else (1,) * axes


def linear(call: Call) -> Facts:
    """A product with a weight over the last axis, or a product of two activations without a weight."""
    if not call.weights or len(call.tensors) != 1:
        return product(call)
    weight = max(call.weights, key=lambda name: len(call.whole(name)))
    shape = call.whole(weight)
    if len(shape) != 2:
        return product(call)
    source, target = call.sample(call.tensors[0]), call.output
    if source[-1] not in shape or math.prod(shape) != source[-1] * target[-1]:
        raise call.refuse(f"has a weight of shape {shape}, which does not fit an input of {source}")
    return {"kind": Kind.LINEAR, "bias": len(call.weights) > 1}


def product(call: Call) -> Facts:
    """A product of two activations."""
    if not call.tensors:
        raise call.refuse("has no activation among its inputs")
    output, left = call.output, call.whole(call.tensors[0])
    if len(output) < 2:
        output = (1, *output)
    reduced = left[-1]
    return {"kind": Kind.MATMUL, "output": output, "reduced": reduced, "weights": call.weight_elements}


def attention(call: Call) -> Facts:
    """Fused scaled dot-product attention over queries, keys and values."""
    if len(call.tensors) < 3:
        raise call.refuse("reads queries, keys and values")
    keys = call.sample(call.tensors[1])
    return {"kind": Kind.ATTENTION, "reduced": keys[-2] if len(keys) > 1 else 1}


def embedding(call: Call) -> Facts:
    """Rows of a table; for an activation, a copy."""
    if not call.weights:
        return {"kind": Kind.COPY}
    table = call.whole(call.weights[0])
    if len(table) != 2:
        return {"kind": Kind.COPY, "weights": call.weight_elements}
    count = math.prod(call.output) // max(table[1], 1)
    # torch.nn.Embedding has gradients of all rows unless it is sparse; ONNX has no such attribute.
    return {
        "kind": Kind.EMBEDDING,
        "rows": table[0],
        "lookups": max(count, 1),
        "dense_gradient": not call.get("sparse", default=False),
    }


def batch_norm(call: Call) -> Facts:
    """A norm with a scale and a shift per channel."""
    return {"kind": Kind.BATCH_NORM}


def layer_norm(call: Call) -> Facts:
    """A norm with a scale and a shift per feature."""
    return {"kind": Kind.LAYER_NORM}


def pool(call: Call) -> Facts:
    """A sliding window over space."""
    source = call.sample(call.tensors[0]) if call.tensors else ()
    window = call.get("kernel_shape", "kernel_size")
    if window is None or len(source) < 2 or len(call.output) != len(source):
        return {"kind": Kind.POOL}
    axes = len(source) - 1
    kernel = _axes(window, axes)
    stride = call.get("strides", "stride", default=None)
    return {
        "kind": Kind.POOL,
        "kernel": kernel,
        "stride": _axes(stride, axes)
        if stride
        else ((1,) * axes if "kernel_shape" in call.node.attributes else kernel),
        "padding": _axes(call.get("pads", "padding", default=0), axes),
        "dilation": _axes(call.get("dilations", "dilation", default=1), axes),
    }


def binary(call: Call) -> Facts:
    """A sum or difference; with one activation, a pass over it."""
    return _joined(call, Kind.ADD)


def scaling(call: Call) -> Facts:
    """A product or quotient of equal shapes; with one activation, a pass over it."""
    return _joined(call, Kind.MULTIPLY)


def _joined(call: Call, kind: Kind) -> Facts:
    several = len(call.tensors) > 1
    return {"kind": kind if several else Kind.ACTIVATION, "weights": call.weight_elements}


def of_kind(kind: Kind) -> Rule:
    """Return a rule for operators defined by their kind alone."""

    def rule(call: Call) -> Facts:
        return {"kind": kind, "weights": call.weight_elements}

    return rule


activation, dropout, softmax, copy = (
    of_kind(kind) for kind in (Kind.ACTIVATION, Kind.DROPOUT, Kind.SOFTMAX, Kind.COPY)
)
concat, upsample, view, loss = (of_kind(kind) for kind in (Kind.CONCAT, Kind.UPSAMPLE, Kind.VIEW, Kind.LOSS))


def generic(call: Call) -> Facts:
    """An operator known only by its inputs and outputs: one operation per element of both."""
    moved = sum(math.prod(call.sample(name)) for name in call.tensors) + math.prod(call.output)
    return {
        "kind": Kind.GENERIC,
        "flops": float(moved),
        "moved_elements": float(moved),
        "weights": call.weight_elements,
    }
