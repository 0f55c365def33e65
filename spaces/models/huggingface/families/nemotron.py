"""Nemotron: layers of one block each (Nemotron-H and 3), and layers that differ one by one (Nemotron-NAS)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from forerun.spaces.models.huggingface import mixtures
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.hybrids import mamba2
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.huggingface.sequence import sequence_model
from forerun.spaces.models.mixers import Attention
from forerun.spaces.models.model import FeedForward, Layer, Model

_BIASED = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneBlockLayers:
    """Nemotron-H: every layer is one block, a mixer or a feed-forward, with one norm.

    The pattern is a list (``layers_block_type``) or a text (``hybrid_override_pattern``: M Mamba-2, * attention,
    - feed-forward, E experts).
    """

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        hidden = fields.size("hidden_size")
        kinds = self.kinds(fields)
        fields.optional_size("num_hidden_layers")
        for unused in ("mtp_layers_block_type", "mtp_hybrid_override_pattern", "expand", "intermediate_size"):
            fields.raw(unused)
        decoder = replace(
            _BIASED, mlp_bias="mlp_bias", gated=False, experts=Experts(gated=False, grouped=True, router_bias=True)
        )
        attention = decoder.attention(fields, hidden)
        width = fields.optional_size("attention_head_dim")
        if width is not None and not fields.given("head_dim"):
            attention = replace(attention, head_dim=width, value_head_dim=width)
        layers = [self.layer(fields, decoder, kind, attention, hidden) for kind in kinds]
        return sequence_model(fields, name, hidden, layers, mtp="num_nextn_predict_layers")

    def kinds(self, fields: Fields) -> Sequence[str]:
        """The type of each block."""
        letters = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
        spellings = {"mamba": "linear_attention", "attention": "full_attention"}
        listed = fields.listed("layers_block_type", str) or fields.listed("layer_types", str)
        text = fields.text("hybrid_override_pattern")
        if listed is None and text is None:
            raise fields.refusal("hybrid_override_pattern", "the pattern of blocks is missing")
        found = [spellings.get(kind, kind) for kind in listed] if listed else [letters.get(c, c) for c in text or ""]
        for kind in found:
            if kind not in letters.values():
                raise fields.refusal("hybrid_override_pattern", f"{kind!r} is no block of M, *, - and E")
        return found

    def layer(self, fields: Fields, decoder: Decoder, kind: str, attention: Attention, hidden: int) -> Layer:
        """One block as a layer that only mixes tokens or only feeds forward."""
        if kind == "linear_attention":
            return Layer(name="mamba", count=1, mixer=mamba2(fields, attention), mlp=None, norms=1)
        if kind == "full_attention":
            return Layer(name="attention", count=1, mixer=attention, mlp=None, norms=1)
        if kind == "mlp":
            dense = FeedForward(
                hidden=fields.size("intermediate_size"), gated=False, bias=fields.flag("mlp_bias", False)
            )
            return Layer(name="dense", count=1, mixer=None, mlp=dense, norms=1)
        assert decoder.experts is not None
        experts = mixtures.mixture(fields, decoder.experts)
        latent = fields.optional_size("moe_latent_size") or 0
        return Layer(name="moe", count=1, mixer=None, mlp=replace(experts, latent=latent), norms=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockByBlock:
    """Nemotron-NAS (Puzzle, arXiv 2411.19146): every layer has its own number of key heads and its own inner width, or
    lacks its attention, or its feed-forward, or has one product in its place."""

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        hidden = fields.size("hidden_size")
        blocks = fields.listed("block_configs", dict)
        if blocks is None:
            raise fields.refusal("block_configs", "the list of blocks is missing")
        decoder = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias")
        heads = fields.size("num_attention_heads")
        layers = [self._layer(fields, decoder, block, hidden, heads) for block in blocks]
        for unused in ("num_hidden_layers", "num_key_value_heads", "intermediate_size"):
            fields.raw(unused)
        return sequence_model(fields, name, hidden, layers)

    def _layer(self, fields: Fields, decoder: Decoder, block: Mapping[str, Any], hidden: int, heads: int) -> Layer:
        attention, ffn = block.get("attention") or {}, block.get("ffn") or {}
        group, multiple = attention.get("n_heads_in_group"), ffn.get("ffn_mult")
        mixer: Attention | None = None
        mlp: FeedForward | None = None
        if (
            isinstance(group, int)
            and group > 0
            and not attention.get("no_op")
            and not attention.get("replace_with_linear")
        ):
            mixer = replace(decoder, kv_heads=lambda _: heads // group).attention(fields, hidden)
        if (
            isinstance(multiple, int | float)
            and multiple > 0
            and not ffn.get("no_op")
            and not ffn.get("replace_with_linear")
        ):
            inner = -(-int(2 * multiple * hidden / 3) // 256) * 256  # rounded up as the model's own code does
            mlp = FeedForward(hidden=inner, gated=True)
        linear = sum(bool(one.get("replace_with_linear")) for one in (attention, ffn))
        norms = (mixer is not None) + (mlp is not None) + linear
        kind = "dense" if mixer and mlp else "attention" if mixer else "mlp" if mlp else "linear"
        return Layer(name=kind, count=1, mixer=mixer, mlp=mlp, norms=norms, extra=linear * hidden * hidden)


TABLE: Mapping[str, OneBlockLayers | BlockByBlock] = MappingProxyType(
    {"nemotron_h": OneBlockLayers(), "nemotron-nas": BlockByBlock()}
)
"""Families by ``model_type``."""
