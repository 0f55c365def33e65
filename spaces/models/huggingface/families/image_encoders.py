"""Image encoders before a language model with unequal layers, by their ``model_type``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields, unused
from forerun.spaces.models.huggingface.layer_types import FULL, layer_types
from forerun.spaces.models.huggingface.pyramid import Pyramid, built, sizes
from forerun.spaces.models.huggingface.tables import towers
from forerun.spaces.models.huggingface.towers import Encoder, Image
from forerun.spaces.models.mixers import ShortConvolution
from forerun.spaces.models.model import FeedForward, joined

_DOTS_EXPERTS = (*[-1] * 25, *range(4, 65, 4), 64)
"""Default experts of each layer of dots3.note's encoder (its class in transformers)."""


def _tower_with_experts(fields: Fields) -> Image:
    """Read dots3.note's image encoder: some layers have experts, in growing numbers."""
    image = towers()["_dots_image"].read(fields)
    layer = image.layers[0]
    kinds = fields.listed("mlp_layer_types", str, length=layer.count)
    numbers = fields.listed("pyramid_num_routed", int, length=layer.count)
    if kinds is not None:
        numbers = [
            _of_layer(fields, index, "num_local_experts") * (kind == "sparse") for index, kind in enumerate(kinds)
        ]
    elif numbers is None and layer.count == len(_DOTS_EXPERTS):
        numbers = _DOTS_EXPERTS
    elif numbers is None:
        raise fields.refusal("mlp_layer_types", f"the kinds of {layer.count} layers are missing")
    return _with_experts(fields, image, [max(number, 0) for number in numbers])


def _with_experts(fields: Fields, image: Image, numbers: Sequence[int]) -> Image:
    """Replace dense feed-forwards by experts."""
    # A token computes only the experts that it visits. The weights of the others, which the language model's expert
    # parallelism does not shard, are spread evenly over the layers with experts.
    layer, inner = image.layers[0], fields.size("moe_intermediate_size")
    top_k = max(_of_layer(fields, index, "num_experts_per_tok") for index in range(layer.count))
    sparse = sum(number > 0 for number in numbers)
    if not sparse:
        return image
    visited = FeedForward(hidden=min(top_k, *filter(None, numbers)) * inner, gated=True)
    weights = sum(numbers) * (3 * inner + 1) * image.width - sparse * 3 * visited.hidden * image.width
    one = replace(layer, name="image-moe", count=1, mlp=visited, extra=layer.extra + weights // sparse)
    layers = joined([one if number else replace(layer, count=1) for number in numbers])
    return replace(image, layers=layers, outside=image.outside + weights % sparse)


def _of_layer(fields: Fields, index: int, name: str) -> int:
    """Read the size of one layer, from ``per_layer_config`` or from the common field."""
    settings = fields.of_one_layer("per_layer_config", index)
    return (settings if settings.has(name) else fields).size(name, {"num_experts_per_tok": 2}.get(name), most=65_536)


def _janus(fields: Fields) -> Image:
    """Read Janus: a stack followed by ``depth`` linear layers (in other models ``depth`` is the number of layers)."""
    depth = Fields({"depth": fields.values.pop("depth", None)}, source=fields.source, defaults={})
    image, out = towers()["_janus"].read(fields), fields.size("projection_dim")
    more = depth.size("depth", 2, most=MOST_LAYERS) - 1
    return replace(image, outside=image.outside + (image.width + 1 + more * (out + 1)) * out)


def _lfm3(fields: Fields) -> Image:
    """Read LFM3's image encoder: gated convolutions over neighbouring patches, and attention in some layers."""
    image, width = towers()["_lfm3"].read(fields), fields.size("hidden_size")
    layer = image.layers[0]
    taps = fields.size("conv_kernel_size", 3) ** 2
    fields.accept("spatial_merge_size", "norm_eps")
    kinds = layer_types(fields, layer.count, None, known=(FULL, "conv"))
    mixers = {FULL: layer.mixer, "conv": ShortConvolution(channels=width, taps=taps)}
    return replace(image, layers=joined([replace(layer, count=1, mixer=mixers[kind]) for kind in kinds]))


def _two_towers(fields: Fields) -> Image:
    """Read DeepSeek-OCR (arXiv 2510.18234, section 3.2)."""
    # SAM's encoder, two convolutions that downsample its output, and CLIP's encoder, which reads this output instead of
    # patches.
    first = fields.part("sam_config", "unlimited_ocr_sam_vision_model")
    first.raw("downsample_channels")
    sam = towers()["got_ocr2_vision"].read(first)
    second = fields.part("encoder_config", "unlimited_ocr_vision_encoder")
    clip = towers()["_clip_without_norm"].read(second)
    return replace(
        clip,
        layers=sam.layers + clip.layers,
        outside=sam.outside + clip.outside - clip.patch_inputs * clip.width,
    )


def _davit(fields: Fields, net: Pyramid) -> None:
    """Build DaViT (arXiv 2204.03645)."""
    # Attention in windows, followed by attention between channels of a group, with depthwise convolutions before each
    # block.
    heads, kernels, strides = sizes(fields, "num_heads"), sizes(fields, "patch_size"), sizes(fields, "patch_stride")
    before, window = fields.listed("patch_prenorm", bool) or (), fields.size("window_size", 12)
    for stage, (width, depth) in enumerate(zip(sizes(fields, "embed_dim"), sizes(fields, "depths"), strict=True)):
        net.outside += 2 * (net.channels if stage < len(before) and before[stage] else width)
        net.conv(width, kernels[stage], stride=strides[stage], bias=True, norm=0)
        net.end()
        inner = int(width * fields.number("mlp_ratio", 4))
        for _ in range(depth):
            for keys in (window**2, width // heads[stage]):
                net.attend(heads[stage], inner, keys=keys, extra=20 * width)


def _florence(fields: Fields) -> Image:
    """Read Florence-2 (arXiv 2311.06242): an image encoder of DaViT's stages."""
    net = built(_davit, fields, unused("florence2"), image=768)
    return Image(
        width=net.channels, layers=joined(net.layers), outside=net.outside, patch_inputs=0, patches=net.positions
    )


IMAGE_ENCODERS: Mapping[str, Encoder] = MappingProxyType(
    {
        "dots3_note_vision_encoder": _tower_with_experts,
        "florence_vision": _florence,
        "janus_vision_model": _janus,
        "lfm3_vl_vision": _lfm3,
        "unlimited_ocr_vision": _two_towers,
    }
)
"""Image encoders by ``model_type``."""
