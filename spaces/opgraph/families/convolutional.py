"""Convolutional networks: AlexNet, VGG, CosmoFlow, U-Net and residual networks."""

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel

CLASSES = 1000

VGG = {
    "vgg16": ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)),
    "vgg19": ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)),
}
"""Convolutions and channels of each block (arXiv 1409.1556, table 1, columns D and E)."""

VGG_COUNTS = {"vgg16": (138_357_544, 15.47e9), "vgg19": (143_667_240, 19.63e9)}
"""Published parameters and multiply-accumulates at 224 x 224 (torchvision model table)."""


def _classifier(b: Builder, x: Value) -> Value:
    x = b.flatten(x)
    for _ in range(2):
        x = b.dropout(b.relu(b.linear(x, 4096)))
    return b.loss(b.linear(x, CLASSES))


def alexnet() -> GraphModel:
    """AlexNet in its one-tower form (arXiv 1404.5997), 224 x 224."""
    b = Builder(3, 224, 224)
    x = b.pool(b.relu(b.conv(b.start, 64, 11, stride=4, padding=2, bias=True)), 3, stride=2)
    x = b.pool(b.relu(b.conv(x, 192, 5, padding=2, bias=True)), 3, stride=2)
    for filters in (384, 256, 256):
        x = b.relu(b.conv(x, filters, 3, padding=1, bias=True))
    _classifier(b, b.pool(x, 3, stride=2))
    return b.build(
        "AlexNet",
        "Krizhevsky, arXiv 1404.5997; counts: torchvision model table",
        parameters=61_100_840,
        macs=0.7147e9,
    )


def vgg(name: str) -> GraphModel:
    """VGG-16 or VGG-19 without batch normalisation, 224 x 224."""
    b = Builder(3, 224, 224)
    x = b.start
    for convolutions, filters in VGG[name]:
        for _ in range(convolutions):
            x = b.relu(b.conv(x, filters, 3, padding=1, bias=True))
        x = b.pool(x, 2)
    _classifier(b, x)
    parameters, macs = VGG_COUNTS[name]
    return b.build(
        name.upper().replace("VGG", "VGG-"),
        "Simonyan and Zisserman, arXiv 1409.1556, table 1; counts: torchvision model table",
        parameters=parameters,
        macs=macs,
    )


COSMOFLOW_FILTERS = (16, 32, 64, 128, 256, 256, 256)

COSMOFLOW_FLOPS = {128: 55.55e9, 256: 443.8e9, 512: 3550e9}
"""Published operations of all convolutions, forward and backward, of one sample by input extent (arXiv 2007.12856,
table 1): six per multiply-accumulate."""


def cosmoflow(extent: int) -> GraphModel:
    """CosmoFlow for ``extent`` cubed voxels of 4 channels: 7 convolutions, pools to 2 x 2 x 2, 3 linear layers."""
    b = Builder(4, extent, extent, extent)
    x = b.start
    for number, filters in enumerate(COSMOFLOW_FILTERS):
        x = b.relu(b.conv(x, filters, 3, stride=2 if number == 3 else 1, padding=1, bias=True))
        if x.shape[1] > 2:
            x = b.pool(x, 2)
    x = b.flatten(x)
    for features in (2048, 256):
        x = b.dropout(b.relu(b.linear(x, features)))
    b.loss(b.linear(x, 4))
    return b.build(
        f"CosmoFlow {extent}^3",
        "Mathuriya et al., arXiv 1808.04728, in the form of Oyama et al., arXiv 2007.12856, table 1",
        parameters=9.44e6,
        macs=COSMOFLOW_FLOPS[extent] / 6,
        sample="volume",
    )


WIDTHS = (64, 128, 256, 512, 1024)


def unet() -> GraphModel:
    """Build U-Net (arXiv 1505.04597, figure 1): one input channel of 572 x 572, two classes, 388 x 388 outputs."""
    b = Builder(1, 572, 572)
    x, kept = b.start, []
    for width in WIDTHS[:-1]:
        x = _pair(b, x, width)
        kept.append(x)
        x = b.pool(x, 2)
    x = _pair(b, x, WIDTHS[-1])
    for width, skip in zip(reversed(WIDTHS[:-1]), reversed(kept), strict=True):
        x = b.up_conv(x, width, 2)
        x = _pair(b, b.concat(b.crop(skip, *x.shape[1:]), x), width)
    b.loss(b.conv(x, 2, 1, bias=True))
    return b.build(
        "U-Net",
        "Ronneberger et al., arXiv 1505.04597, figure 1; parameters: widely printed count of this form",
        parameters=31_030_658,
        macs=None,
        sample="image",
    )


def _pair(b: Builder, x: Value, width: int) -> Value:
    for _ in range(2):
        x = b.relu(b.conv(x, width, 3, bias=True))
    return x


BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
"""Bottleneck blocks of the four stages (arXiv 1512.03385, table 1)."""

COUNTS = {
    "resnet50": (25_557_032, 4.09e9),
    "resnet101": (44_549_160, 7.80e9),
    "resnet152": (60_192_808, 11.51e9),
}
"""Published parameters and multiply-accumulates at 224 x 224 (torchvision model table)."""


def resnet(name: str, *, extent: int = 224, stride_first: bool = False) -> GraphModel:
    """Build a ResNet for ``extent`` square images.

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
