"""Image classifiers with stages of attention: Swin, Hiera, PVT, SegFormer, CvT, LeViT, MobileViT, SwiftFormer.

Each function adds the layers of one family to a ``Pyramid``, as in its modeling file in transformers 5.23.
"""

from collections.abc import Mapping
from types import MappingProxyType

from forerun.spaces.models.huggingface.families.stages_of_convolutions import divisible
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.pyramid import Build, Pyramid, sizes

_CPB = 512
"""Inner width of the network for Swin v2's position biases (arXiv 2111.09883, section 3.3)."""


def _swin(fields: Fields, net: Pyramid) -> None:
    """Build Swin (arXiv 2103.14030): attention in windows; groups of four neighbours are joined between stages."""
    second = fields.raw("model_type") == "swinv2"
    width, patch, window = fields.size("embed_dim"), fields.size("patch_size", 4), fields.size("window_size", 7)
    depths, bias = sizes(fields, "depths"), fields.flag("qkv_bias", True)
    net.conv(width, patch, stride=patch, bias=True)
    net.end()
    net.outside += net.positions * width if fields.flag("use_absolute_embeddings", False) else 0
    for stage, (depth, heads) in enumerate(zip(depths, sizes(fields, "num_heads"), strict=True)):
        table = heads * ((_CPB + 1) if second else (2 * window - 1) ** 2) + (3 * _CPB - width if second else 0)
        for _ in range(depth):
            inner = int(width * fields.number("mlp_ratio", 4))
            net.attend(heads, inner, keys=window**2, bias=bias, extra=table)
        if stage + 1 < len(depths):
            width *= 2
            net.add(2 * width if second else 4 * width)
            net.conv(width, 2, stride=2, norm=0)
            net.end()


