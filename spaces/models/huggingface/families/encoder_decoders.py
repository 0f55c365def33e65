"""Encoder-decoder models: T5 and BART with their descendants, Whisper.

The encoder's layers come first and attend in both directions; each decoder layer also reads their output.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.attentions import multi_head
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields, unused
from forerun.spaces.models.huggingface.formulas import Count, Formula
from forerun.spaces.models.huggingface.tables import table
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model, joined
from forerun.spaces.models.shapes import default_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Like:
    """T5 (arXiv 1910.10683): RMSNorm, no biases, tables of relative positions."""

    tables_everywhere: bool = False
    """Whether tables are in every layer, not only in the first of each stack (UMT5)."""
    experts: bool = False
    """Whether some layers are mixtures (Switch)."""
    tied: bool | None = None
    """Value in place of the configuration's."""
    model_extra: Count | None = None
    """Further parameters of the model."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
        width = fields.size("head_dim")
        projection = fields.text("feed_forward_proj") or (
            "gated-gelu" if fields.flag("is_gated_act", False) else "relu"
        )
        dense = FeedForward(hidden=fields.size("intermediate_size"), gated=projection.startswith("gated"))
        attention = Attention(heads=heads, kv_heads=heads, head_dim=width, value_head_dim=width)
        encoders = fields.size("num_hidden_layers", most=MOST_LAYERS)
        decoders = fields.size("num_decoder_layers", encoders, most=MOST_LAYERS)
        table = fields.size("relative_attention_num_buckets", 32) * heads
        fields.raw("tie_word_embeddings")
        fields.accept(*unused("t5"), *self.harmless)
        encoder = Layer(name="encoder", count=1, mixer=replace(attention, causal=False), mlp=dense, norms=2)
        decoder = Layer(
            name="decoder",
            count=1,
            mixer=attention,
            mlp=dense,
            cross_attention=replace(attention, causal=False),
            norms=3,
        )
        stacks = []
        for layer, count, period in (
            (encoder, encoders, "encoder_sparse_step"),
            (decoder, decoders, "decoder_sparse_step"),
        ):
            for index in range(count):
                stacks.append(self._mixture(fields, layer, index, period) if self.experts else layer)
        tables = (encoders + decoders) if self.tables_everywhere else 2
        return Model(
            name=name,
            source=fields.source,
            hidden=hidden,
            vocab=fields.size("vocab_size"),
            layers=joined(stacks),
            tied_embeddings=fields.flag("tie_word_embeddings", True) if self.tied is None else self.tied,
            # The encoder also has a final norm.
            extra_parameters=tables * table + hidden + (self.model_extra(fields) if self.model_extra else 0),
            encoder_layers=encoders,
        )

    def _mixture(self, fields: Fields, layer: Layer, index: int, period: str) -> Layer:
        step = fields.size(period, 2)
        if index % step != step // 2 if step > 1 else False:
            return layer
        experts = MixtureOfExperts(
            experts=fields.size("num_local_experts"),
            top_k=1,
            expert_hidden=fields.size("intermediate_size"),
            gated=False,
        )
        return replace(layer, name=f"{layer.name}-moe", mlp=experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BartLike:
    """BART (arXiv 1910.13461): LayerNorms and biases everywhere."""

    positions: int | None = 2
    """Rows of each table of learned positions in addition to ``max_position_embeddings``; None: no table."""
    tables: tuple[str, str] = ("max_position_embeddings", "max_position_embeddings")
    """Fields with the rows of the encoder's and the decoder's table of positions."""
    vocab: str = "vocab_size"
    """Field with the decoder's vocabulary."""
    embedding_norm: bool = True
    final_norm: bool = False
    bias: bool = True
    """Whether linear layers of attention have a bias."""
    key_bias: bool = True
    """Whether those of the keys also have a bias."""
    audio: bool = False
    """Whether the encoder starts with two convolutions over mel bins (Whisper)."""
    experts: bool = False
    """Whether some layers are mixtures (NLLB)."""
    encoder_extra: Count | None = None
    """Further parameters of each encoder layer."""
    decoder_extra: Count | None = None
    """Further parameters of each decoder layer."""
    model_extra: Count | None = None
    """Further parameters of the model."""
    decoder_only: bool = False
    """Whether there is no encoder."""
    separate_head: bool = False
    """Whether the head has a separate table if there is no encoder."""
    only_class: str | None = None
    """Part of the name of the only supported class; the others need convolutions over audio (SeamlessM4T)."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``.

        If the configuration names a causal language model, the model is the decoder alone.

        Raises
        ------
        RequestError
            The configuration names an unknown class, or a field is wrong.
        """
        if self.only_class is not None:
            self._check_class(fields)
        hidden = fields.size("hidden_size")
        classes = fields.listed_or_none("architectures", str) or ()
        alone = self.decoder_only or any("CausalLM" in one or "DecoderWrapper" in one for one in classes)
        encoder = [] if self.decoder_only else self._stack(fields, hidden, "encoder")
        decoder = self._stack(fields, hidden, "decoder")
        fields.accept(*self.harmless, "num_hidden_layers", "max_length", "classifier_proj_size", "extra_pos_embeddings")
        embedding, tokens = self._tables(fields, hidden, alone)
        norms = 0 if alone else 2 * hidden * (self.final_norm + self.embedding_norm)  # the encoder's own
        layers = decoder if alone else [replace(layer, tokens=tokens) for layer in encoder] + decoder
        return Model(
            name=name,
            source=fields.source,
            hidden=hidden,
            vocab=fields.size(self.vocab),
            layers=joined(layers),
            tied_embeddings=fields.flag("tie_word_embeddings", True) and not (alone and self.separate_head),
            embedding_norm=self.embedding_norm,
            final_norm=self.final_norm,
            final_norm_bias=self.final_norm,
            embedding_extra=embedding,
            extra_parameters=norms + (self.model_extra(fields) if self.model_extra else 0),
            encoder_layers=0 if alone else len(encoder),
            max_seq_len=fields.optional_size(self.tables[1]),
        )

    def _check_class(self, fields: Fields) -> None:
        if not any(str(self.only_class) in one for one in fields.listed_or_none("architectures", str) or ()):
            reason = f"only its class For{self.only_class} is read: the others need convolutions over sound"
            raise RequestError(f"{fields.source}: {reason}, an operator that forerun has not")
        fields.read.update(fields.values)  # all other fields describe omitted parts

    def _tables(self, fields: Fields, hidden: int, alone: bool) -> tuple[int, int | None]:
        """Count parameters before the layers, without the token table, and tokens of an encoder of fixed length."""
        rows = 0
        if self.positions is not None:
            sides = self.tables[1:] if alone else self.tables
            rows = sum(fields.size(side) + self.positions for side in sides)
        if not self.audio:
            return rows * hidden, None
        bins, tokens = fields.size("num_mel_bins"), fields.size(self.tables[0])
        convolutions = 0 if alone else 3 * (bins + hidden) * hidden + 2 * hidden
        return rows * hidden + convolutions, tokens

    def _stack(self, fields: Fields, hidden: int, side: str) -> list[Layer]:
        heads, count = self._size(fields, side, "attention_heads"), self._size(fields, side, "layers")
        width = default_head_dim(fields.source, hidden, heads)
        both_ways = multi_head(heads, width, bias=self.bias, extra=0 if self.key_bias else -hidden)
        attention = replace(both_ways, causal=side == "decoder")
        dense = FeedForward(hidden=fields.size(f"{side}_ffn_dim"), gated=False, bias=True)
        cross = both_ways if side == "decoder" else None
        extra = self.decoder_extra if side == "decoder" else self.encoder_extra
        layer = Layer(
            name=side,
            count=1,
            mixer=attention,
            mlp=dense,
            cross_attention=cross,
            norms=3 if cross else 2,
            norm_bias=True,
            extra=extra(fields) if extra else 0,
        )
        step = fields.size(f"{side}_sparse_step", 4) if self.experts else 0
        return [self._mixture(fields, layer) if step and (index + 1) % step == 0 else layer for index in range(count)]

    def _mixture(self, fields: Fields, layer: Layer) -> Layer:
        inner = layer.feed_forward
        assert isinstance(inner, FeedForward)
        experts = MixtureOfExperts(
            experts=fields.size("num_local_experts"), top_k=2, expert_hidden=inner.hidden, gated=False, expert_bias=True
        )
        return replace(layer, name=f"{layer.name}-moe", mlp=experts)

    def _size(self, fields: Fields, side: str, what: str) -> int:
        """Read a size of one stack, spelled ``encoder_layers`` or ``num_encoder_layers``."""
        size = fields.optional_size(f"{side}_{what}", most=MOST_LAYERS)
        if size is None:
            size = fields.optional_size(f"num_{side}_{what}", most=MOST_LAYERS)
        if size is None:
            raise RequestError(f"{fields.source}: the required field {side}_{what} is missing")
        return size


@cache
def encoder_decoders() -> Mapping[str, BartLike | T5Like]:
    """Return the encoder-decoder models by model type; names with an underscore are not model types."""
    formulas = ("model_extra", "encoder_extra", "decoder_extra")
    tuples = ("harmless", "tables")
    return table(
        _encoder_decoder,
        "encoder_decoders",
        conversions={**dict.fromkeys(formulas, Formula), **dict.fromkeys(tuples, tuple)},
    )


def _encoder_decoder(form: str = "bart", **keys: Any) -> BartLike | T5Like:
    """Make the family of a table's entry."""
    return T5Like(**keys) if form == "t5" else BartLike(**keys)
