"""Softmax attention from the sizes of a configuration: heads, latent projections, an indexer."""

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.mixers import Attention, Indexer, LatentAttention
from forerun.spaces.models.shapes import check_heads, default_head_dim


def multi_head(heads: int, head_dim: int, *, bias: bool = False, extra: int = 0) -> Attention:
    """Make bidirectional attention with one key head per query head; ``bias``: for all linear layers."""
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_head_dim=head_dim,
        causal=False,
        query_key_value_bias=bias,
        output_bias=bias,
        extra=extra,
    )


def attention_of(fields: Fields, hidden: int, *, kv_heads: int | None = None, floor: bool = False) -> Attention:
    """Make the attention of a model of width ``hidden``.

    ``kv_heads`` overrides the configuration's. ``floor``: the head width is rounded down where heads do not divide the
    model's width.
    """
    heads = fields.size("num_attention_heads")
    if fields.optional_size("kv_lora_rank") is not None:
        fields.optional_size("num_key_value_heads")  # every query head has its keys
        return _latent(fields, heads)
    kv_heads = fields.size("num_key_value_heads", heads) if kv_heads is None else kv_heads
    check_heads(fields.source, heads, kv_heads)
    head_dim = fields.optional_size("head_dim")
    if head_dim is None:
        head_dim = fields.size("head_dim", hidden // heads if floor else default_head_dim(fields.source, hidden, heads))
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_head_dim=head_dim)


def _latent(fields: Fields, heads: int) -> Attention:
    latent = LatentAttention(
        query_rank=fields.optional_size("q_lora_rank"),
        key_value_rank=fields.size("kv_lora_rank"),
        rope_head_dim=fields.size("qk_rope_head_dim", least=0),
    )
    fields.optional_size("head_dim", least=0)  # transformers 5 saves the rotary part under this name
    fields.optional_size("qk_head_dim")
    indexer = None
    if fields.optional_size("index_topk") is not None:
        sizes = (fields.size("index_n_heads"), fields.size("index_head_dim"), fields.size("index_topk"))
        indexer = Indexer(heads=sizes[0], head_dim=sizes[1], top_k=sizes[2])
    # Expanded for training: every head has its keys.
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=fields.size("qk_nope_head_dim") + latent.rope_head_dim,
        value_head_dim=fields.size("v_head_dim"),
        latent=latent,
        indexer=indexer,
    )
