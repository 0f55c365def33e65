"""Networks of depthwise convolutions for small devices: MobileNetV2 and EfficientNet."""

import math

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel

MOBILE_BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, repeats and first stride of the stages of MobileNetV2 (arXiv 1801.04381, table 2)."""

EFFICIENT_BLOCKS = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip
"""Expansion, kernel, stride, channels and repeats of the stages of EfficientNet-B0 (arXiv 1905.11946, table 1)."""

EFFICIENT_SCALES = {
    "b0": (1.0, 1.0, 224, 5_288_548, 0.386e9),
    "b1": (1.0, 1.1, 240, 7_794_184, 0.687e9),
    "b2": (1.1, 1.2, 288, 9_109_994, 1.088e9),
    "b3": (1.2, 1.4, 300, 12_233_232, 1.827e9),
    "b4": (1.4, 1.8, 380, 19_341_616, 4.394e9),
    "b5": (1.6, 2.2, 456, 30_389_784, 10.266e9),
    "b6": (1.8, 2.6, 528, 43_040_704, 19.068e9),
    "b7": (2.0, 3.1, 600, 66_347_960, 37.746e9),
}
"""Width, depth and extent of the family (ibid.; extents, parameters and operations: torchvision model table)."""


def mobilenet_v2() -> GraphModel:
    """MobileNetV2 of width 1 for 224 x 224 images."""
    b = Builder(3, 224, 224)
    x = _normed(b, b.start, 32, 3, stride=2)
    for expansion, channels, repeats, stride in MOBILE_BLOCKS:
        for number in range(repeats):
            x = _inverted(b, x, channels, expansion, 3, stride if number == 0 else 1)
    x = b.flatten(b.global_pool(_normed(b, x, 1280, 1)))
    b.loss(b.linear(b.dropout(x), 1000))
    source = "Sandler et al., arXiv 1801.04381, table 2; counts: torchvision model table"
    return b.build("MobileNetV2", source, parameters=3_504_872, macs=0.301e9)


def efficientnet(size: str) -> GraphModel:
    """EfficientNet of one ``size``, "b0" to "b7", for images of its extent."""
    width, depth, extent, parameters, macs = EFFICIENT_SCALES[size]
    b = Builder(3, extent, extent)
    x = _normed(b, b.start, _rounded(32 * width), 3, stride=2)
    for expansion, kernel, stride, channels, repeats in EFFICIENT_BLOCKS:
        for number in range(math.ceil(repeats * depth)):
            first = stride if number == 0 else 1
            x = _inverted(b, x, _rounded(channels * width), expansion, kernel, first, squeezed=True)
    x = b.flatten(b.global_pool(_normed(b, x, 4 * x.shape[0], 1)))
    b.loss(b.linear(b.dropout(x), 1000))
    source = "Tan and Le, arXiv 1905.11946, table 1; extents and counts: torchvision model table"
    return b.build(f"EfficientNet-{size.upper()}", source, parameters=parameters, macs=macs)


def _normed(
    b: Builder, x: Value, filters: int, kernel: int, *, stride: int = 1, groups: int = 1, active: bool = True
) -> Value:
    x = b.batch_norm(b.conv(x, filters, kernel, stride=stride, padding=kernel // 2, groups=groups))
    return b.relu(x) if active else x


def _inverted(
    b: Builder, x: Value, channels: int, expansion: int, kernel: int, stride: int, *, squeezed: bool = False
) -> Value:
    """An inverted residual: expansion, depthwise convolution, gate (if ``squeezed``) and projection."""
    start, inner = x, x.shape[0] * expansion
    if expansion > 1:
        x = _normed(b, x, inner, 1)
    x = _normed(b, x, inner, kernel, stride=stride, groups=inner)
    if squeezed:
        gate = b.relu(b.conv(b.global_pool(x), max(start.shape[0] // 4, 1), 1, bias=True))
        x = b.multiply(x, b.relu(b.conv(gate, inner, 1, bias=True)))
    x = _normed(b, x, channels, 1, active=False)
    return b.add(start, x) if x.shape == start.shape else x


def _rounded(channels: float) -> int:
    """Return the nearest multiple of eight that is at least 90 % of ``channels`` (both papers' code)."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
