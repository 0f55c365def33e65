"""A model as what training it costs: layers with shapes, in execution order.

Only facts that change time or memory are kept. Sizes are element counts of the unpartitioned model.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Low-rank projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    ``query_rank`` is None when queries are projected directly. ``rope_head_dim`` is the part of a head that carries
    positions; ``Attention.head_dim`` is the whole query/key head (``nope + rope``).
    """

    query_rank: int | None
    key_value_rank: int
    rope_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention block. ``kv_heads < heads`` is grouped-query attention; ``window`` bounds the
    keys each query sees."""

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    causal: bool = True
    window: int | None = None
    query_key_value_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    latent: LatentAttention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense MLP: ``hidden`` is its inner width; a gated one has three matrices instead of two."""

    hidden: int
    gated: bool
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """``experts`` feed-forward networks of inner width ``expert_hidden`` of which each token visits ``top_k``.

    ``shared_hidden`` is the total inner width of the experts that every token visits (0: none).
    ``shared_gate``: a sigmoid gate scales the shared output (Qwen2-MoE). ``router_bias``: one bias per expert.
    ``groups``: the experts stand in so many groups, and all that a token visits are in ``top_groups`` of them
    (group-limited routing, DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
    """

    experts: int
    top_k: int
    expert_hidden: int
    gated: bool
    shared_hidden: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    groups: int = 1
    top_groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A transformer layer that stands ``count`` times in a row.

    ``role``: "decoder" attends to the sequence itself, "encoder" likewise without a causal mask;
    a layer with ``cross_attention`` also reads the encoder's output (T5 decoder).
    ``norms`` counts normalisations over the hidden size; ``norm_bias`` is true for LayerNorm, false for RMSNorm.
    ``module``: the only one of ``MODULES`` that this stands for, None for the whole layer.
    """

    name: str
    count: int
    attention: Attention
    mlp: FeedForward | MixtureOfExperts
    cross_attention: Attention | None = None
    norms: int = 2
    norm_bias: bool = False
    module: str | None = None

    @property
    def attends(self) -> bool:
        """Whether the attention is part of this."""
        return self.module != "mlp"

    @property
    def feeds_forward(self) -> bool:
        """Whether the MLP is part of this."""
        return self.module != "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model to train.

    ``vocab`` is 0 for models without a token embedding (ViT). ``patch_inputs`` is the input width of a patch projection
    (ViT: patch*patch*channels), ``classes`` the width of a classification head. ``learned_positions`` is the length
    of a learned position table (0: rotary or relative). ``head_transform``: a hidden x hidden dense layer before
    the LM head (BERT). ``mtp_layers`` multi-token-prediction blocks (DeepSeek-V3) follow the last layer: each is one
    more layer like the last, a 2*hidden -> hidden projection and another pass through the shared head.
    ``extra_parameters`` are parameters too small to model as operators (pooler, relative position tables, class token).
    ``encoder_layers`` is the number of leading layers (not ``Layer`` entries) that form the encoder of an
    encoder-decoder model, 0 otherwise.
    ``source`` says where the numbers come from; ``published_parameters`` is the published count (None: not stated).
    """

    name: str
    source: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    tied_embeddings: bool = False
    learned_positions: int = 0
    token_types: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    final_norm_bias: bool = False
    lm_head_bias: bool = False
    head_transform: bool = False
    mtp_layers: int = 0
    patch_inputs: int = 0
    classes: int = 0
    extra_parameters: int = 0
    encoder_layers: int = 0
    max_seq_len: int | None = None
    published_parameters: float | None = None

    @property
    def layer_count(self) -> int:
        """Number of layers, multi-token-prediction blocks not counted."""
        return sum(layer.count for layer in self.layers if not layer.module)
