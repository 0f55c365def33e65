"""Transformers of any size in one call, for shapes of published runs outside the catalogue."""

from forerun.spaces.divisors import use_one_of
from forerun.spaces.errors import RequestError
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model


def check_sizes(name: str, **sizes: int) -> None:
    """Raise RequestError unless every one of ``sizes`` is at least 1."""
    for key, value in sizes.items():
        if value < 1:
            raise RequestError(f"{name}: {key} must be at least 1, but got {value}")


def check_heads(name: str, heads: int, kv_heads: int) -> None:
    """Raise RequestError unless the query heads divide into ``kv_heads`` equal groups."""
    if heads % kv_heads:
        fix = use_one_of(heads, most=12)
        raise RequestError(f"{name}: {heads} heads are not divisible by kv_heads={kv_heads}; {fix}")


def default_head_dim(name: str, hidden: int, heads: int) -> int:
    """Return ``hidden / heads``; raise RequestError if it is not an integer."""
    if hidden % heads:
        raise RequestError(f"{name}: hidden={hidden} is not divisible by heads={heads}; give head_dim")
    return hidden // heads


def check_top_k(name: str, experts: int, top_k: int) -> None:
    """Raise RequestError unless a token visits between one and all experts."""
    if not 1 <= top_k <= experts:
        raise RequestError(f"{name}: 1 <= top_k <= experts must hold, but got (top_k={top_k}, experts={experts})")


def transformer(
    name: str,
    *,
    layers: int,
    hidden: int,
    ffn_hidden: int,
    heads: int,
    vocab: int,
    kv_heads: int | None = None,
    gated: bool = True,
    tied: bool = False,
    learned_positions: int = 0,
    rotary: bool = True,
    experts: int = 0,
    top_k: int = 0,
    expert_hidden: int | None = None,
    shared_hidden: int = 0,
    norm_bias: bool = False,
    bias: bool = False,
    causal: bool = True,
) -> Model:
    """Make ``layers`` equal transformer layers, dense or with ``experts`` of width ``expert_hidden`` each.

    ``kv_heads`` defaults to ``heads``, ``expert_hidden`` to ``ffn_hidden``. ``bias``: whether every projection has a
    bias; ``norm_bias``: whether norms are LayerNorms. Raises RequestError for sizes below 1 and indivisible sizes.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    expert_hidden = ffn_hidden if expert_hidden is None else expert_hidden
    check_sizes(name, layers=layers, hidden=hidden, ffn_hidden=ffn_hidden, heads=heads, kv_heads=kv_heads, vocab=vocab)
    check_heads(name, heads, kv_heads)
    width = default_head_dim(name, hidden, heads)
    attention = Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        value_head_dim=width,
        causal=causal,
        query_key_value_bias=bias,
        output_bias=bias,
    )
    mlp: FeedForward | MixtureOfExperts = FeedForward(hidden=ffn_hidden, gated=gated, bias=bias)
    if experts:
        check_sizes(name, expert_hidden=expert_hidden)
        check_top_k(name, experts, top_k)
        mlp = MixtureOfExperts(
            experts=experts, top_k=top_k, expert_hidden=expert_hidden, gated=gated, shared_hidden=shared_hidden
        )
    kind = "moe" if experts else "dense"
    return Model(
        name=name,
        source="shapes given in the call",
        hidden=hidden,
        vocab=vocab,
        layers=(Layer(name=kind, count=layers, mixer=attention, mlp=mlp, norm_bias=norm_bias),),
        tied_embeddings=tied,
        learned_positions=learned_positions,
        rotary=rotary,
        final_norm_bias=norm_bias,
    )
