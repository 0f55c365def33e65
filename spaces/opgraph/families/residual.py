"""Residual networks with bottleneck blocks: ResNet-50, 101 and 152."""

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel

BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
"""Bottleneck blocks of the four stages (arXiv 1512.03385, table 1)."""

COUNTS = {
    "resnet50": (25_557_032, 4.09e9),
    "resnet101": (44_549_160, 7.80e9),
    "resnet152": (60_192_808, 11.51e9),
}
"""Published parameters and multiply-accumulates at 224 x 224 (torchvision model table)."""


def resnet(name: str, *, extent: int = 224, stride_first: bool = False) -> GraphModel:
    """A ResNet for ``extent`` square images.

    ``stride_first``: the first 1x1 convolution of a block has the stride (the original form, v1) instead of the 3x3 one
    (v1.5, the form trained today and behind the published operation counts).
    """
    b = Builder(3, extent, extent)
    x = b.relu(b.batch_norm(b.conv(b.start, 64, 7, stride=2, padding=3)))
    x = b.pool(x, 3, stride=2, padding=1)
    for stage, blocks in enumerate(BLOCKS[name]):
        for block in range(blocks):
            b.block = f"layer{stage + 1}.{block}"
            x = _bottleneck(b, x, 64 << stage, 2 if block == 0 and stage > 0 else 1, stride_first=stride_first)
    b.block = ""
    x = b.flatten(b.global_pool(x))
    b.loss(b.linear(x, 1000))
    parameters, macs = COUNTS[name]
    return b.build(
        name.replace("resnet", "ResNet-"),
        "He et al., arXiv 1512.03385, table 1, with the stride in the 3x3 convolution; counts: torchvision model table",
        parameters=parameters,
        macs=macs,
    )


def _bottleneck(b: Builder, x: Value, width: int, stride: int, *, stride_first: bool) -> Value:
    first, second = (stride, 1) if stride_first else (1, stride)
    y = b.relu(b.batch_norm(b.conv(x, width, 1, stride=first)))
    y = b.relu(b.batch_norm(b.conv(y, width, 3, stride=second, padding=1)))
    y = b.batch_norm(b.conv(y, 4 * width, 1))
    if x.shape != y.shape:
        x = b.batch_norm(b.conv(x, 4 * width, 1, stride=stride))
    return b.relu(b.add(y, x))
