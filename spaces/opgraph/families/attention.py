"""Image networks with few or no convolutions: vision transformers, and ConvNeXt, which has similar blocks."""

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel

VISION = {
    "b-16": (12, 768, 12, 16, 86_567_656, 17.564e9),
    "b-32": (12, 768, 12, 32, 88_224_232, 4.409e9),
    "l-16": (24, 1024, 16, 16, 304_326_632, 61.555e9),
}
"""Layers, width, heads and patch of vision transformers (arXiv 2010.11929, table 1); parameters and operations at 224 x
224: torchvision model table."""

CONVNEXT = {
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 768), 28_589_128, 4.456e9),
    "small": ((3, 3, 27, 3), (96, 192, 384, 768), 50_223_688, 8.684e9),
    "base": ((3, 3, 27, 3), (128, 256, 512, 1024), 88_591_464, 15.355e9),
    "large": ((3, 3, 27, 3), (192, 384, 768, 1536), 197_767_336, 34.361e9),
}
"""Blocks and channels of the stages of ConvNeXt (arXiv 2201.03545, section 3); counts: torchvision model table."""


def vision_transformer(size: str) -> GraphModel:
    """A vision transformer of one ``size`` for 224 x 224 images."""
    layers, width, heads, patch, parameters, macs = VISION[size]
    b = Builder(3, 224, 224)
    x = b.tokens(b.conv(b.start, width, patch, stride=patch, bias=True))
    x = b.positions(b.class_token(x))
    for _ in range(layers):
        x = b.add(x, b.linear(b.attention(b.linear(b.layer_norm(x), 3 * width), heads), width))
        x = b.add(x, b.linear(b.relu(b.linear(b.layer_norm(x), 4 * width)), width))
    b.loss(b.linear(b.first_token(b.layer_norm(x)), 1000))
    source = "Dosovitskiy et al., arXiv 2010.11929, table 1; counts: torchvision model table"
    return b.build(f"ViT-{size.upper().replace('-', '/')}", source, parameters=parameters, macs=macs)


def convnext(size: str) -> GraphModel:
    """A ConvNeXt of one ``size`` for 224 x 224 images; norms and products run over channels last."""
    blocks, widths, parameters, macs = CONVNEXT[size]
    b = Builder(3, 224, 224)
    x = _normed(b, b.conv(b.start, widths[0], 4, stride=4, bias=True))
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
        if stage:
            x = b.conv(_normed(b, x), width, 2, stride=2, bias=True)
        for _ in range(count):
            x = _block(b, x)
    x = b.layer_norm(b.flatten(b.global_pool(x)))
    b.loss(b.linear(x, 1000))
    source = "Liu et al., arXiv 2201.03545, section 3; counts: torchvision model table"
    return b.build(f"ConvNeXt-{size.capitalize()}", source, parameters=parameters, macs=macs)


def _block(b: Builder, x: Value) -> Value:
    width = x.shape[0]
    y = b.tokens(b.conv(x, width, 7, padding=3, groups=width, bias=True))
    y = b.linear(b.relu(b.linear(b.layer_norm(y), 4 * width)), width)
    return b.add(x, b.picture(b.scaled(y), *x.shape[1:]))


def _normed(b: Builder, x: Value) -> Value:
    """Return a norm over the channels of every pixel."""
    return b.picture(b.layer_norm(b.tokens(x)), *x.shape[1:])
