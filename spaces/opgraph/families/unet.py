"""U-Net (arXiv 1505.04597) for 572 x 572 images: no padding, transposed convolutions upwards."""

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel

WIDTHS = (64, 128, 256, 512, 1024)


def unet() -> GraphModel:
    """The network of figure 1: one input channel, two classes, 388 x 388 outputs."""
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
