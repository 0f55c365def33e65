"""Audio encoders before a language model, by their ``model_type``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

from forerun.spaces.models.huggingface.attentions import multi_head
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields, unused
from forerun.spaces.models.huggingface.pyramid import sizes
from forerun.spaces.models.huggingface.tables import towers
from forerun.spaces.models.huggingface.towers import Encoder, Image
from forerun.spaces.models.mixers import Convolution, Convolutions
from forerun.spaces.models.model import FeedForward, Layer, joined
from forerun.spaces.models.shapes import default_head_dim

_SPEECH_TOKENS = 1500
"""Default tokens: 30 seconds of audio, 50 frames per second (arXiv 2212.04356, section 2.2)."""
_JOINED_TOKENS = 375
"""Default tokens: 30 seconds of audio, 100 frames per second (arXiv 2212.04356, section 2.2), joined by eights."""
_WAVE_SAMPLES = 60 * 24_000
"""Default samples: a minute of 24 kHz (VibeVoice)."""
_STAGED_SAMPLES = 480_000
"""Default samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioTower:
    """Two convolutions over mel bins and a stack of layers (arXiv 2212.04356, section 2.2).

    ``table``: learned positions. ``key_bias``: bias of the key products. ``squares``: three two-dimensional
    convolutions instead, and a product of their output (Qwen3). ``projector``: linear layers after the stack.
    ``modern``: RMSNorms and a gated feed-forward with a bias only on its last product (Voxtral Realtime).
    """

    table: bool = True
    key_bias: bool = False
    squares: bool = False
    projector: Literal["one", "two", "none"] = "none"
    modern: bool = False

    def read(self, fields: Fields) -> Image:
        """Make the encoder of a configuration."""
        width = fields.size("hidden_size")
        heads = fields.optional_size("encoder_attention_heads") or fields.size("num_attention_heads")
        most = MOST_LAYERS
        count = fields.optional_size("encoder_layers", most=most) or fields.size("num_hidden_layers", most=most)
        inner = fields.optional_size("encoder_ffn_dim") or fields.size("intermediate_size")
        bins, tokens = fields.size("num_mel_bins", 128), fields.size("max_source_positions", 1500)
        fields.accept("num_hidden_layers", "num_key_value_heads", "vocab_size", "sliding_window", *unused("whisper"))
        head_dim = fields.optional_size("head_dim") or default_head_dim(fields.source, width, heads)
        attention = multi_head(heads, head_dim, bias=True, extra=0 if self.key_bias else -heads * head_dim)
        layer = Layer(
            name="audio",
            count=count,
            mixer=attention,
            mlp=FeedForward(hidden=inner, gated=self.modern, bias=not self.modern),
            norm_bias=not self.modern,
            hidden=width,
            tokens=tokens,
            extra=width if self.modern else 0,
        )
        outside = 3 * (bins + width) * width + 2 * width
        if self.squares:
            channels = fields.size("downsample_hidden_size", 480)
            outside = 10 * channels + 2 * (9 * channels + 1) * channels + bins // 8 * channels * width
        out = fields.size("output_dim") if self.projector != "none" else 0
        outside += (1 if self.modern else 2) * width + (tokens * width if self.table else 0)
        if self.projector == "two":
            outside += (width + 1) * width + (width + 1) * out
        elif self.projector == "one":
            outside += (width + 1) * out + 2 * out  # and markers of the start and end of audio
        return Image(width=width, layers=(layer,), outside=outside, patch_inputs=3 * bins, patches=tokens)


def _joined_frames(fields: Fields, *, tower: str) -> Image:
    """Read a stack of equal layers over frames of audio, eight of which a stem joins; ``tower``: its table entry."""
    image = towers()[tower].read(fields)
    fields.raw("max_position_embeddings")
    outside = image.outside - image.patch_inputs * image.width
    layers = tuple(replace(layer, name="sound", tokens=_JOINED_TOKENS) for layer in image.layers)
    return Image(width=image.width, layers=layers, outside=outside, patch_inputs=0, patches=_JOINED_TOKENS)


