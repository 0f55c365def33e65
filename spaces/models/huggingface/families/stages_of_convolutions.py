"""Image classifiers of convolutions: ResNet and its descendants, mobile networks, ConvNeXt, pooling and focal blocks.

Each function adds the layers of one family to a ``Pyramid``, as in its modeling file in transformers 5.23.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.pyramid import Build, Pyramid, sizes


def divisible(value: float, by: int = 8, least: int | None = None) -> int:
    """Round ``value`` to a multiple of ``by``, down by at most a tenth (MobileNet, arXiv 1801.04381)."""
    rounded = max(by if least is None else least, int(value + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * value else rounded


def _resnet(fields: Fields, net: Pyramid) -> None:
    """Build ResNet (arXiv 1512.03385)."""
    # BiT (1912.11370) normalises before each convolution, RegNet (2003.13678) groups convolutions.
    net.conv(fields.size("embedding_size"), 7, stride=2)
    net.pool(2)
    basic, early = fields.text("layer_type") == "basic", fields.flag("downsample_in_bottleneck", False)
    first = fields.flag("downsample_in_first_stage", False)
    for stage, (depth, width) in enumerate(zip(sizes(fields, "depths"), sizes(fields, "hidden_sizes"), strict=True)):
        for index in range(depth):
            stride, before = 2 if index == 0 and (stage or first) else 1, net.channels
            if basic:
                net.conv(width, 3, stride=stride)
            else:
                net.conv(width // 4, stride=stride if early else 1)
                net.conv(width // 4, 3, stride=1 if early else stride)
            if before != width or stride > 1:
                _shortcut(net, width, before)
            net.conv(width, 3 if basic else 1)
            net.end()


def _shortcut(net: Pyramid, outputs: int, inputs: int, norm: int = 2) -> None:
    """Add the convolution of a shortcut, which does not change the block's current channels."""
    channels = net.channels
    net.conv(outputs, inputs=inputs, norm=norm)
    net.channels = channels


def _bit(fields: Fields, net: Pyramid) -> None:
    net.conv(fields.size("embedding_size"), 7, stride=2, norm=0)
    net.pool(2)
    preactivated, factor = fields.text("layer_type") != "bottleneck", fields.size("width_factor", 1)
    fields.accept("num_groups", "output_stride", "embedding_dynamic_padding")
    for stage, (depth, width) in enumerate(zip(sizes(fields, "depths"), sizes(fields, "hidden_sizes"), strict=True)):
        for index in range(depth):
            wide, before, stride = divisible(width * factor), net.channels, 2 if index == 0 and stage else 1
            net.add(2 * before if preactivated else 0)
            net.conv(divisible(wide / 4))
            net.conv(divisible(wide / 4), 3, stride=stride)
            if index == 0:
                _shortcut(net, wide, before, 0 if preactivated else 2)
            net.conv(wide, norm=0 if preactivated else 2)
            net.end()
    net.outside += 2 * net.channels if preactivated else 0


