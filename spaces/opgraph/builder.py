"""Builder of operator graphs, which derives shapes and names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import Kind, Operator, Shape, window_extent

IMAGE_BYTES = 110e3
"""A compressed photograph: ImageNet's 1.28 million training images take 138 GB."""


@dataclass(frozen=True, slots=True)
class Value:
    """Output of an operator: its name (empty: the model's input) and its shape per sample."""

    name: str
    shape: Shape


class Builder:
    """Builder whose methods add an operator and return its value; ``block``: modules of the next operators."""

    def __init__(self, *input_shape: int) -> None:
        self.input_shape: Shape = input_shape
        self.operators: list[Operator] = []
        self._used: dict[str, int] = {}
        self.block = ""

    @property
    def start(self) -> Value:
        """The model's input."""
        return Value("", self.input_shape)

    def conv(
        self,
        x: Value,
        filters: int,
        kernel: int | Shape,
        *,
        stride: int | Shape = 1,
        padding: int | Shape = 0,
        groups: int = 1,
        bias: bool = False,
        ceil: bool = False,
    ) -> Value:
        """A convolution over all spatial axes of the value."""
        k, s, p = (per_axis(value, x) for value in (kernel, stride, padding))
        output = (filters, *self._window(x, k, s, p, ceil=ceil))
        return self._add(
            Kind.CONV,
            "conv",
            output,
            x,
            kernel=k,
            stride=s,
            padding=p,
            dilation=(1,) * len(k),
            groups=groups,
            bias=bias,
        )

    def up_conv(self, x: Value, filters: int, kernel: int, *, bias: bool = True) -> Value:
        """A transposed convolution with stride equal to its kernel, the factor of the extents."""
        k = per_axis(kernel, x)
        output = (filters, *(extent * step for extent, step in zip(x.shape[1:], k, strict=True)))
        return self._add(
            Kind.CONV_TRANSPOSE, "up_conv", output, x, kernel=k, stride=k, padding=(0,) * len(k), bias=bias
        )

    def pool(
        self,
        x: Value,
        kernel: int | Shape,
        *,
        stride: int | Shape | None = None,
        padding: int | Shape = 0,
        ceil: bool = False,
    ) -> Value:
        """A maximum or average over windows, with equal memory traffic."""
        k, p = per_axis(kernel, x), per_axis(padding, x)
        s = k if stride is None else per_axis(stride, x)
        output = (x.shape[0], *self._window(x, k, s, p, ceil=ceil))
        return self._add(Kind.POOL, "pool", output, x, kernel=k, stride=s, padding=p, dilation=(1,) * len(k))

    def global_pool(self, x: Value) -> Value:
        """An average over every spatial axis."""
        k = x.shape[1:]
        output = (x.shape[0], *(1 for _ in k))
        return self._add(Kind.POOL, "global_pool", output, x, kernel=k, stride=k, padding=(0,) * len(k))

    def batch_norm(self, x: Value) -> Value:
        """Normalisation over batch and space, per channel."""
        return self._add(Kind.BATCH_NORM, "batch_norm", x.shape, x)

    def relu(self, x: Value) -> Value:
        """An element-wise activation."""
        return self._add(Kind.ACTIVATION, "relu", x.shape, x)

    def dropout(self, x: Value) -> Value:
        """Dropout."""
        return self._add(Kind.DROPOUT, "dropout", x.shape, x)

    def add(self, *values: Value) -> Value:
        """A sum of equal shapes."""
        return self._add(Kind.ADD, "add", values[0].shape, *values)

    def multiply(self, x: Value, gate: Value) -> Value:
        """A product with one value per element or per channel."""
        return self._add(Kind.MULTIPLY, "multiply", x.shape, x, gate)

    def scaled(self, x: Value) -> Value:
        """A trained factor for every feature of the last axis."""
        return self._add(Kind.MULTIPLY, "scale", x.shape, x, weights=x.shape[-1])

    def layer_norm(self, x: Value) -> Value:
        """Normalisation over the last axis."""
        return self._add(Kind.LAYER_NORM, "layer_norm", x.shape, x)

    def tokens(self, x: Value) -> Value:
        """Pixels as the positions of a sequence, channels last: a view (frameworks keep channels last in memory)."""
        return self._add(Kind.VIEW, "tokens", (math.prod(x.shape[1:]), x.shape[0]), x)

    def picture(self, x: Value, *spatial: int) -> Value:
        """Positions of a sequence as pixels: a view."""
        return self._add(Kind.VIEW, "picture", (x.shape[-1], *spatial), x)

    def class_token(self, x: Value) -> Value:
        """A trained token before the tokens of a sequence."""
        return self._add(Kind.CONCAT, "class_token", (x.shape[0] + 1, x.shape[1]), x, weights=x.shape[1])

    def positions(self, x: Value) -> Value:
        """A trained vector added to every position."""
        return self._add(Kind.ADD, "positions", x.shape, x, weights=math.prod(x.shape))

    def first_token(self, x: Value) -> Value:
        """The first position of a sequence: a view."""
        return self._add(Kind.VIEW, "first_token", (x.shape[-1],), x)

    def attention(self, x: Value, heads: int) -> Value:
        """Scaled dot products of the queries, keys and values concatenated in ``x``."""
        length, width = x.shape[0], x.shape[1] // 3
        parts = self._add(Kind.VIEW, "heads", (3 * heads, length, width // heads), x)
        mixed = self._add(Kind.ATTENTION, "attention", (heads, length, width // heads), parts, reduced=length)
        return self._add(Kind.VIEW, "joined", (length, width), mixed)

    def concat(self, *values: Value) -> Value:
        """Values of equal spatial extents, concatenated along the channels."""
        output = (sum(value.shape[0] for value in values), *values[0].shape[1:])
        return self._add(Kind.CONCAT, "concat", output, *values)

    def crop(self, x: Value, *spatial: int) -> Value:
        """The middle part: a view."""
        return self._add(Kind.VIEW, "crop", (x.shape[0], *spatial), x)

    def flatten(self, x: Value) -> Value:
        """All elements as features: a view."""
        return self._add(Kind.VIEW, "flatten", (math.prod(x.shape),), x)

    def linear(self, x: Value, features: int, *, bias: bool = True) -> Value:
        """A matrix product of the last axis."""
        return self._add(Kind.LINEAR, "linear", (*x.shape[:-1], features), x, bias=bias)

    def table(self, rows: int, width: int, lookups: int) -> Value:
        """An embedding table that reads indices, not the model's input; a sample sums ``lookups`` of its rows."""
        return self._add(Kind.EMBEDDING, "table", (width,), Value("", (lookups,)), rows=rows, lookups=lookups)

    def interaction(self, values: Sequence[Value], keep: Value) -> Value:
        """Dot products of all pairs of equal vectors, concatenated with ``keep`` (DLRM)."""
        count, width = len(values), values[0].shape[0]
        output = (count * (count - 1) // 2 + keep.shape[0],)
        stacked = self._add(Kind.CONCAT, "stack", (count, width), *values)
        return self._add(Kind.INTERACTION, "interaction", output, stacked)

    def loss(self, x: Value) -> Value:
        """Softmax and loss over the last value."""
        return self._add(Kind.LOSS, "loss", x.shape, x)

    def build(
        self,
        name: str,
        source: str,
        *,
        parameters: float | None = None,
        macs: float | None = None,
        sample: str = "image",
        notes: tuple[str, ...] = (),
    ) -> GraphModel:
        """Return the model; ``parameters`` and ``macs`` are published values."""
        return GraphModel(
            name=name,
            source=source,
            input=self.input_shape,
            operators=tuple(self.operators),
            sample=sample,
            stored_bytes=IMAGE_BYTES if sample == "image" else None,
            published_parameters=parameters,
            published_macs=macs,
            notes=notes,
        )

    def _window(self, x: Value, kernel: Shape, stride: Shape, padding: Shape, *, ceil: bool) -> Shape:
        extents = []
        for size, k, s, p in zip(x.shape[1:], kernel, stride, padding, strict=True):
            extent = window_extent(size, k, s, p, p + (s - 1 if ceil else 0))
            if extent < 1:
                raise RequestError(f"a window of {k} with padding {p} does not fit an extent of {size}")
            extents.append(extent)
        return tuple(extents)

    def _add(self, kind: Kind, stem: str, output: Shape, *values: Value, **facts: object) -> Value:
        number = self._used[stem] = self._used.get(stem, 0) + 1
        name = f"{stem}{number}"
        self.operators.append(
            Operator(
                name=name,
                kind=kind,
                input=values[0].shape,
                output=output,
                inputs=tuple(value.name for value in values if value.name),
                extra_inputs=tuple(value.shape for value in values[1:]),
                block=self.block,
                **facts,  # type: ignore[arg-type]  # the fields of Operator, named by the methods above
            )
        )
        return Value(name, output)


def per_axis(value: int | Shape, x: Value) -> Shape:
    """Return one entry per spatial axis of ``x``.

    Raises:
        RequestError: ``value`` has another number of entries.
    """
    axes = len(x.shape) - 1
    entries = (value,) * axes if isinstance(value, int) else value
    if len(entries) != axes or axes < 1:
        raise RequestError(f"{axes} spatial axes need as many entries, but got {entries}")
    return entries
