"""Image encoders: a stack of equal layers over the patches of an image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.decoder import Switch
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.formulas import Count
from forerun.spaces.models.model import Attention, FeedForward, Layer
from forerun.spaces.models.shapes import check_heads, default_head_dim

_PATCHES = 1024
"""Default number of patches of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An encoder of images or audio: its layers, parameters outside them, and patches of one image."""

    width: int
    layers: tuple[Layer, ...]
    outside: int
    patch_inputs: int
    patches: int


Encoder: TypeAlias = Callable[[Fields], Image]
"""Function that makes the encoder of a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The properties of an image encoder that are fixed in code; defaults are those of ViT (arXiv 2010.11929).

    ``query_bias``: bias of queries, keys and values. ``class_tokens``: learned tokens before the patches.
    ``positions``: learned rows, one per patch ("grid") or as many as a field gives, or none. ``pre_norms``,
    ``post_norms``: norms before and after the stack. ``scales``: learned vectors in each layer. Fields: ``width`` of
    the width, ``inner`` of the feed-forward's width, ``more_layers`` of further layers after the stack, ``tiles`` of
    the pieces of an image. ``model_extra``: further parameters; ``merger``: parameters of the layers that join the
    outputs. ``harmless``: fields without an effect on the model.
    """

    width: str = "hidden_size"
    query_bias: Switch = True
    output_bias: Switch = True
    mlp_bias: Switch = True
    gated: Switch = False
    norm_bias: bool = True
    norms: int = 2
    patch_bias: bool = True
    class_tokens: int = 0
    positions: Literal["grid", "none"] | str = "grid"
    position_rows: int = 0
    pre_norms: int = 0
    post_norms: int = 1
    scales: int = 0
    query_key_norm: Switch = False
    inner: str = "intermediate_size"
    more_layers: str | None = None
    tiles: str | None = None
    model_extra: Count | None = None
    merger: Count | None = None
    harmless: tuple[str, ...] = ()

    def read(self, fields: Fields, *, alone: bool = False) -> Image:
        """Make the encoder of a configuration; layers have their own width and tokens unless it is ``alone``."""

        def on(switch: Switch) -> bool:
            return fields.flag(switch, False) if isinstance(switch, str) else switch

        width, heads = fields.size(self.width), fields.size("num_attention_heads")
        kv_heads = fields.optional_size("num_key_value_heads") or heads
        check_heads(fields.source, heads, kv_heads)
        head_dim = fields.optional_size("head_dim") or default_head_dim(fields.source, width, heads)
        patch = square(fields, "patch_size", 1)
        channels = fields.optional_size("num_channels") or fields.optional_size("in_channels") or 3
        inputs = patch[0] * patch[1] * channels * (fields.optional_size("temporal_patch_size") or 1)
        patches = self._patches(fields, patch)
        inner = fields.optional_size(self.inner) or int(fields.number("mlp_ratio", 4.0) * width)
        fields.raw("mlp_ratio")
        count = fields.size("num_hidden_layers", most=MOST_LAYERS)
        count += fields.size(self.more_layers, most=MOST_LAYERS) if self.more_layers else 0
        tiles = fields.size(self.tiles) if self.tiles else 1
        fields.accept(*self.harmless)
        attention = Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_head_dim=head_dim,
            causal=False,
            query_key_value_bias=on(self.query_bias),
            output_bias=on(self.output_bias),
            query_key_norm=on(self.query_key_norm),
        )
        layer = Layer(
            name="image",
            count=count,
            mixer=attention,
            mlp=FeedForward(hidden=inner, gated=on(self.gated), bias=on(self.mlp_bias)),
            norms=self.norms,
            norm_bias=self.norm_bias,
            hidden=None if alone else width,
            tokens=None if alone else tiles * (patches + self.class_tokens),
            extra=self.scales * width,
        )
        rows = {"grid": patches + self.class_tokens, "none": 0}.get(self.positions)
        rows = fields.size(self.positions) if rows is None else rows
        norms = (self.pre_norms + self.post_norms) * width * (2 if self.norm_bias else 1)
        patch_weights = inputs * width + (width if self.patch_bias else 0)
        outside = (rows + self.position_rows + self.class_tokens) * width + norms
        outside += sum(extra(fields, width=width) for extra in (self.model_extra, self.merger) if extra)
        return Image(
            width=width, layers=(layer,), outside=outside + patch_weights, patch_inputs=inputs, patches=patches
        )

    def _patches(self, fields: Fields, patch: Sequence[int]) -> int:
        size = square(fields, "image_size", 0)
        if size[0]:
            return (size[0] // patch[0]) * (size[1] // patch[1])
        return (fields.optional_size(self.positions) if self.positions not in ("grid", "none") else None) or _PATCHES


def square(fields: Fields, name: str, default: int) -> tuple[int, int]:
    """Read the two sizes of ``name``: a positive number or a pair of them."""
    value = fields.raw(name)
    if value is None:
        return default, default
    pair = list(value) if isinstance(value, list | tuple) else [value, value]
    sides = [one for one in pair if isinstance(one, int) and not isinstance(one, bool) and one > 0]
    if len(sides) != 2 or len(pair) != 2:
        raise RequestError(f"{fields.source}: {name} must be a positive whole number or two, but got {value!r}")
    return sides[0], sides[1]