def _regnet(fields: Fields, net: Pyramid) -> None:
    net.conv(fields.size("embedding_size"), 3, stride=2)
    group, squeezed = fields.size("groups_width"), fields.text("layer_type") != "x"
    first = fields.flag("downsample_in_first_stage", True)
    for stage, (depth, width) in enumerate(zip(sizes(fields, "depths"), sizes(fields, "hidden_sizes"), strict=True)):
        for index in range(depth):
            stride, before = 2 if index == 0 and (stage or first) else 1, net.channels
            net.conv(width)
            net.conv(width, 3, stride=stride, groups=max(1, width // group))
            if squeezed:
                net.squeeze(round(before / 4))
            if before != width or stride > 1:
                _shortcut(net, width, before)
            net.conv(width)
            net.end()


def _convnext(fields: Fields, net: Pyramid) -> None:
    """Build ConvNeXt (arXiv 2201.03545); version 2 (2301.00808) normalises responses instead of scaling layers."""
    second = fields.raw("model_type") == "convnextv2"
    scales = 0 if second or not fields.number("layer_scale_init_value", 1e-6) else 1
    widths, patch = sizes(fields, "hidden_sizes"), fields.size("patch_size", 4)
    net.conv(widths[0], patch, stride=patch, bias=True)
    for stage, (depth, width) in enumerate(zip(sizes(fields, "depths"), widths, strict=True)):
        if stage:
            net.conv(width, 2, stride=2, bias=True, norm=0)
            net.add(2 * widths[stage - 1])
            net.end()
        for _ in range(depth):
            net.depthwise(7, bias=True)
            net.conv(4 * width, bias=True, norm=0)
            net.conv(width, bias=True, norm=0)
            net.add(8 * width if second else scales * width)
            net.end()


def _efficientnet(fields: Fields, net: Pyramid) -> None:
    """Build EfficientNet (arXiv 1905.11946): two coefficients scale widths and depths."""
    by, wider, deeper = (
        fields.size("depth_divisor", 8),
        fields.number("width_coefficient", 2),
        fields.number("depth_coefficient", 3.1),
    )
    net.conv(divisible(32 * wider, by), 3, stride=2)
    repeats, ratio = sizes(fields, "num_block_repeats"), fields.number("squeeze_expansion_ratio", 0.25)
    columns = ("in_channels", "out_channels", "strides", "kernel_sizes", "expand_ratios")
    rows = zip(*(sizes(fields, name) for name in columns), repeats, strict=True)
    for before, after, stride, kernel, expansion, repeat in rows:
        net.channels = divisible(before * wider, by)
        for index in range(math.ceil(deeper * repeat)):
            inner = max(1, int(net.channels * ratio))
            if expansion != 1:
                net.conv(net.channels * expansion)
            net.depthwise(kernel, stride=stride if index == 0 else 1)
            net.squeeze(inner)
            net.conv(divisible(after * wider, by))
            net.end()
    net.conv(fields.optional_size("hidden_dim") or divisible(1280 * wider, by))


def _mobilenet_v1(fields: Fields, net: Pyramid) -> None:
    """Build MobileNet (arXiv 1704.04861, table 1)."""
    factor, least = fields.number("depth_multiplier", 1.0), fields.size("min_depth", 8)
    net.conv(max(int(32 * factor), least), 3, stride=2)
    depth = 32
    for index, stride in enumerate((1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)):
        depth *= 2 if stride == 2 or index == 0 else 1
        net.depthwise(3, stride=stride)
        net.conv(max(int(depth * factor), least))
        net.end()


def _mobilenet_v2(fields: Fields, net: Pyramid) -> None:
    """Build MobileNet v2 (arXiv 1801.04381, table 2)."""
    factor, by = fields.number("depth_multiplier", 1.0), fields.size("depth_divisible_by", 8)
    least, expansion = fields.size("min_depth", 8), fields.number("expand_ratio", 6)

    def width(channels: int) -> int:
        return divisible(round(channels * factor), by, least)

    net.conv(width(32), 3, stride=2)
    if not fields.flag("first_layer_is_expansion", True):
        net.conv(divisible(round(net.channels * expansion), by, least))
    net.depthwise(3)
    net.conv(width(16))
    net.end()
    rows = ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))
    for channels, repeat, stride in rows:
        for index in range(repeat):
            net.conv(divisible(round(net.channels * expansion), by, least))
            net.depthwise(3, stride=stride if index == 0 else 1)
            net.conv(width(channels))
            net.end()
    net.conv(1280 if fields.flag("finegrained_output", True) and factor < 1 else width(1280))


