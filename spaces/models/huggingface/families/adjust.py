"""What a few families change in each of their layers."""

from dataclasses import replace

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.model import Layer


def falcon_kv_heads(fields: Fields) -> int:
    """Falcon: grouped keys in the new architecture, else one key head or as many as query heads."""
    heads = fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads", heads)
    if fields.flag("new_decoder_architecture", False):
        return kv_heads
    return 1 if fields.flag("multi_query", True) else heads


def falcon_norms(fields: Fields, layer: Layer, index: int) -> Layer:
    """Falcon: attention and MLP side by side read one norm, in the new architecture one each."""
    given = fields.optional_size("num_ln_in_parallel_attn")
    if fields.flag("new_decoder_architecture", False):
        return replace(layer, norms=given or 2)
    return replace(layer, norms=1 if fields.flag("parallel_attn", True) else 2)


def phi_norms(fields: Fields, layer: Layer, index: int) -> Layer:
    """StableLM: one norm where attention and MLP run side by side."""
    return replace(layer, norms=1) if fields.flag("use_parallel_residual", False) else layer


def bloom_like(fields: Fields, layer: Layer, index: int) -> Layer:
    """MPT: LayerNorms with a weight alone; nothing else has a bias."""
    for name in ("no_bias", "learned_pos_emb", "norm_type", "embedding_fraction"):
        fields.raw(name)
    if not fields.flag("no_bias", True):
        raise fields.refusal("no_bias", "a model with biases is not modelled")
    fields.raw("attn_config")
    return layer
