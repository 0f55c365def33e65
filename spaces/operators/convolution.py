"""Convolutions and pooling over any number of spatial axes."""

from collections.abc import Sequence

from forerun.spaces.errors import RequestError
from forerun.spaces.operators.axes import Axis, AxisKind, Dimension, Operand, Operator, follow

SPATIAL = ("width", "height", "depth")
"""Names of spatial axes, innermost first: a 1-D operator has a width, a 2-D one a height too, a 3-D one a depth."""


def spatial_axes(count: int) -> tuple[str, ...]:
    """Return the names of ``count`` spatial axes, outermost first.

    >>> spatial_axes(2)
    ('height', 'width')

    Raises:
        RequestError: not one to three.
    """
    if not 1 <= count <= len(SPATIAL):
        raise RequestError(f"an operator has 1 to {len(SPATIAL)} spatial axes, but got {count}")
    return SPATIAL[:count][::-1]


def convolution(
    name: str,
    *,
    batch: int,
    in_channels: int,
    out_channels: int,
    output_size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    input_size: Sequence[int] | None = None,
    groups: int = 1,
    bias: bool = False,
    source: str = "x",
    result: str | None = None,
) -> Operator:
    """Return a 1-D, 2-D or 3-D convolution; sequences have one entry per spatial axis, outermost first.

    Spatial axes may be cut: a part then needs from its neighbours what its kernel reaches beyond it. ``input_size``
    where it is not ``output_size * stride``.

    Raises:
        RequestError: sequences differ in length, or ``groups`` does not divide the channels.
    """
    spatial = spatial_axes(len(output_size))
    steps, spread = stride or [1] * len(spatial), dilation or [1] * len(spatial)
    if not len(kernel) == len(steps) == len(spread) == len(spatial):
        raise RequestError(f"convolution {name} has {len(spatial)} spatial axes, but got kernel {list(kernel)}")
    if in_channels % groups or out_channels % groups:
        raise RequestError(f"convolution {name}: {in_channels} and {out_channels} channels must divide into {groups}")
    grouped = ("groups",) if groups > 1 else ()
    kernels = tuple(f"kernel_{axis}" for axis in spatial)
    axes = [Axis(name="batch", size=batch, kind=AxisKind.BATCH)]
    axes += [Axis(name="groups", size=groups, kind=AxisKind.PARALLEL)] if grouped else []
    axes += [Axis(name="out_channels", size=out_channels // groups, kind=AxisKind.PARALLEL)]
    axes += [Axis(name=n, size=size, kind=AxisKind.PARALLEL) for n, size in zip(spatial, output_size, strict=True)]
    axes += [Axis(name="in_channels", size=in_channels // groups, kind=AxisKind.REDUCE)]
    axes += [Axis(name=n, size=size, kind=AxisKind.OPAQUE) for n, size in zip(kernels, kernel, strict=True)]
    reach = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, spread, strict=True)]
    weights = [Operand(name=f"{name}.weight", dimensions=follow((*grouped, "in_channels", *kernels, "out_channels")))]
    if bias:
        weights.append(Operand(name=f"{name}.bias", dimensions=follow((*grouped, "out_channels"))))
    return Operator(
        name=name,
        kind="convolution",
        form="contraction",
        axes=tuple(axes),
        inputs=(
            Operand(
                name=source,
                dimensions=(*follow(("batch", *grouped, "in_channels")), *_windows(spatial, steps, reach, input_size)),
            ),
        ),
        weights=tuple(weights),
        output=Operand(name=result or name, dimensions=follow(("batch", *grouped, "out_channels", *spatial))),
    )


def pooling(
    name: str,
    *,
    batch: int,
    channels: int,
    output_size: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int] | None = None,
    input_size: Sequence[int] | None = None,
    source: str = "x",
    result: str | None = None,
) -> Operator:
    """Return a pooling over windows; sequences as for ``convolution``, ``stride`` defaults to the window.

    Raises:
        RequestError: sequences differ in length.
    """
    spatial = spatial_axes(len(output_size))
    steps = stride or window
    if not len(window) == len(steps) == len(spatial):
        raise RequestError(f"pooling {name} has {len(spatial)} spatial axes, but got window {list(window)}")
    axes = [
        Axis(name="batch", size=batch, kind=AxisKind.BATCH),
        Axis(name="channels", size=channels, kind=AxisKind.PARALLEL),
        *(Axis(name=n, size=size, kind=AxisKind.PARALLEL) for n, size in zip(spatial, output_size, strict=True)),
    ]
    return Operator(
        name=name,
        kind="pooling",
        form="copy",
        axes=tuple(axes),
        inputs=(
            Operand(
                name=source,
                dimensions=(*follow(("batch", "channels")), *_windows(spatial, steps, window, input_size)),
            ),
        ),
        output=Operand(name=result or name, dimensions=follow(("batch", "channels", *spatial))),
    )


def _windows(
    spatial: Sequence[str], stride: Sequence[int], reach: Sequence[int], size: Sequence[int] | None
) -> tuple[Dimension, ...]:
    """Return the spatial dimensions of an input that windows of ``reach`` elements move over."""
    given: Sequence[int | None] = size or [None] * len(spatial)
    return tuple(
        Dimension(axis=axis, step=step, halo=max(wide - step, 0), extent=extent)
        for axis, step, wide, extent in zip(spatial, stride, reach, given, strict=True)
    )