def _pp_lcnet(fields: Fields, net: Pyramid) -> None:
    """Build PP-LCNet (arXiv 2109.15099)."""
    # Rows of the table are kernel, channels before and after, stride, and whether channels are squeezed.
    scale, by = fields.number("scale", 1.0), fields.size("divisor", 8)
    net.conv(divisible(fields.size("stem_channels", 16) * scale, by), 3, stride=fields.size("stem_stride", 2))
    for stage in sizes(fields, "block_configs", list):
        for kernel, _, after, stride, squeezed in stage:
            net.depthwise(int(kernel), stride=int(stride))
            if squeezed:
                net.squeeze(net.channels // fields.size("reduction", 4))
            net.conv(divisible(int(after) * scale, by))
            net.end()
    net.end()
    net.sides = (1, 1)
    net.conv(fields.size("class_expand", 1280), norm=0)


def _hgnet(fields: Fields, net: Pyramid) -> None:
    """Build HGNetV2 (PaddleClas): two convolutions join the outputs of all layers of a block."""
    affine = 2 if fields.flag("use_learnable_affine_block", False) else 0
    _, narrow, wide = sizes(fields, "stem_channels")
    net.conv(narrow, 3, stride=2)
    net.conv(narrow // 2, 2)
    net.conv(narrow, 2)
    net.conv(narrow, 3, stride=2, inputs=2 * narrow)
    net.conv(wide)
    net.add(5 * affine)
    columns = ("stage_mid_channels", "stage_out_channels", "stage_num_blocks", "stage_numb_of_layers")
    numbers = [sizes(fields, name) for name in (*columns, "stage_kernel_size", "stage_downsample_strides")]
    flags = [sizes(fields, name, bool) for name in ("stage_downsample", "stage_light_block")]
    for inner, out, blocks, count, kernel, stride, shrinks, light in zip(*numbers, *flags, strict=True):
        if shrinks:
            net.depthwise(3, stride=stride)
            net.end()
        for _ in range(blocks):
            before = net.channels
            for _ in range(count):
                net.conv(inner, 1 if light else kernel)
                if light:
                    net.depthwise(kernel)
            net.conv(out // 2, inputs=before + count * inner)
            net.conv(out)
            net.add((count + 2) * affine)
            net.end()


def _textnet(fields: Fields, net: Pyramid) -> None:
    """Build TextNet (arXiv 2111.02394): every kernel has a parallel column, a row, and a norm of the input."""
    net.conv(fields.size("stem_out_channels"), fields.size("stem_kernel_size"), stride=fields.size("stem_stride"))
    fields.raw("stem_num_channels")
    kernels, strides = sizes(fields, "conv_layer_kernel_sizes", list), sizes(fields, "conv_layer_strides", list)
    for width, shapes, steps in zip(sizes(fields, "hidden_sizes")[1:], kernels, strides, strict=True):
        for (high, wide), stride in zip(shapes, steps, strict=True):
            before = net.channels
            net.conv(width, (high, wide), stride=stride)
            if wide != 1:
                net.conv(width, (high, 1), inputs=before)
            if high != 1:
                net.conv(width, (1, wide), inputs=before)
            net.add(2 * width if before == width and stride == 1 else 0)
            net.end()


def _poolformer(fields: Fields, net: Pyramid) -> None:
    """Build PoolFormer (arXiv 2111.11418): means of neighbours instead of attention."""
    scales = 2 if fields.flag("use_layer_scale", True) else 0
    columns = ("hidden_sizes", "depths", "patch_sizes", "strides")
    for width, depth, patch, stride in zip(*(sizes(fields, name) for name in columns), strict=True):
        net.conv(width, patch, stride=stride, bias=True, norm=0)
        net.end()
        for _ in range(depth):
            net.add((4 + scales) * width)
            net.conv(int(width * fields.number("mlp_ratio", 4)), bias=True, norm=0)
            net.conv(width, bias=True, norm=0)
            net.end()


def _focalnet(fields: Fields, net: Pyramid) -> None:
    """Build FocalNet (arXiv 2203.11926): contexts of growing kernels modulate every position."""
    width, patch, depths = fields.size("embed_dim"), fields.size("patch_size", 4), sizes(fields, "depths")
    net.conv(width, patch, stride=patch, bias=True)
    columns = zip(depths, sizes(fields, "focal_levels"), sizes(fields, "focal_windows"), strict=True)
    for stage, (depth, levels, window) in enumerate(columns):
        for _ in range(depth):
            net.add(4 * width)
            net.conv(2 * width + levels + 1, bias=True, norm=0)
            net.channels = width
            for level in range(levels):
                net.depthwise(window + 2 * level, norm=0)
            net.conv(width, bias=True, norm=0)
            net.conv(width, bias=True, norm=0)
            net.conv(int(width * fields.number("mlp_ratio", 4)), bias=True, norm=0)
            net.conv(width, bias=True, norm=0)
            net.end()
        if stage + 1 < len(depths):
            width *= 2
            net.conv(width, 2, stride=2, bias=True)


CONVOLUTIONS: Mapping[str, Build] = MappingProxyType(
    {
        "bit": _bit,
        "convnext": _convnext,
        "efficientnet": _efficientnet,
        "focalnet": _focalnet,
        "hgnet": _hgnet,
        "mobilenet_v1": _mobilenet_v1,
        "mobilenet_v2": _mobilenet_v2,
        "poolformer": _poolformer,
        "pp_lcnet": _pp_lcnet,
        "regnet": _regnet,
        "resnet": _resnet,
        "textnet": _textnet,
    }
)
"""Builders by their names in the table of classifiers."""
