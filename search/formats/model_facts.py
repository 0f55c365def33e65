"""Facts of a model in launch files, by the names of ``data/decisions.yaml``."""

from typing import Any

from forerun.spaces.models.mixers import GatedDelta, Mamba2
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model


def last_of(model: Model) -> tuple[Attention | None, FeedForward | MixtureOfExperts | None, Layer]:
    """Return the last attention, the last feed-forward, and the last layer."""
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]
    feeds = [layer.mlp for layer in model.layers if layer.mlp is not None]
    return mixers[-1] if mixers else None, feeds[-1] if feeds else None, model.layers[-1]


def model_facts(model: Model, length: int) -> dict[str, Any]:
    """Return the facts of a model trained on sequences of ``length`` tokens.

    If layers differ, the last one of a kind counts; inapplicable facts are omitted.
    """
    attention, mlp, layer = last_of(model)
    facts: dict[str, Any] = {
        "layers": model.layer_count,
        "hidden": model.hidden,
        "ffn_hidden": _dense_width(model),
        "vocab": model.vocab,
        "max_positions": max(length, model.max_seq_len or 0, model.learned_positions),
        "positions": "none" if model.hybrid else "learned_absolute" if model.learned_positions else "rope",
        "gated": mlp is not None and mlp.gated,
        "norm": "LayerNorm" if layer.norm_bias else "RMSNorm",
        "tied_embeddings": model.tied_embeddings,
        "untied_embeddings": not model.tied_embeddings,
        "mtp_layers": model.mtp_layers or None,
        **_attention(attention),
    }
    if isinstance(mlp, MixtureOfExperts):
        facts |= {"experts": mlp.experts, "top_k": mlp.top_k, "expert_hidden": mlp.expert_hidden}
        mixed = [(isinstance(x.mlp, MixtureOfExperts), x.count) for x in model.layers]
        facts["moe_layers"] = None if all(chosen for chosen, _ in mixed) else _pattern(mixed)
        if mlp.shared_hidden:
            facts |= {"shared_hidden": mlp.shared_hidden, "shared_gate": mlp.shared_gate}
    for one in model.layers:
        if isinstance(one.mixer, Mamba2):
            facts |= {"scan_heads": one.mixer.heads, "scan_head_dim": one.mixer.head_dim}
            facts |= {"scan_state": one.mixer.state, "scan_groups": one.mixer.groups}
        elif isinstance(one.mixer, GatedDelta):
            facts |= {"delta_heads": one.mixer.heads, "delta_head_dim": one.mixer.value_head_dim}
            facts |= {"delta_key_heads": one.mixer.key_heads, "delta_key_head_dim": one.mixer.key_head_dim}
            facts["delta_taps"] = one.mixer.convolution
    if "delta_heads" in facts:
        facts["delta_layers"] = _pattern([(isinstance(x.mixer, GatedDelta), x.count) for x in model.layers])
    return facts


def _pattern(layers: list[tuple[bool, int]]) -> str:
    """Write the layers of a kind as a pattern of Megatron-LM.

    >>> _pattern([(False, 1), (True, 3)])
    '([0]*1+[1]*3)'
    """
    return "(" + "+".join(f"[{int(chosen)}]*{count}" for chosen, count in layers) + ")"


def _attention(attention: Attention | None) -> dict[str, Any]:
    if attention is None:  # parsers require heads, but nothing reads them
        return {"heads": 1, "no_bias": True}
    latent = attention.latent
    facts: dict[str, Any] = {
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "grouped_query_attention": attention.kv_heads != attention.heads and latent is None,
        "no_bias": not attention.output_bias,
        "query_key_value_bias": attention.query_key_value_bias and not attention.output_bias,
        "query_key_norm": attention.query_key_norm or latent is not None,
        "gate": attention.gate == attention.heads * attention.value_head_dim,
    }
    if latent is None:
        return facts | {"head_dim": attention.head_dim}
    return facts | {
        "latent_attention": True,
        "key_value_rank": latent.key_value_rank,
        "query_rank": latent.query_rank,
        "query_key_head_dim": attention.head_dim - latent.rope_head_dim,
        "rope_head_dim": latent.rope_head_dim,
        "value_head_dim": attention.value_head_dim,
    }


def _dense_width(model: Model) -> int:
    for layer in model.layers:
        if isinstance(layer.mlp, FeedForward):
            return layer.mlp.hidden
    mixtures = [layer.mlp.expert_hidden for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    return max(mixtures, default=model.hidden)