def _words_and_speakers(fields: Fields) -> Image:
    """Read Nemotron 3.5 Transcribe: an encoder of words and a narrower encoder of speakers."""
    part = fields.part("asr_config", "nemotron3_5_transcribe_asr_audio")
    text = _joined_frames(part, tower="_nemotron_words")
    inner = fields.part("diarization_config", "nemotron3_diarization")
    speaker = _joined_frames(inner.part("audio_config", "nemotron3_diarization_audio"), tower="_nemotron_sound")
    head = inner.part("head_config", "nemotron3_diarization_head")
    width, factor, speakers = (
        head.size("hidden_size", 192),
        head.size("subsampling_factor", 8),
        head.size("num_speakers", 8),
    )
    head.size("audio_hidden_size", speaker.width)
    made = (speaker.width + 1) * width + (3 * width + 1) * factor * width + (width + 1) * (width + speakers)
    inner.accept(*unused("streamed sound"))
    fields.raw("speaker_activity_threshold")
    outside = text.outside + speaker.outside + speaker.width + made + 2 * text.width + 2 * speakers
    return replace(text, layers=text.layers + speaker.layers, outside=outside)


def _conformer(fields: Fields) -> Image:
    """Read Conformer (arXiv 2005.08100, section 2)."""
    # A layer is half of a feed-forward, attention inside blocks of frames with a table of distances, a convolution over
    # time, and the other half.
    width, heads = fields.size("hidden_dim"), fields.size("num_attention_heads")
    head_dim, block = fields.size("dim_head"), fields.size("context_size")
    wide, taps = width * fields.size("conv_expansion_factor", 2), fields.size("conv_kernel_size", 15)
    inputs, outputs = fields.size("input_dim"), fields.size("output_dim")
    fields.raw("cat_hidden_layers")
    mlp = FeedForward(hidden=width * fields.size("feedforward_mult", 4), gated=False, bias=True)
    distances = (2 * fields.size("max_pos_emb", 512) + 1) * head_dim
    attention = replace(multi_head(heads, head_dim, extra=distances), window=block, chunked=True, output_bias=True)
    members = (
        Convolution(inputs=width, outputs=2 * wide, bias=True, norm=0),
        Convolution(inputs=wide, outputs=wide, taps=taps, groups=wide),
        Convolution(inputs=wide, outputs=width, bias=True, norm=0),
    )
    attends = Layer(
        name="sound",
        count=1,
        mixer=attention,
        mlp=mlp,
        norm_bias=True,
        hidden=width,
        tokens=_SPEECH_TOKENS,
    )
    convolves = replace(attends, name="sound-convolution", mixer=Convolutions(members=members), norms=3)
    count = fields.size("num_hidden_layers", most=MOST_LAYERS)
    outside = (inputs + 1) * width + (width + 1) * outputs + (outputs + 1) * width
    layers = joined([attends, convolves] * count)
    return Image(width=width, layers=layers, outside=outside, patch_inputs=inputs, patches=_SPEECH_TOKENS)


