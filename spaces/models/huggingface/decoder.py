"""Decoders: entries of the table of families, and the models of their configurations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from forerun.spaces.models.huggingface import mixtures
from forerun.spaces.models.huggingface.attentions import attention_of
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.formulas import Count
from forerun.spaces.models.huggingface.layer_types import CHUNKED, FULL, SLIDING, Pattern, layer_types
from forerun.spaces.models.mixers.attention import Norm
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model, joined
from forerun.spaces.models.parts import Mixer

Switch: TypeAlias = bool | str
"""A fixed value (true, false), or the name of the flag in the configuration."""

MixerRule: TypeAlias = Callable[[Fields, Attention], Mixer | None]
"""Function that makes the mixer of a layer type; its attention is that of the model's full layers."""


_SUFFIX = {FULL: "", SLIDING: "-window", CHUNKED: "-chunk", "linear_attention": "-linear"}
_NO_ATTENTION = Attention(heads=1, kv_heads=1, head_dim=1, value_head_dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The properties of a decoder that are fixed in its code; an entry of a table in ``data/``.

    All other properties are read from the configuration: sizes, latent attention if it has a ``kv_lora_rank``, experts
    if it has their number, types of layers.
    """

    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Unusual names of fields, and their usual names (Kosmos)."""
    nested: tuple[str, ...] = ()
    """Mappings whose fields belong to the outer level (DBRX: attention, feed-forward)."""
    defaults: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Default sizes."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""
    tied: bool = False
    """Default of ``tie_word_embeddings``."""
    separate_head: bool = False
    """Whether the head has a separate table even where embeddings are tied."""
    causal: bool = True
    norms: int | Count = 2
    """Norms of a layer, given its number as ``index``."""
    norm_bias: bool = False
    final_norm: bool = True
    embedding_norm: Switch = False
    layer_types: Pattern | None = None
    """Types of layers where the configuration lists none."""
    mixers: Mapping[str, MixerRule] = field(default_factory=lambda: MappingProxyType({}))
    """Rules for layer types other than full, sliding and chunked attention."""
    shares_weights: Count | None = None
    """Whether a layer, given its number as ``index``, uses the weights of an earlier one."""
    layer_rule: Callable[[Fields, Layer, int], Layer] | None = None
    """Function that changes each layer, given its number."""
    attends: bool = True
    """False: no layer has softmax attention."""
    feeds: bool = True
    """False: layers have no feed-forward."""
    query_key_value_bias: Switch = False
    output_bias: Switch = False
    query_key_norm: Switch = False
    norm_width: Norm = "head"
    gate: str | None = None
    """An output gate of attention: "head" (one column per head) or "width"."""
    sinks: bool = False
    kv_heads: Count | None = None
    floor_head_dim: bool = False
    """Whether the head width is rounded down where heads do not divide the model's width."""
    gated: bool = True
    mlp_bias: Switch = False
    ffn_width: Count | None = None
    """Field of a dense feed-forward's inner width if not ``intermediate_size``."""
    experts: mixtures.Experts | None = field(default_factory=mixtures.Experts)
    """Properties of the experts; None: mixtures are not read."""
    learned_positions: int | None = None
    """Rows of the position table in addition to ``max_position_embeddings``; None: no table."""
    rotary: bool = True
    """Whether queries and keys are rotated where there is no table."""
    token_types: bool = False
    head: bool = True
    head_transform: bool = False
    lm_head_bias: Switch = False
    embedding_width: str | None = None
    """Field with the columns of the token table if not the model's width."""
    layer_extra: Count | None = None
    """Further parameters of each layer."""
    model_extra: Count | None = None
    """Further parameters of the model."""
    embedding_extra: Count | None = None
    """Further parameters before the first layer."""

    def on(self, fields: Fields, switch: Switch) -> bool:
        """Read the value of a switch."""
        return fields.flag(switch, False) if isinstance(switch, str) else switch

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        self._flatten(fields)
        hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers", most=MOST_LAYERS)
        positions = self._positions(fields)
        tied = fields.flag("tie_word_embeddings", self.tied)
        width = fields.optional_size(self.embedding_width) if self.embedding_width else None
        layers = self.layers(fields, hidden, count)
        fields.accept(*self.harmless)
        return Model(
            name=name,
            source=fields.source,
            hidden=hidden,
            vocab=fields.size("vocab_size"),
            layers=joined(layers),
            tied_embeddings=(tied or not self.head) and not self.separate_head,
            learned_positions=0 if self.learned_positions is None else (positions or 0) + self.learned_positions,
            rotary=self.rotary,
            token_types=(fields.optional_size("type_vocab_size", least=0) or 0) if self.token_types else 0,
            embedding_norm=self.on(fields, self.embedding_norm),
            final_norm=self.final_norm,
            final_norm_bias=self.norm_bias and self.final_norm,
            head_transform=self.head_transform,
            lm_head_bias=self.on(fields, self.lm_head_bias),
            mtp_layers=fields.optional_size("num_nextn_predict_layers", least=0, most=64) or 0,
            embedding_width=None if width == hidden else width,
            embedding_extra=self.embedding_extra(fields) if self.embedding_extra else 0,
            extra_parameters=self.model_extra(fields) if self.model_extra else 0,
            max_seq_len=positions,
        )

    def _flatten(self, fields: Fields) -> None:
        """Move fields of nested mappings to the outer level, and give renamed fields their usual name."""
        for part in self.nested:
            inner = fields.raw(part)
            if isinstance(inner, Mapping):  # the width is the model's, the type is empty
                fields.values |= {
                    key: value for key, value in inner.items() if key not in ("hidden_size", "model_type")
                }
        for name, usual in self.renamed.items():
            fields.values[usual] = fields.raw(name)

    def layers(self, fields: Fields, hidden: int, count: int) -> list[Layer]:
        """Make the ``count`` layers in execution order, one by one."""
        attention = self.attention(fields, hidden) if self.attends else _NO_ATTENTION
        types = layer_types(fields, count, self.layer_types, known=(FULL, SLIDING, CHUNKED, *self.mixers))
        experts = mixtures.per_layer(fields, self.experts, count) if self.experts and self.feeds else [None] * count
        dense = self._dense(fields) if None in experts and self.feeds else None
        fields.optional_size("intermediate_size")  # mixtures with a width of their own do not read it
        extra = self.layer_extra(fields) if self.layer_extra else 0
        made = []
        for index, (kind, mixture) in enumerate(zip(types, experts, strict=True)):
            mlp: FeedForward | MixtureOfExperts | None = mixture or dense
            layer = Layer(
                name=("moe" if mixture else "dense") + _SUFFIX.get(kind, f"-{kind}"),
                count=1,
                mixer=self._mixer(fields, kind, attention),
                mlp=mlp,
                norms=self.norms if isinstance(self.norms, int) else self.norms(fields, index=index),
                shared_weights=bool(self.shares_weights and self.shares_weights(fields, index=index)),
                norm_bias=self.norm_bias,
                extra=extra,
            )
            made.append(self.layer_rule(fields, layer, index) if self.layer_rule else layer)
        return made

    def attention(self, fields: Fields, hidden: int) -> Attention:
        """Make the softmax attention of a full layer."""
        kv_heads = self.kv_heads(fields) if self.kv_heads else None
        one = attention_of(fields, hidden, kv_heads=kv_heads, floor=self.floor_head_dim)
        columns = {None: 0, "head": one.heads, "width": one.heads * one.value_head_dim}
        return replace(
            one,
            causal=self.causal,
            query_key_value_bias=self.on(fields, self.query_key_value_bias),
            output_bias=self.on(fields, self.output_bias),
            query_key_norm=one.latent is None and self.on(fields, self.query_key_norm),
            norm_width=self.norm_width,
            gate=columns[self.gate],
            sinks=self.sinks,
        )

    def _mixer(self, fields: Fields, kind: str, attention: Attention) -> Mixer | None:
        if kind in self.mixers:
            return self.mixers[kind](fields, attention)
        if kind == SLIDING:
            return replace(attention, window=fields.size("sliding_window"))
        if kind == CHUNKED:
            return replace(attention, window=fields.size("attention_chunk_size"), chunked=True)
        return attention

    def _dense(self, fields: Fields) -> FeedForward:
        inner = self.ffn_width(fields) if self.ffn_width else fields.size("intermediate_size")
        return FeedForward(hidden=inner, gated=self.gated, bias=self.on(fields, self.mlp_bias))

    def _positions(self, fields: Fields) -> int | None:
        given = fields.given("max_position_embeddings")
        positions = (
            fields.optional_size("max_position_embeddings") if given or self.learned_positions is not None else None
        )
        if self.learned_positions is not None and positions is None:
            positions = fields.size("max_position_embeddings")
        return positions
