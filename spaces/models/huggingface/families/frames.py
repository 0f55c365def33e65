"""Encoders of frames of sound, eight of which a stem joins, and of images, with experts or with products behind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.defaults import class_defaults
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.towers import Image, Tower
from forerun.spaces.models.layer_runs import joined
from forerun.spaces.models.mixers import Attention, Convolution, Convolutions
from forerun.spaces.models.model import FeedForward, Layer

_TOKENS = 375
"""Of 30 seconds of sound, 100 frames a second (arXiv 2212.04356, section 2.2), eight joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """A stack of layers as ``tower`` has it, over frames of sound; ``stem``: parameters before it and behind it."""

    tower: Tower
    stem: Callable[[Fields, int], int]

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; it always stands beside a language model."""
        image = replace(self.tower, positions="none", patch_bias=False).read(fields, beside=True)
        fields.raw("max_position_embeddings")
        outside = image.outside - image.patch_inputs * image.width + self.stem(fields, image.width)
        layers = tuple(replace(layer, name="sound", tokens=_TOKENS) for layer in image.layers)
        return Image(width=image.width, layers=layers, outside=outside, patch_inputs=0, patches=_TOKENS)


def _dots(fields: Fields, width: int) -> int:
    """Three convolutions in two dimensions and a product; a norm and two products to the language model."""
    channels, bins = fields.size("downsample_hidden_size"), fields.size("feature_size")
    out = fields.size("adapter_out_dim")
    stem = 10 * channels + 2 * (9 * channels + 1) * channels + -(-bins // 8) * channels * width
    return stem + 2 * width + (width + 1) * out + (out + 1) * out


def _joined(fields: Fields, width: int) -> int:
    return fields.size("num_mel_bins") * fields.size("subsampling_factor") * width


_NEMOTRON = Frames(tower=Tower(query_bias=False, pre_norms=1), stem=_joined)


_STREAMING = (
    "chunk_left_context",
    "chunk_length",
    "chunk_right_context",
    "fifo_length",
    "speaker_cache_update_period",
    "streaming_config",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsAndSpeakers:
    """Nemotron 3.5 Transcribe: an encoder of words beside a narrower one of who speaks."""

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoders that the configuration describes, that of words first."""
        part = fields.part("asr_config", class_defaults, "nemotron3_5_transcribe_asr_audio")
        words = replace(_NEMOTRON, tower=replace(_NEMOTRON.tower, query_key_norm=True)).read(part, beside=True)
        inner = fields.part("diarization_config", class_defaults, "nemotron3_diarization")
        who = _NEMOTRON.read(inner.part("audio_config", class_defaults, "nemotron3_diarization_audio"), beside=True)
        head = inner.part("head_config", class_defaults, "nemotron3_diarization_head")
        width, factor, speakers = (
            head.size("hidden_size", 192),
            head.size("subsampling_factor", 8),
            head.size("num_speakers", 8),
        )
        head.size("audio_hidden_size", who.width)
        made = (who.width + 1) * width + (3 * width + 1) * factor * width + (width + 1) * (width + speakers)
        for unused in _STREAMING:
            inner.raw(unused)
        fields.raw("speaker_activity_threshold")
        outside = words.outside + who.outside + who.width + made + 2 * words.width + 2 * speakers
        return replace(words, layers=words.layers + who.layers, outside=outside)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedConformer:
    """Phi-4's Conformer (arXiv 2503.01743, section 2.2.2): both halves of the feed-forward gated, attention with a bias
    for each distance, a convolution over time between products."""

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; it always stands beside a language model."""
        width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
        inner, taps = fields.size("intermediate_size"), fields.size("kernel_size")
        wide, channels = fields.size("ext_pw_out_channel", width), fields.size("nemo_conv_channels")
        attention = Attention(
            heads=heads,
            kv_heads=heads,
            head_dim=width // heads,
            value_head_dim=width // heads,
            causal=False,
            query_key_value_bias=True,
            output_bias=True,
        )
        members = (
            Convolution(inputs=width, outputs=2 * wide, bias=True, norm=0),
            Convolution(inputs=wide, outputs=wide, taps=taps, groups=wide, bias=True, norm=0),
            Convolution(inputs=wide, outputs=wide, bias=True, norm=0),
            Convolution(inputs=wide, outputs=width, bias=True, norm=0),
        )
        mlp = FeedForward(hidden=inner, gated=True, bias=True)
        attends = Layer(name="sound", count=1, mixer=attention, mlp=mlp, norm_bias=True, hidden=width, tokens=_TOKENS)
        mixer = Convolutions(members=members, extra=2 * wide)
        convolves = replace(attends, name="sound-convolution", mixer=mixer, norms=3)
        distances = 2 * fields.size("bias_max_distance") * heads
        final = fields.size("nemo_final_size", 10) * channels
        outside = (27 + 5 + 2 * channels) * channels + (final + 1) * width + distances
        for unused in _PHI_UNUSED:
            fields.raw(unused)
        layers = joined([attends, convolves] * fields.size("num_hidden_layers", most=MOST_LAYERS))
        return Image(width=width, layers=layers, outside=outside, patch_inputs=0, patches=_TOKENS)


_PHI_UNUSED = (
    "bias_symmetric",
    "chunk_size",
    "depthwise_multiplier",
    "depthwise_separable_out_channel",
    "downsample_rate",
    "feature_layer",
    "input_size",
    "left_chunk",
    "time_reduction",
)


_PYRAMID = (*[-1] * 25, *range(4, 65, 4), 64)
"""Experts of each layer of dots3.note's encoder where a configuration does not say them (its class in transformers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerWithExperts:
    """dots3.note's encoder of images: some of its layers have experts, more and more of them."""

    tower: Tower

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; it always stands beside a language model."""
        image = self.tower.read(fields, beside=True)
        layer = image.layers[0]
        kinds = fields.listed("mlp_layer_types", str, length=layer.count)
        numbers = fields.listed("pyramid_num_routed", int, length=layer.count)
        if kinds is not None:
            numbers = [
                self._own(fields, index, "num_local_experts") * (kind == "sparse") for index, kind in enumerate(kinds)
            ]
        elif numbers is None and layer.count == len(_PYRAMID):
            numbers = _PYRAMID
        elif numbers is None:
            raise fields.refusal("mlp_layer_types", f"the kinds of {layer.count} layers are missing")
        return self._with_experts(fields, image, [max(number, 0) for number in numbers])

    def _with_experts(self, fields: Fields, image: Image, numbers: Sequence[int]) -> Image:
        """What a token computes is that of the experts it visits; the weights of the others, which expert parallelism
        of the language model does not cut, are spread evenly over the layers that have them."""
        layer, inner = image.layers[0], fields.size("moe_intermediate_size")
        top_k = max(self._own(fields, index, "num_experts_per_tok") for index in range(layer.count))
        sparse = sum(number > 0 for number in numbers)
        if not sparse:
            return image
        visited = FeedForward(hidden=min(top_k, *filter(None, numbers)) * inner, gated=True)
        weights = sum(numbers) * (3 * inner + 1) * image.width - sparse * 3 * visited.hidden * image.width
        one = replace(layer, name="image-moe", count=1, mlp=visited, extra=layer.extra + weights // sparse)
        layers = joined([one if number else replace(layer, count=1) for number in numbers])
        return replace(image, layers=layers, outside=image.outside + weights % sparse)

    def _own(self, fields: Fields, index: int, name: str) -> int:
        """The size of one layer: that of ``per_layer_config``, else that of all."""
        own = fields.of_one_layer("per_layer_config", index)
        return (own if own.has(name) else fields).size(name, {"num_experts_per_tok": 2}.get(name), most=65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Janus: behind the stack as many products as ``depth`` says, which elsewhere is the number of layers."""

    tower: Tower

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; it always stands beside a language model."""
        depth = Fields({"depth": fields.values.pop("depth", None)}, source=fields.source, defaults={})
        image, out = self.tower.read(fields, beside=True), fields.size("projection_dim")
        more = depth.size("depth", 2, most=MOST_LAYERS) - 1
        return replace(image, outside=image.outside + (image.width + 1 + more * (out + 1)) * out)


TOWERS: Mapping[str, Aligned | Frames | WordsAndSpeakers | GatedConformer | TowerWithExperts] = MappingProxyType(
    {
        "dots3_note_audio_encoder": Frames(
            tower=Tower(
                gated=True,
                norm_bias=False,
                scales=-1,  # keys have no bias
                known=("hop_length", "conv_output_size", "adapter_input_size", "samples_per_token", "attention_bias"),
            ),
            stem=_dots,
        ),
        "dots3_note_vision_encoder": TowerWithExperts(
            tower=Tower(
                positions="none",
                gated=True,
                query_bias="attention_bias",
                output_bias="attention_bias",
                mlp_bias="mlp_bias",
                norm_bias=False,
                pre_norms=1,
                query_key_norm=True,
                known=("adapter_in_dim", "adapter_merge_size", "adapter_out_dim", "spatial_merge_size"),
            )
        ),
        "janus_vision_model": Aligned(
            tower=Tower(query_bias="attention_bias", known=("num_image_tokens", "use_qk_norm", "hidden_dropout_rate"))
        ),
        "nemotron3_5_transcribe_audio": WordsAndSpeakers(),
        "phi4_multimodal_audio": GatedConformer(),
    }
)
"""Encoders beside a language model."""
