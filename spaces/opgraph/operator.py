"""One operator of an operator graph, with shapes per sample and the quantities derived from them.

Shapes are per sample, channels first: ``(channels, *spatial)`` for images and volumes, ``(features,)`` after
flattening, ``(positions, features)`` for sequences. Devices, precisions and splits are not part of this module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from forerun.spaces.errors import RequestError

Shape = tuple[int, ...]


class Kind(Enum):
    """Computation of an operator; the value is its name in files and outputs.

    ``VIEW`` moves nothing (reshape, flatten, slice without copy). ``GENERIC`` is known only by its operations and
    bytes. ``INTERACTION`` is the dot product of all pairs of feature vectors (DLRM). ``ATTENTION`` is the fused scaled
    dot product. ``MATMUL`` multiplies two activations.
    """

    CONV = "conv"
    CONV_TRANSPOSE = "conv_transpose"
    LINEAR = "linear"
    MATMUL = "matmul"
    ATTENTION = "attention"
    EMBEDDING = "embedding"
    INTERACTION = "interaction"
    BATCH_NORM = "batch_norm"
    LAYER_NORM = "layer_norm"
    POOL = "pool"
    ACTIVATION = "activation"
    ADD = "add"
    MULTIPLY = "multiply"
    CONCAT = "concat"
    DROPOUT = "dropout"
    SOFTMAX = "softmax"
    UPSAMPLE = "upsample"
    COPY = "copy"
    VIEW = "view"
    LOSS = "loss"
    GENERIC = "generic"


WEIGHTED = frozenset({Kind.CONV, Kind.CONV_TRANSPOSE, Kind.LINEAR})
"""Kinds that are matrix products with a weight, which filter and channel strategies split."""

WINDOWED = frozenset({Kind.CONV, Kind.POOL})
"""Kinds that read neighbours along spatial axes and need a halo when these are split."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator, with shapes per sample.

    For convolutions and pools ``kernel``, ``stride``, ``padding`` and ``dilation`` have one entry per spatial axis.

    Raises:
        RequestError: a shape is empty or not positive, or the window has no output.
    """

    name: str
    kind: Kind
    input: Shape
    """Shape of the first input."""
    output: Shape
    """Shape of the result."""
    inputs: tuple[str, ...] = ()
    """Names of the operators that produce its inputs, in order; an empty tuple means the model's input."""
    extra_inputs: tuple[Shape, ...] = ()
    """Shapes of further inputs."""
    kernel: Shape = ()
    stride: Shape = ()
    padding: Shape = ()
    """Padding of both sides."""
    dilation: Shape = ()
    groups: int = 1
    """Groups of a convolution."""
    bias: bool = False
    """Whether it has a vector over the output channels."""
    tied: bool = False
    """Whether its weight is another operator's, which counts it."""
    reduced: int = 0
    """Length of the contraction of a matrix product of two activations."""
    rows: int = 0
    """Rows of an embedding table."""
    lookups: int = 0
    """Rows of the table that one sample sums."""
    dense_gradient: bool = False
    """Whether the gradient of a table has all its rows instead of those that a step looks up."""
    flops: float = 0.0
    """Operations per sample, only for ``GENERIC``."""
    moved_elements: float = 0.0
    """Moved elements per sample, only for ``GENERIC``."""
    weights: int = 0
    """Parameters of an operator without a matrix or norm of its own (``GENERIC``, a scale, positions)."""
    block: str = ""
    """Its modules, outermost first ("layer1.0"); empty if unknown."""
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Values filled in by the importer, by field."""

    def __post_init__(self) -> None:
        for shape in (self.input, self.output, *self.extra_inputs):
            if any(extent < 1 for extent in shape):
                raise RequestError(f"operator {self.name}: extents are at least 1, but got {'x'.join(map(str, shape))}")
        if self.kind in (Kind.CONV, Kind.CONV_TRANSPOSE) and (
            self.input[0] % self.groups or self.output[0] % self.groups
        ):
            raise RequestError(
                f"operator {self.name}: groups divide the channels, but got {self.groups} groups of "
                f"{self.input[0]} input and {self.output[0]} output channels"
            )

    @property
    def spatial(self) -> Shape:
        """Spatial extents of the output; empty without spatial axes."""
        return self.output[1:] if self.kind is not Kind.LINEAR else ()

    @property
    def input_spatial(self) -> Shape:
        """Spatial extents of the input."""
        return self.input[1:] if self.kind is not Kind.LINEAR else ()

    @property
    def channels_in(self) -> int:
        """Channels (features) that a weight contracts over."""
        return self.input[-1] if self.kind is Kind.LINEAR else self.input[0]

    @property
    def filters(self) -> int:
        """Channels (features) of the output."""
        return self.output[-1] if self.kind is Kind.LINEAR else self.output[0]

    @cached_property
    def input_elements(self) -> int:
        """Elements of all inputs per sample."""
        return sum(math.prod(shape) for shape in (self.input, *self.extra_inputs))

    @cached_property
    def output_elements(self) -> int:
        """Elements of the output per sample."""
        return math.prod(self.output)

    @property
    def kernel_volume(self) -> int:
        """Elements of the window of one output; 1 except for convolutions and pools."""
        return math.prod(self.kernel)

    @cached_property
    def weight_elements(self) -> int:
        """Elements of the weight without bias."""
        if self.kind in (Kind.CONV, Kind.CONV_TRANSPOSE):
            return self.channels_in * self.filters // self.groups * self.kernel_volume
        if self.kind is Kind.LINEAR:
            return self.channels_in * self.filters
        if self.kind is Kind.EMBEDDING:
            return self.rows * self.output[-1]
        return self.weights

    @cached_property
    def parameters(self) -> int:
        """Trainable parameters."""
        if self.kind is Kind.BATCH_NORM:
            return 2 * self.output[0]
        if self.kind is Kind.LAYER_NORM:
            return 2 * self.output[-1]
        return self.weight_elements * (not self.tied) + (self.filters if self.bias else 0)

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward pass: only matrix products, as in publications."""
        if self.kind is Kind.CONV:
            return self.weight_elements * math.prod(self.spatial)
        if self.kind is Kind.CONV_TRANSPOSE:
            return self.weight_elements * math.prod(self.input_spatial)
        if self.kind is Kind.LINEAR:
            return self.weight_elements * math.prod(self.output[:-1])
        if self.kind is Kind.MATMUL:
            return self.output_elements * self.reduced
        if self.kind is Kind.ATTENTION:
            return 2 * self.output_elements * self.reduced
        if self.kind is Kind.INTERACTION:
            vectors, width = self.input
            return vectors * vectors * width
        return int(self.flops / 2)

    @property
    def halo(self) -> Shape:
        """Rows that a part of the input needs from a neighbour along each spatial axis: half the window."""
        if self.kind not in WINDOWED or not self.kernel:
            return (0,) * len(self.spatial)
        spread = self.dilation or (1,) * len(self.kernel)
        return tuple((k - 1) * d // 2 for k, d in zip(self.kernel, spread, strict=True))


def window_extent(extent: int, kernel: int, stride: int, before: int, after: int) -> int:
    """Return the output extent of a convolution or pool along one axis; 0 or less where the window does not fit.

    The input is padded by ``before`` and ``after``.
    """
    return (extent + before + after - kernel) // stride + 1
