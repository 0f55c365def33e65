"""Audio encoders by their ``model_type``: Whisper's, beside a language model."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Attention, FeedForward, Layer
from forerun.spaces.models.shapes import default_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioTower:
    """Two convolutions over mel bins and a stack of layers (arXiv 2212.04356, section 2.2); products of keys have no
    bias."""

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; it always stands beside a language model."""
        width = fields.size("hidden_size")
        heads = fields.optional_size("encoder_attention_heads") or fields.size("num_attention_heads")
        count = fields.optional_size("encoder_layers", most=MOST_LAYERS) or fields.size("num_hidden_layers")
        inner = fields.optional_size("encoder_ffn_dim") or fields.size("intermediate_size")
        bins, tokens = fields.size("num_mel_bins", 128), fields.size("max_source_positions", 1500)
        for unused in ("num_hidden_layers", "vocab_size"):
            fields.raw(unused)
        head_dim = default_head_dim(fields.source, width, heads)
        attention = Attention(
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            value_head_dim=head_dim,
            causal=False,
            query_key_value_bias=True,
            output_bias=True,
            extra=-width,
        )
        layer = Layer(
            name="audio",
            count=count,
            mixer=attention,
            mlp=FeedForward(hidden=inner, gated=False, bias=True),
            norm_bias=True,
            hidden=width,
            tokens=tokens,
        )
        outside = 3 * (bins + width) * width + 2 * width + tokens * width + 2 * width
        return Image(width=width, layers=(layer,), outside=outside, patch_inputs=3 * bins, patches=tokens)


TOWERS: Mapping[str, AudioTower] = MappingProxyType(
    {
        "audioflamingo3_encoder": AudioTower(),
        "qwen2_audio_encoder": AudioTower(),
        "voxtral_encoder": AudioTower(),
    }
)
"""Audio encoders beside a language model."""