def _gated_conformer(fields: Fields) -> Image:
    """Read Phi-4's Conformer (arXiv 2503.01743, section 2.2.2)."""
    # Both halves of the feed-forward are gated, attention has a bias for each distance, and linear layers surround the
    # convolution over time.
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    inner, taps = fields.size("intermediate_size"), fields.size("kernel_size")
    wide, channels = fields.size("ext_pw_out_channel", width), fields.size("nemo_conv_channels")
    members = (
        Convolution(inputs=width, outputs=2 * wide, bias=True, norm=0),
        Convolution(inputs=wide, outputs=wide, taps=taps, groups=wide, bias=True, norm=0),
        Convolution(inputs=wide, outputs=wide, bias=True, norm=0),
        Convolution(inputs=wide, outputs=width, bias=True, norm=0),
    )
    mlp = FeedForward(hidden=inner, gated=True, bias=True)
    attention = multi_head(heads, width // heads, bias=True)
    attends = Layer(
        name="sound", count=1, mixer=attention, mlp=mlp, norm_bias=True, hidden=width, tokens=_JOINED_TOKENS
    )
    mixer = Convolutions(members=members, extra=2 * wide)
    convolves = replace(attends, name="sound-convolution", mixer=mixer, norms=3)
    distances = 2 * fields.size("bias_max_distance") * heads
    final = fields.size("nemo_final_size", 10) * channels
    outside = (27 + 5 + 2 * channels) * channels + (final + 1) * width + distances
    fields.accept(*unused("phi4 sound"))
    layers = joined([attends, convolves] * fields.size("num_hidden_layers", most=MOST_LAYERS))
    return Image(width=width, layers=layers, outside=outside, patch_inputs=0, patches=_JOINED_TOKENS)


def _waves(fields: Fields) -> Image:
    """Read VibeVoice (arXiv 2508.19205, section 2.1): stages over samples of audio."""
    # A convolution downsamples the input of each stage. Blocks are a depthwise convolution and a feed-forward, scaled
    # by learned vectors.
    channels, taps = fields.size("num_filters", 32), fields.size("kernel_size", 7)
    ratios, depths = sizes(fields, "downsampling_ratios"), sizes(fields, "depths")
    fields.raw("vae_std")
    inputs, tokens = fields.size("channels", 1), _WAVE_SAMPLES
    out, factor = fields.size("hidden_size"), fields.size("ffn_expansion", 4)
    if len(depths) != len(ratios) + 1:
        raise fields.refusal("depths", f"one stage before each of {len(ratios)} ratios and one after are needed")
    made, steps, kernel = [], 1, taps
    for depth, ratio in zip(depths, [*ratios, 1], strict=True):
        first = Convolution(inputs=inputs, outputs=channels, taps=kernel, bias=True, norm=0)
        made.append(_wave_layer(Convolutions(members=(first,)), channels, max(tokens // steps, 1)))
        each = Convolution(inputs=channels, outputs=channels, taps=taps, groups=channels, bias=True, norm=0)
        block = _wave_layer(Convolutions(members=(each,)), channels, max(tokens // steps, 1))
        mlp = FeedForward(hidden=factor * channels, gated=False, bias=True)
        made += [replace(block, mlp=mlp, norms=2, extra=2 * channels)] * depth
        inputs, channels, steps, kernel = channels, 2 * channels, steps * ratio, 2 * ratio
    last = Convolution(inputs=inputs, outputs=out, taps=taps, bias=True, norm=0)
    made.append(_wave_layer(Convolutions(members=(last,)), out, max(tokens // steps, 1)))
    return Image(width=out, layers=joined(made), outside=0, patch_inputs=0, patches=max(tokens // steps, 1))


def _wave_layer(mixer: Convolutions, width: int, tokens: int) -> Layer:
    return Layer(name="sound", count=1, mixer=mixer, mlp=None, norms=0, hidden=width, tokens=tokens)


def _sound_stages(fields: Fields) -> Image:
    """Read Muse Spark: ConvNeXt-like stages over samples of audio; each stage joins neighbours."""
    widths, patches, depths = (sizes(fields, name) for name in ("hidden_sizes", "patch_sizes", "depths"))
    if not len(widths) == len(patches) == len(depths):
        raise fields.refusal("depths", f"one for each of {len(widths)} widths is needed")
    taps, ratio, out = (
        fields.size("conv_kernel_size", 7),
        fields.number("mlp_ratio", 4),
        fields.size("out_hidden_size"),
    )
    fields.raw("num_hidden_layers")
    made, inputs, tokens = [], 1, _STAGED_SAMPLES
    for width, patch, depth in zip(widths, patches, depths, strict=True):
        tokens = max(tokens // patch, 1)
        first = Convolution(inputs=inputs, outputs=width, taps=patch, bias=True, norm=1)
        layer = Layer(
            name="sound",
            count=1,
            mixer=Convolutions(members=(first,)),
            mlp=None,
            norms=0,
            hidden=width,
            tokens=tokens,
        )
        each = Convolution(inputs=width, outputs=width, taps=taps, groups=width, bias=True, norm=0)
        mlp = FeedForward(hidden=int(ratio * width), gated=False, bias=True)
        block = replace(layer, mixer=Convolutions(members=(each,)), mlp=mlp, norms=1)
        made += [layer, *[block] * depth]
        inputs = width
    outside = inputs + (inputs + 1) * out + out
    return Image(width=inputs, layers=joined(made), outside=outside, patch_inputs=0, patches=tokens)


AUDIO_ENCODERS: Mapping[str, Encoder] = MappingProxyType(
    {
        "audioflamingo3_encoder": AudioTower().read,
        "dots3_note_audio_encoder": partial(_joined_frames, tower="_dots_sound"),
        "glmasr_encoder": AudioTower(table=False).read,
        "granite_speech_encoder": _conformer,
        "granite_speech_plus_encoder": _conformer,
        "moss_transcribe_diarize_audio": AudioTower().read,
        "muse_spark_audio": _sound_stages,
        "nemotron3_5_transcribe_audio": _words_and_speakers,
        "phi4_multimodal_audio": _gated_conformer,
        "qwen2_5_omni_audio_encoder": AudioTower(table=False, projector="one").read,
        "qwen2_audio_encoder": AudioTower().read,
        "qwen3_asr_encoder": AudioTower(table=False, key_bias=True, squares=True, projector="two").read,
        "qwen3_omni_moe_audio_encoder": AudioTower(table=False, key_bias=True, squares=True, projector="two").read,
        "vibevoice_acoustic_tokenizer_encoder": _waves,
        "voxtral_encoder": AudioTower().read,
        "voxtral_realtime_encoder": AudioTower(table=False, modern=True).read,
    }
)
"""Audio encoders by ``model_type``."""
