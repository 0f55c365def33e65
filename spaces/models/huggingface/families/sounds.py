"""Language models with an encoder of sound beside them."""

from collections.abc import Mapping
from types import MappingProxyType

from forerun.spaces.models.huggingface.families import projectors, queries
from forerun.spaces.models.huggingface.families.beside import VisionLanguage

_GRANITE = ("downsample_rate", "has_lora_adapter", "window_size")

TABLE: Mapping[str, VisionLanguage] = MappingProxyType(
    {
        "audioflamingo3": VisionLanguage(
            text="qwen2",
            vision="audioflamingo3_encoder",
            projector=projectors.linear2,
            part="audio_config",
            known=("projector_bias",),
        ),
        "moss_transcribe_diarize": VisionLanguage(
            text="qwen3",
            vision="moss_transcribe_diarize_audio",
            projector=projectors.merged_sounds,
            part="audio_config",
            known=("audio_chunk_size", "projector_bias"),
        ),
        "voxtral_realtime": VisionLanguage(
            text="voxtral_realtime_text",
            vision="voxtral_realtime_encoder",
            projector=projectors.four_tokens,
            part="audio_config",
            known=("audio_length_per_tok", "default_num_delay_tokens", "downsample_factor"),
        ),
        "glmasr": VisionLanguage(
            text="llama", vision="glmasr_encoder", projector=projectors.four_sounds, part="audio_config"
        ),
        "qwen3_asr": VisionLanguage(
            text="qwen3",
            vision="qwen3_asr_encoder",
            part="audio_config",
            known=("token_classification_bias", "timestamp_segment_time"),
        ),
        **{
            name: VisionLanguage(
                text="granite",
                vision=f"{name}_encoder",
                part="encoder_config",
                bridge=queries.query_transformer(part="projector_config", sounds=True),
                known=_GRANITE,
            )
            for name in ("granite_speech", "granite_speech_plus")
        },
        "vibevoice_asr": VisionLanguage(
            text="qwen2",
            vision="vibevoice_acoustic_tokenizer_encoder",
            part="acoustic_tokenizer_encoder_config",
            others=(("semantic_tokenizer_encoder_config", "vibevoice_acoustic_tokenizer_encoder"),),
            projector=projectors.two_voices,
            known=("acoustic_tokenizer_chunk_size",),
        ),
        "musicflamingo": VisionLanguage(
            text="qwen2",
            vision="audioflamingo3_encoder",
            projector=projectors.linear2,
            part="audio_config",
            known=("projector_bias", "audio_rotary_dim", "audio_frame_step", "head_dim"),
        ),
        "qwen2_audio": VisionLanguage(
            text="qwen2", vision="qwen2_audio_encoder", projector=projectors.one(True), part="audio_config"
        ),
        "nemo_speechlm": VisionLanguage(
            text="nemotron_h",
            vision="nemotron3_5_transcribe_audio",
            part="audio_config",
            projector=projectors.transcribe,
        ),
        "voxtral": VisionLanguage(
            text="llama", vision="voxtral_encoder", projector=projectors.four_tokens, part="audio_config"
        ),
    }
)
"""Families by ``model_type``."""
