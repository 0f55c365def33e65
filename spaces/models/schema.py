"""The YAML form of a model, in the catalogue and in users' files.

Keys are the fields of ``forerun.spaces.models.model`` with defaults that suit most models, for example::

    source: https://example.org/our-model
    hidden: 4096
    vocab: 32000
    layers:
      - count: 32
        attention: {heads: 32, kv_heads: 8}
        mlp: {hidden: 14336, gated: true}

Alternatively ``config`` has the fields of its ``config.json``. This module checks the keys; ``building`` makes the
model from the given keys and the fields' defaults.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forerun.spaces.divisors import use_one_of
from forerun.spaces.models.mixers.attention import Norm

# Bounds prevent hours of search after a typing error (a count in bytes, a repeated digit).
Size = Annotated[int, Field(ge=1, le=2**31)]
MOST_LAYERS = 10_000
Count = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
OptionalSize = Annotated[int, Field(ge=0, le=2**31)]


class StrictDocument(BaseModel):
    """Base of all parts: no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LatentDocument(StrictDocument):
    """Multi-head latent attention: ``LatentAttention``, without ``query_rank`` for direct queries."""

    query_rank: Size | None = None
    key_value_rank: Size
    rope_head_dim: Size


class AttentionDocument(StrictDocument):
    """One attention block; biases default to the model's ``bias``, ``head_dim`` to ``hidden / heads``."""

    heads: Size
    kv_heads: Size | None = None
    head_dim: Size | None = None
    value_head_dim: Size | None = None
    causal: bool = True
    window: Size | None = None
    query_key_value_bias: bool | None = None
    output_bias: bool | None = None
    query_key_norm: bool = False
    norm_width: Norm = "head"
    gate: OptionalSize = 0
    sinks: bool = False
    chunked: bool = False
    latent: LatentDocument | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} heads are not divisible by kv_heads={self.kv_heads}; {use_one_of(self.heads, most=12)}"
            )
        if self.latent is not None:
            if self.head_dim is None or self.value_head_dim is None:
                raise ValueError("latent attention needs head_dim (nope + rope) and value_head_dim")
            if self.latent.rope_head_dim > self.head_dim:
                raise ValueError(
                    f"rope_head_dim is a part of head_dim, but got {self.latent.rope_head_dim} of {self.head_dim}"
                )
        return self


class FeedForwardDocument(StrictDocument):
    """A dense MLP; ``bias`` defaults to the model's."""

    hidden: Size
    gated: bool
    bias: bool | None = None


class MixtureDocument(StrictDocument):
    """A mixture of experts: the fields of ``MixtureOfExperts``."""

    experts: Size
    top_k: Size
    expert_hidden: Size
    gated: bool
    shared_hidden: OptionalSize = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    groups: Count = 1
    top_groups: Count = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.top_k > self.experts:
            raise ValueError(f"top_k <= experts must hold, but got (top_k={self.top_k}, experts={self.experts})")
        if self.experts % self.groups:
            raise ValueError(f"{self.experts} experts cannot be divided into {self.groups} equal groups")
        if self.top_groups > self.groups or self.top_k > self.top_groups * (self.experts // self.groups):
            raise ValueError(
                f"top_groups <= groups and top_k <= top_groups * experts / groups must hold, but got "
                f"(groups={self.groups}, top_groups={self.top_groups}, top_k={self.top_k}, experts={self.experts})"
            )
        return self


class LayerDocument(StrictDocument):
    """``count`` consecutive layers with either ``mlp`` or ``mixture``.

    ``windows`` is cycled over the layers: ``[1024, null]`` alternates windowed and full attention.
    """

    count: Count
    attention: AttentionDocument
    mlp: FeedForwardDocument | None = None
    mixture: MixtureDocument | None = None
    cross_attention: AttentionDocument | None = None
    windows: list[Size | None] | None = None
    name: str | None = None
    norms: Annotated[int, Field(ge=0, le=16)] = 2

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.mlp is None) == (self.mixture is None):
            raise ValueError("a layer has either mlp or mixture; give exactly one of them")
        if self.windows is not None and (self.attention.window is not None or not self.windows):
            raise ValueError("windows is a list of at least one and replaces attention.window; give one of them")
        return self


class ConfigDocument(StrictDocument):
    """A model given by its Hugging Face ``config.json``, for families whose layers have no keys in this form."""

    name: str | None = None
    source: Annotated[str, Field(min_length=1)]
    config: dict[str, Any]
    published_parameters: Annotated[float, Field(gt=0)] | None = None


class ModelDocument(StrictDocument):
    """A model. ``norm: layer`` gives every norm a bias (LayerNorm), ``rms`` none; ``bias``: bias of projections.

    ``name`` defaults to the file's name. All other keys are the fields of ``Model``.
    """

    name: str | None = None
    source: Annotated[str, Field(min_length=1)]
    hidden: Size
    vocab: OptionalSize
    layers: Annotated[list[LayerDocument], Field(min_length=1, max_length=10_000)]
    norm: Literal["rms", "layer"] = "rms"
    bias: bool = False
    tied_embeddings: bool = False
    learned_positions: OptionalSize = 0
    rotary: bool = True
    token_types: OptionalSize = 0
    embedding_norm: bool = False
    final_norm: bool = True
    lm_head_bias: bool = False
    head_transform: bool = False
    mtp_layers: Annotated[int, Field(ge=0, le=64)] = 0
    patch_inputs: OptionalSize = 0
    classes: OptionalSize = 0
    extra_parameters: Annotated[int, Field(ge=0)] = 0
    encoder_layers: OptionalSize = 0
    max_seq_len: Size | None = None
    published_parameters: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for layer in self.layers:
            for attention in (layer.attention, layer.cross_attention):
                if attention is not None and attention.head_dim is None and self.hidden % attention.heads:
                    raise ValueError(f"hidden={self.hidden} is not divisible by heads={attention.heads}; give head_dim")
        count = sum(layer.count for layer in self.layers)
        if count > MOST_LAYERS:
            raise ValueError(f"a model has at most {MOST_LAYERS:,} layers, but got {count:,}")
        if self.encoder_layers > count:
            raise ValueError(f"encoder_layers is a part of all {count} layers, but got {self.encoder_layers}")
        if self.vocab == 0 and self.patch_inputs == 0:
            raise ValueError("a model reads tokens (vocab) or patches (patch_inputs), but both are 0")
        return self
