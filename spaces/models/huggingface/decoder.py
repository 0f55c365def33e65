"""A stack of decoder layers as its configuration describes it: the entry of a family, and the model made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from forerun.spaces.models.huggingface import mixtures
from forerun.spaces.models.huggingface.attentions import attention_of
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.layer_types import CHUNKED, FULL, SLIDING, layer_types
from forerun.spaces.models.layer_runs import joined
from forerun.spaces.models.mixers.attention import Norm
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parts import Mixer

Switch: TypeAlias = bool | str
"""A fact of the code (true, false), or the name of the flag in the configuration that decides it."""

MixerRule: TypeAlias = Callable[[Fields, Attention], Mixer | None]
"""Makes the mixer of a layer type; the attention is that of the model's full layers."""


_SUFFIX = {FULL: "", SLIDING: "-window", CHUNKED: "-chunk", "linear_attention": "-linear"}
_NO_ATTENTION = Attention(heads=1, kv_heads=1, head_dim=1, value_head_dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """What the code of a family says beside its configuration. Everything else is read: sizes, latent attention where
    there is a ``kv_lora_rank``, experts where there is a number of them, types of layers.

    ``tied``: default of ``tie_word_embeddings``. ``types``: layer types where the configuration lists none.
    ``mixers``: rules for layer types other than full, sliding and chunked attention. ``gate``: an output gate, "head"
    (one column per head) or "width". ``experts``: how mixtures are read. ``dense_layers``: which layers are dense
    where there are experts (None: read). ``learned_positions``: rows of the position table beyond
    ``max_position_embeddings`` (None: no table). ``rotary``: queries and keys are rotated where there is none.
    ``default_ffn_multiple``: inner width over hidden size where the configuration leaves it out.
    ``ffn``: the dense feed-forward where it is not ``intermediate_size``. ``extra``: further parameters of each layer,
    ``extra_once`` of the model. ``known``: fields that change nothing modelled.
    ``floor_heads``: heads may leave a rest of the width. ``untied``: the head has a table of its own all the same.
    ``sizes``: values where the configuration has none.
    """

    tied: bool = False
    gated: bool = True
    norm_bias: bool = False
    norms: int = 2
    query_key_value_bias: Switch = False
    output_bias: Switch = False
    mlp_bias: Switch = False
    query_key_norm: Switch = False
    norm_width: Norm = "head"
    gate: str | None = None
    sinks: bool = False
    attends: bool = True
    feeds: bool = True
    shared_dense: bool = False
    causal: bool = True
    floor_heads: bool = False
    learned_positions: int | None = None
    rotary: bool = True
    token_types: bool = False
    embedding_norm: Switch = False
    final_norm: bool = True
    head: bool = True
    untied: bool = False
    head_transform: bool = False
    lm_head_bias: Switch = False
    default_ffn_multiple: int | None = None
    types: Callable[[Fields, int], Sequence[str]] | None = None
    mixers: Mapping[str, MixerRule] = field(default_factory=lambda: MappingProxyType({}))
    experts: mixtures.Experts | None = field(default_factory=mixtures.Experts)
    ffn: Callable[[Fields, int], int] | None = None
    kv_heads: Callable[[Fields], int] | None = None
    adjust: Callable[[Fields, Layer, int], Layer] | None = None
    extra: Callable[[Fields], int] | None = None
    extra_once: Callable[[Fields], int] | None = None
    embedding_extra: Callable[[Fields], int] | None = None
    embedding_width: str | None = None
    known: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def on(self, fields: Fields, switch: Switch) -> bool:
        """The value of a switch."""
        return fields.flag(switch, False) if isinstance(switch, str) else switch

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers", most=MOST_LAYERS)
        positions = self._positions(fields)
        tied = fields.flag("tie_word_embeddings", self.tied)
        width = fields.optional_size(self.embedding_width) if self.embedding_width else None
        layers = self.layers(fields, hidden, count)
        for one in self.known:
            fields.raw(one)
        return Model(
            name=name,
            source=fields.source,
            hidden=hidden,
            vocab=fields.size("vocab_size"),
            layers=joined(layers),
            tied_embeddings=(tied or not self.head) and not self.untied,
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
            extra_parameters=self.extra_once(fields) if self.extra_once else 0,
            max_seq_len=positions,
        )

    def layers(self, fields: Fields, hidden: int, count: int) -> list[Layer]:
        """The ``count`` layers in execution order, each by itself."""
        attention = self.attention(fields, hidden) if self.attends else _NO_ATTENTION
        types = layer_types(fields, count, self.types, known=(FULL, SLIDING, CHUNKED, *self.mixers))
        experts = mixtures.per_layer(fields, self.experts, count) if self.experts and self.feeds else [None] * count
        dense = self._dense(fields, hidden) if None in experts and self.feeds else None
        fields.optional_size("intermediate_size")  # mixtures with a width of their own leave it unread
        extra = self.extra(fields) if self.extra else 0
        made = []
        for index, (kind, mixture) in enumerate(zip(types, experts, strict=True)):
            mlp: FeedForward | MixtureOfExperts | None = mixture or dense
            layer = Layer(
                name=("moe" if mixture else "dense") + _SUFFIX.get(kind, f"-{kind}"),
                count=1,
                mixer=self._mixer(fields, kind, attention),
                mlp=mlp,
                norms=self.norms,
                norm_bias=self.norm_bias,
                extra=extra,
            )
            made.append(self.adjust(fields, layer, index) if self.adjust else layer)
        return made

    def attention(self, fields: Fields, hidden: int) -> Attention:
        """Softmax attention of a full layer."""
        own = self.kv_heads(fields) if self.kv_heads else None
        one = attention_of(fields, hidden, kv_heads=own, floor=self.floor_heads)
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

    def _dense(self, fields: Fields, hidden: int) -> FeedForward:
        if self.shared_dense:  # Granite hybrids without experts keep the width of the shared ones
            inner = fields.size("shared_expert_intermediate_size")
        elif self.ffn is not None:
            inner = self.ffn(fields, hidden)
        else:
            multiple = self.default_ffn_multiple
            inner = fields.size("intermediate_size", None if multiple is None else multiple * hidden)
        return FeedForward(hidden=inner, gated=self.gated, bias=self.on(fields, self.mlp_bias))

    def _positions(self, fields: Fields) -> int | None:
        given = fields.given("max_position_embeddings")
        positions = (
            fields.optional_size("max_position_embeddings") if given or self.learned_positions is not None else None
        )
        if self.learned_positions is not None and positions is None:
            positions = fields.size("max_position_embeddings")
        return positions
