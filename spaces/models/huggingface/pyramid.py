"""Image encoders of stages with decreasing positions and increasing channels, and classifiers with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.towers import square
from forerun.spaces.models.mixers import Attention, Convolution, Convolutions
from forerun.spaces.models.model import FeedForward, Layer, Model, joined

IMAGE = 224
"""Default side of an image, that of ImageNet training (arXiv 1409.4842, section 6)."""

LARGEST = 65_536
"""Limit of channels, positions of a kernel, or layers of a stage."""


class Pyramid:
    """A builder of layers, starting at the image.

    ``channels`` and ``sides``: size of the next layer's input; ``outside``: parameters outside layers. Convolutions of
    one resolution between two calls of ``end`` are one layer.
    """

    def __init__(self, channels: int, sides: tuple[int, int]) -> None:
        self.channels = channels
        self.sides = sides
        self.outside = 0
        self.layers: list[Layer] = []
        self._members: list[Convolution] = []
        self._extra = 0

    @property
    def positions(self) -> int:
        """Positions of the next layer's input."""
        return self.sides[0] * self.sides[1]

    def conv(
        self,
        outputs: int,
        kernel: int | Sequence[int] = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        bias: bool = False,
        norm: int = 2,
        inputs: int | None = None,
    ) -> None:
        """Add a convolution; ``inputs``: its input channels if not the last output's."""
        sides = (kernel, kernel) if isinstance(kernel, int) else tuple(kernel)
        if not all(type(size) is int and 1 <= size <= LARGEST for size in (outputs, stride, *sides)):
            raise ValueError(f"a convolution needs sizes in 1..{LARGEST}")
        if stride > 1:
            self.end()
            self.pool(stride)
        self._members.append(
            Convolution(
                inputs=self.channels if inputs is None else inputs,
                outputs=outputs,
                taps=sides[0] * sides[1],
                groups=groups,
                bias=bias,
                norm=norm,
            )
        )
        self.channels = outputs

    def depthwise(self, kernel: int, *, stride: int = 1, bias: bool = False, norm: int = 2) -> None:
        """Add a depthwise convolution."""
        self.conv(self.channels, kernel, stride=stride, groups=self.channels, bias=bias, norm=norm)

    def pool(self, stride: int) -> None:
        """Keep every ``stride``-th position per side, rounded up."""
        self.sides = (-(-self.sides[0] // stride), -(-self.sides[1] // stride))

    def squeeze(self, inner: int) -> None:
        """Add a gate of channels by their means, through ``inner`` channels (arXiv 1709.01507)."""
        self.add((2 * inner + 1) * self.channels + inner)

    def add(self, parameters: int) -> None:
        """Add parameters without further cost to the current layer."""
        self._extra += parameters

    def end(self, name: str = "convolution") -> None:
        """Make a layer of the convolutions since the last call."""
        if self._members:
            mixer = Convolutions(members=tuple(self._members), extra=self._extra)
            self._layer(name, mixer, None, norms=0, extra=0)
            self._members, self._extra = [], 0

    def attend(
        self,
        heads: int,
        inner: int,
        *,
        keys: int | None = None,
        bias: bool = True,
        norms: int = 2,
        extra: int = 0,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
    ) -> None:
        """Add a layer of attention and a feed-forward of width ``inner``.

        ``keys``: positions attended by each query, in its window or in a shrunk image (whose keys and values are
        counted as computed from every position).
        """
        self.end()
        if self.channels % heads:
            raise RequestError(f"{self.channels} channels must be divisible by {heads} heads")
        width = head_dim or self.channels // heads
        attention = Attention(
            heads=heads,
            kv_heads=heads,
            head_dim=width,
            value_head_dim=value_head_dim or width,
            causal=False,
            window=None if keys is None or keys >= self.positions else keys,
            query_key_value_bias=bias,
            output_bias=bias,
        )
        mlp = FeedForward(hidden=inner, gated=False, bias=bias) if inner else None
        self._layer("image", attention, mlp, norms=norms, extra=extra + self._extra)
        self._extra = 0

    def _layer(
        self, name: str, mixer: Convolutions | Attention, mlp: FeedForward | None, *, norms: int, extra: int
    ) -> None:
        one = Layer(
            name=name,
            count=1,
            mixer=mixer,
            mlp=mlp,
            norms=norms,
            norm_bias=True,
            hidden=self.channels,
            tokens=self.positions,
            extra=extra,
        )
        if len(self.layers) == MOST_LAYERS:
            raise RequestError(f"an image classifier may have {MOST_LAYERS} layers, but this has more")
        self.layers.append(one)


Build: TypeAlias = Callable[[Fields, Pyramid], None]
"""Function that adds the layers of one family."""
_UNUSED = ("num_encoder_blocks", "num_stages", "num_hidden_layers", "hidden_size")


def built(build: Build, fields: Fields, known: Sequence[str], image: int = IMAGE) -> Pyramid:
    """Make the layers that ``build`` adds for the fields of a configuration.

    ``known``: fields without an effect on the model; ``image``: default of the image's side.

    Raises
    ------
    RequestError
        Lists of the configuration do not fit together.
    """
    pyramid = Pyramid(fields.size("num_channels", 3), square(fields, "image_size", image))
    try:
        build(fields, pyramid)
        pyramid.end()
    except (IndexError, TypeError, ValueError) as error:
        raise RequestError(f"{fields.source}: its lists of stages do not fit together ({error})") from error
    fields.accept(*known, *_UNUSED)
    return pyramid


@dataclass(frozen=True, slots=True, kw_only=True)
class PyramidClassifier:
    """A classifier made by ``build`` from the fields of a configuration.

    ``heads``: number of classifiers of the same input. ``norms``: vectors of the norm before them. ``harmless``: fields
    without an effect on the model.
    """

    build: Build
    heads: int = 1
    norms: int = 0
    harmless: tuple[str, ...] = ()

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        pyramid = built(self.build, fields, self.harmless)
        width, classes = pyramid.channels, labels(fields)
        return Model(
            name=name,
            source=fields.source,
            hidden=width,
            vocab=0,
            layers=joined(pyramid.layers),
            classes=classes,
            extra_parameters=pyramid.outside + (self.heads - 1) * (width + 1) * classes + self.norms * width,
            final_norm=False,
        )


def labels(fields: Fields) -> int:
    """Return the number of classes of a classifier, from label names or their number; 2 if neither is given."""
    names, number = fields.raw("id2label"), fields.optional_size("num_labels", least=0)
    return len(names) if isinstance(names, dict) else 2 if number is None else number


def sizes(fields: Fields, name: str, kind: type = int) -> list[Any]:
    """Return the required list ``name`` of values of type ``kind``; numbers are in 1..65536.

    Raises
    ------
    RequestError
        It is missing or has other values.
    """
    values = fields.listed(name, kind)
    if not values or (kind is int and not all(1 <= one <= LARGEST for one in values)):
        raise fields.refusal(name, f"a list of sizes in 1..{LARGEST} is needed" if kind is int else "a list is needed")
    return list(values)
