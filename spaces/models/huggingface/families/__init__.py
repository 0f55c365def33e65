"""Which family reads which ``model_type``: one table per kind of model."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families import (
    captions,
    classifiers,
    encoder_decoders,
    interleaved,
    multimodal,
    pairs,
)
from forerun.spaces.models.huggingface.families.part_readers import Reader, texts
from forerun.spaces.models.huggingface.tables import public, token_encoders


@cache
def with_parts() -> Mapping[str, Reader]:
    """Return the families that read the parts of a configuration themselves, an encoder besides the text, by type."""
    return {**multimodal.multimodal(), **pairs.TABLE, **captions.TABLE, **interleaved.TABLE}


@cache
def families() -> Mapping[str, Reader]:
    """Return all families by model type."""
    return {
        **texts(),
        **public(token_encoders()),
        **encoder_decoders.TABLE,
        **public(classifiers.classifiers()),
        **with_parts(),
    }


UNKNOWN = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias")
"""How a type that no table has is read: a Llama-like decoder, with experts and latent attention if it names them."""

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "BloomForCausalLM": "bloom",
        "DeepseekV2ForCausalLM": "deepseek_v2",
        "DeepseekV3ForCausalLM": "deepseek_v3",
        "Dots3NoteForCausalLM": "dots3_note_text",
        "FalconForCausalLM": "falcon",
        "GPT2LMHeadModel": "gpt2",
        "GPTNeoXForCausalLM": "gpt_neox",
        "GemmaForCausalLM": "gemma",
        "Gemma2ForCausalLM": "gemma2",
        "Gemma3ForCausalLM": "gemma3_text",
        "GptOssForCausalLM": "gpt_oss",
        "LlamaForCausalLM": "llama",
        "Llama4ForCausalLM": "llama4_text",
        "MistralForCausalLM": "mistral",
        "MixtralForCausalLM": "mixtral",
        "MllamaForCausalLM": "mllama_text_model",
        "Qwen2ForCausalLM": "qwen2",
        "Qwen2MoeForCausalLM": "qwen2_moe",
        "Qwen3ForCausalLM": "qwen3",
        "Qwen3MoeForCausalLM": "qwen3_moe",
        "Qwen3_5ForCausalLM": "qwen3_5_text",
        "Qwen3_5MoeForCausalLM": "qwen3_5_moe_text",
    }
)
"""``model_type`` of a class: older configurations name only the class, and some classes have only the language model of
a configuration with an encoder (``MllamaForCausalLM``)."""


def known_types() -> tuple[str, ...]:
    """Return the values of ``model_type`` that are understood, sorted."""
    return tuple(sorted(families()))
