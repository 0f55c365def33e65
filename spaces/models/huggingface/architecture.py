"""What distinguishes one decoder architecture from another, and the model made of it and a configuration's sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.layer_runs import joined
from forerun.spaces.models.model import Attention, FeedForward, LatentAttention, Layer, MixtureOfExperts, Model
from forerun.spaces.models.shapes import check_heads, check_top_k, default_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Facts that transformers writes in code rather than in the configuration, or that families spell differently.

    ``windows`` and ``mixtures`` have one entry per layer or are empty for none; ``latent`` comes with
    ``latent_value_head_dim`` and ``latent_nope_head_dim``. ``default_ffn_multiple``: inner width over hidden size where
    the configuration may leave it out. ``kv_heads``: overrides the configuration's. ``sinks``: one learned logit per
    head (gpt-oss).
    """

    tied: bool
    gated: bool = True
    norm_bias: bool = False
    norms: int = 2
    query_key_value_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    query_key_norm: bool = False
    learned_positions: bool = False
    embedding_norm: bool = False
    lm_head_bias: bool = False
    sinks: bool = False
    default_ffn_multiple: int | None = None
    kv_heads: int | None = None
    windows: Sequence[int | None] = ()
    mixtures: Sequence[MixtureOfExperts | None] = ()
    latent: LatentAttention | None = None
    latent_nope_head_dim: int = 0
    latent_value_head_dim: int = 0
    mtp_layers: int = 0


def layer_count(fields: Fields) -> int:
    """Number of layers that the configuration names."""
    return fields.size("num_hidden_layers", most=MOST_LAYERS)


def assemble(fields: Fields, architecture: Architecture, name: str) -> Model:
    """The model of ``architecture`` with the sizes of ``fields``."""
    hidden, count = fields.size("hidden_size"), layer_count(fields)
    attention = _attention(fields, architecture, hidden)
    mixtures = architecture.mixtures or (None,) * count
    dense = _dense(fields, architecture, hidden) if None in mixtures else None
    # Mixtures with a dense width of their own leave `intermediate_size` unread.
    fields.optional_size("intermediate_size")
    layers = []
    for index in range(count):
        window = architecture.windows[index] if architecture.windows else None
        mlp = mixtures[index] or dense
        assert mlp is not None  # dense was built if any entry is None
        kind = "dense" if isinstance(mlp, FeedForward) else "moe"
        layers.append(
            Layer(
                name=kind if window is None else f"{kind}-window",
                count=1,
                mixer=attention if window is None else replace(attention, window=window),
                mlp=mlp,
                norms=architecture.norms,
                norm_bias=architecture.norm_bias,
            )
        )
    positions = fields.optional_size("max_position_embeddings")
    if architecture.learned_positions and positions is None:
        positions = fields.size("max_position_embeddings")
    return Model(
        name=name,
        source=fields.source,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        layers=joined(layers),
        tied_embeddings=architecture.tied,
        learned_positions=positions or 0 if architecture.learned_positions else 0,
        embedding_norm=architecture.embedding_norm,
        final_norm_bias=architecture.norm_bias,
        lm_head_bias=architecture.lm_head_bias,
        mtp_layers=architecture.mtp_layers,
        extra_parameters=count * attention.heads if architecture.sinks else 0,
        max_seq_len=positions,
    )


def mixture(fields: Fields, **traits: bool | int) -> MixtureOfExperts:
    """The routed experts that the configuration names; ``traits`` are further fields of the mixture."""
    experts = fields.size("num_local_experts")
    top_k = fields.size("num_experts_per_tok")
    check_top_k(fields.source, experts, top_k)
    inner = fields.optional_size("moe_intermediate_size")
    # Mixtral and gpt-oss call the width of an expert `intermediate_size`.
    expert_hidden = fields.size("intermediate_size") if inner is None else inner
    return MixtureOfExperts(experts=experts, top_k=top_k, expert_hidden=expert_hidden, gated=True, **traits)  # type: ignore[arg-type]  # bool and int fields only


def typed_windows(fields: Fields, window: int | None, otherwise: Sequence[bool]) -> Sequence[int | None]:
    """The window of each layer by ``layer_types``, or where that is missing by ``otherwise`` (true: windowed)."""
    types = fields.listed("layer_types", str, length=len(otherwise))
    if types is not None:
        for kind in types:
            if kind not in ("full_attention", "sliding_attention"):
                raise RequestError(
                    f"{fields.source}: layer_types holds {kind!r}; forerun knows full_attention and sliding_attention"
                )
        otherwise = [kind == "sliding_attention" for kind in types]
    if window is None:
        if types is not None and any(otherwise):
            raise RequestError(f"{fields.source}: layer_types has sliding_attention, but sliding_window is missing")
        return ()
    return [window if windowed else None for windowed in otherwise]


def _attention(fields: Fields, architecture: Architecture, hidden: int) -> Attention:
    heads = fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads", heads) if architecture.kv_heads is None else architecture.kv_heads
    check_heads(fields.source, heads, kv_heads)
    latent = architecture.latent
    if latent is not None:
        fields.optional_size("head_dim")  # transformers 5 saves the rotary part under this name
        fields.optional_size("qk_head_dim")
        kv_heads = heads  # expanded for training: every head has its own keys
        head_dim = architecture.latent_nope_head_dim + latent.rope_head_dim
        value_head_dim = architecture.latent_value_head_dim
    else:
        head_dim = value_head_dim = _head_dim(fields, hidden, heads)
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        query_key_value_bias=architecture.query_key_value_bias,
        output_bias=architecture.output_bias,
        query_key_norm=architecture.query_key_norm,
        latent=latent,
    )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if fields.has("head_dim"):
        return fields.size("head_dim")
    return fields.size("head_dim", default_head_dim(fields.source, hidden, heads))


def _dense(fields: Fields, architecture: Architecture, hidden: int) -> FeedForward:
    multiple = architecture.default_ffn_multiple
    inner = fields.size("intermediate_size", None if multiple is None else multiple * hidden)
    return FeedForward(hidden=inner, gated=architecture.gated, bias=architecture.mlp_bias)