def _dinat(fields: Fields, net: Pyramid) -> None:
    """Build DiNAT (arXiv 2209.15001): attention to neighbours, alternately near and dilated."""
    width, depths, kernel = fields.size("embed_dim"), sizes(fields, "depths"), fields.size("kernel_size", 7)
    scales = 2 if fields.raw("layer_scale_init_value") else 0
    net.conv(width // 2, 3, stride=2, bias=True, norm=0)
    net.conv(width, 3, stride=2, bias=True)
    for stage, (depth, heads) in enumerate(zip(depths, sizes(fields, "num_heads"), strict=True)):
        for _ in range(depth):
            extra = heads * (2 * kernel - 1) ** 2 + scales * width
            inner = int(width * fields.number("mlp_ratio", 3))
            net.attend(heads, inner, keys=kernel**2, bias=fields.flag("qkv_bias", True), extra=extra)
        if stage + 1 < len(depths):
            width *= 2
            net.conv(width, 3, stride=2)
            net.end()


def _hiera(fields: Fields, net: Pyramid) -> None:
    """Build Hiera (arXiv 2306.00989): queries are pooled at the start of a stage; early stages attend in mask units."""
    width, patch = fields.size("embed_dim"), sizes(fields, "patch_size")
    net.conv(width, patch, stride=sizes(fields, "patch_stride")[0], bias=True, norm=0)
    net.end()
    net.outside += net.positions * width
    unit, factor = sizes(fields, "masked_unit_size"), fields.number("embed_dim_multiplier", 2.0)
    stride, pooled = sizes(fields, "query_stride"), fields.size("num_query_pool", 3)
    rows = zip(
        sizes(fields, "depths"), sizes(fields, "num_heads"), sizes(fields, "masked_unit_attention", bool), strict=True
    )
    keys = unit[0] * unit[1]
    for stage, (depth, heads, local) in enumerate(rows):
        for index in range(depth):
            before = net.channels
            if stage and index == 0:
                width = int(width * factor)
                if stage <= pooled:
                    net.pool(stride[0])
                    keys //= stride[0] * stride[1]
                net.channels = width
                # Norm and products read the old width; a product projects the residual path to the new width.
                net.add(before * width + width + 3 * width * (before - width) + 2 * (before - width))
            net.attend(heads, int(width * fields.number("mlp_ratio", 4)), keys=keys if local else None)


def _pvt(fields: Fields, net: Pyramid) -> None:
    """Build PVT (arXiv 2102.12122): a convolution downsamples the image for keys and values."""
    columns = ("hidden_sizes", "depths", "num_attention_heads", "mlp_ratios", "patch_sizes", "strides")
    shrinks, bias = sizes(fields, "sequence_reduction_ratios"), fields.flag("qkv_bias", True)
    for width, depth, heads, ratio, patch, stride, by in zip(
        *(sizes(fields, name) for name in columns), shrinks, strict=True
    ):
        net.conv(width, patch, stride=stride, bias=True)
        net.end()
        net.outside += net.positions * width
        for _ in range(depth):
            net.add(width * width * by * by + 3 * width if by > 1 else 0)
            net.attend(heads, ratio * width, keys=net.positions // by**2, bias=bias)
    net.outside += 2 * net.channels  # a class token and its position


def _overlapping_patches(fields: Fields, net: Pyramid) -> None:
    """Build PVT v2 (arXiv 2106.13797) and SegFormer (2105.15203): overlapping patches, convolutional MLPs."""
    columns = ("hidden_sizes", "depths", "num_attention_heads", "mlp_ratios", "patch_sizes", "strides", "sr_ratios")
    bias, pooled = fields.flag("qkv_bias", True), fields.flag("linear_attention", False)
    for width, depth, heads, ratio, patch, stride, by in zip(*(sizes(fields, name) for name in columns), strict=True):
        net.conv(width, patch, stride=stride, bias=True)
        net.end()
        net.outside += 2 * width
        for _ in range(depth):
            shrinks = width * width * (1 if pooled else by * by) + 3 * width if by > 1 or pooled else 0
            net.add(shrinks + 10 * ratio * width)
            net.attend(heads, ratio * width, keys=49 if pooled else net.positions // by**2, bias=bias)


def _cvt(fields: Fields, net: Pyramid) -> None:
    """Build CvT (arXiv 2103.15808): queries, keys and values from convolved positions."""
    columns = ("embed_dim", "depth", "num_heads", "patch_sizes", "patch_stride", "kernel_qkv", "stride_kv")
    tokens, ratios = sizes(fields, "cls_token", bool), sizes(fields, "mlp_ratio", float)
    fields.accept("padding_q", "padding_kv", "stride_q", "qkv_bias", "qkv_projection_method", "patch_padding")
    rows = zip(*(sizes(fields, name) for name in columns), tokens, ratios, strict=True)
    for width, depth, heads, patch, stride, kernel, by, token, ratio in rows:
        net.conv(width, patch, stride=stride, bias=True)
        net.end()
        net.outside += width if token else 0
        for _ in range(depth):
            net.add(3 * (kernel**2 + 2) * width)
            net.attend(heads, int(ratio * width), keys=net.positions // by**2)


def _levit(fields: Fields, net: Pyramid) -> None:
    """Build LeViT (arXiv 2104.01136): narrow keys, wide values, and attention that downsamples between stages."""
    widths, kernel = sizes(fields, "hidden_sizes"), fields.size("kernel_size", 3)
    for part in (8, 4, 2, 1):
        net.conv(widths[0] // part, kernel, stride=fields.size("stride", 2))
    net.end()
    columns = ("depths", "num_attention_heads", "key_dim", "attention_ratio", "mlp_ratio")
    shrinking = [one for one in sizes(fields, "down_ops", list) if len(one) > 1]
    for stage, (depth, heads, keys, ratio, wider) in enumerate(
        zip(*(sizes(fields, name) for name in columns), strict=True)
    ):
        width = widths[stage]
        for _ in range(depth):
            norms = 2 * heads * keys * (2 + ratio) + 2 * width + (2 * wider * width + 2 * width)
            _levit_layer(net, heads, keys, ratio, wider * width, norms + heads * net.positions)
        if stage < len(shrinking):
            _, keys, heads, ratio, wider, stride = shrinking[stage]
            offsets, before, net.channels = heads * net.positions, width, widths[stage + 1]
            net.pool(stride)
            width = net.channels
            # Products before the core read the old width.
            narrower = (before - width) * heads * keys * (2 + ratio)
            norms = 2 * heads * keys * (2 + ratio) + 2 * width + 2 * wider * width + 2 * width
            _levit_layer(net, heads, keys, ratio, wider * width, narrower + norms + offsets)


def _levit_layer(net: Pyramid, heads: int, keys: int, ratio: int, inner: int, extra: int) -> None:
    """Add one attention and feed-forward, whose linear layers are normalised instead of biased."""
    net.attend(heads, inner, bias=False, norms=0, extra=extra, head_dim=keys, value_head_dim=ratio * keys)


def _inverted(fields: Fields, net: Pyramid, outputs: int, stride: int) -> None:
    """Add MobileNet v2's block: wider, depthwise convolution, narrower."""
    net.conv(divisible(round(net.channels * fields.number("expand_ratio", 4.0)), 8))
    net.depthwise(3, stride=stride)
    net.conv(outputs)
    net.end()


def _mobilevit(fields: Fields, net: Pyramid) -> None:
    """Build MobileViT (arXiv 2110.02178): two stages of MobileNet v2, and three with attention between patches."""
    necks, kernel = sizes(fields, "neck_hidden_sizes"), fields.size("conv_kernel_size", 3)
    heads, ratio, bias = (
        fields.size("num_attention_heads"),
        fields.number("mlp_ratio", 2.0),
        fields.flag("qkv_bias", True),
    )
    net.conv(necks[0], 3, stride=2)
    net.end()
    for index in range(4):
        _inverted(fields, net, necks[min(1 + index, 2)], 2 if index == 1 else 1)
    for width, neck, depth in zip(sizes(fields, "hidden_sizes"), necks[3:6], (2, 4, 3), strict=True):
        _inverted(fields, net, neck, 2)
        net.conv(neck, kernel)
        net.conv(width, norm=0)
        for _ in range(depth):
            net.attend(heads, int(ratio * width), keys=net.positions // fields.size("patch_size", 2) ** 2, bias=bias)
        net.add(2 * width)
        net.conv(neck)
        net.conv(neck, kernel, inputs=2 * neck)
        net.end()
    net.conv(necks[6])


def _mobilevit_v2(fields: Fields, net: Pyramid) -> None:
    """Build MobileViT v2 (arXiv 2206.02680): one context vector for all positions instead of scores of pairs."""
    factor, kernel = fields.number("width_multiplier", 1.0), fields.size("conv_kernel_size", 3)
    net.conv(divisible(min(max(32 * factor, 16), 64), 8, 16), 3, stride=2)
    net.end()
    _inverted(fields, net, divisible(64 * factor, 16), 1)
    for index in range(2):
        _inverted(fields, net, divisible(128 * factor), 1 if index else 2)
    units, depths = sizes(fields, "base_attn_unit_dims"), sizes(fields, "n_attn_blocks")
    for neck, unit, depth in zip((256, 384, 512), units, depths, strict=True):
        wide, width = divisible(neck * factor), divisible(unit * factor)
        _inverted(fields, net, wide, 2)
        net.depthwise(kernel)
        net.conv(width, norm=0)
        for _ in range(depth):
            net.add(4 * width)
            inner = int(fields.number("ffn_multiplier", 2.0) * width // 16 * 16)
            for columns in (1 + 2 * width, width, inner, width):
                net.conv(
                    columns, bias=True, norm=0, inputs=width if columns == width and net.channels > inner else None
                )
        net.add(2 * width)
        net.conv(wide)
        net.end()


def _swiftformer(fields: Fields, net: Pyramid) -> None:
    """Build SwiftFormer (arXiv 2303.15446): convolutions, and additive attention in the last block of every stage."""
    widths, patch = sizes(fields, "embed_dims"), fields.size("down_patch_size", 3)
    ratio, scales = fields.number("mlp_ratio", 4), fields.flag("use_layer_scale", True)
    net.conv(widths[0] // 2, 3, stride=2, bias=True)
    net.conv(widths[0], 3, stride=2, bias=True)
    net.end()
    shrinks = sizes(fields, "downsamples", bool)
    for stage, (width, depth) in enumerate(zip(widths, sizes(fields, "depths"), strict=True)):
        if stage and (shrinks[stage - 1] or width != widths[stage - 1]):
            net.conv(width, patch, stride=fields.size("down_stride", 2), bias=True)
            net.end()
        for index in range(depth):
            last = index == depth - 1
            _swift_block(net, width, width if last else int(ratio * width))
            if last:
                for _ in range(4):  # queries, keys, and two products of their result
                    net.conv(width, bias=True, norm=0)
                net.add((1 + (2 if scales else 0)) * width + 2 * width)
                net.conv(int(ratio * width), bias=True, norm=0)
                net.conv(width, bias=True, norm=0)
            net.end()


def _swift_block(net: Pyramid, width: int, inner: int) -> None:
    net.depthwise(3, bias=True)
    net.conv(inner, bias=True, norm=0)
    net.conv(width, bias=True, norm=0)
    net.add(width)


ATTENTION: Mapping[str, Build] = MappingProxyType(
    {
        "cvt": _cvt,
        "dinat": _dinat,
        "hiera": _hiera,
        "levit": _levit,
        "mobilevit": _mobilevit,
        "mobilevit_v2": _mobilevit_v2,
        "overlapping_patches": _overlapping_patches,
        "pvt": _pvt,
        "swiftformer": _swiftformer,
        "swin": _swin,
    }
)
"""Builders by their names in the table of classifiers."""
