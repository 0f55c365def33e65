"""Decoders with layers other than one mixer and one feed-forward.

Blocks of one part (Nemotron-H), blocks that all differ (Nemotron-NAS), blocks that share weights (Zamba), and layers of
two attentions (LongCat).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from forerun.spaces.errors import unknown
from forerun.spaces.models.huggingface import mixtures
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields, unused
from forerun.spaces.models.huggingface.mixer_rules import mamba1, mamba2
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.mixers import Attention
from forerun.spaces.models.model import FeedForward, Layer, Model, joined
from forerun.spaces.models.parts import Mixer

_BIASED = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")
_ZAMBA_KINDS = ("mamba", "linear_attention", "hybrid", "full_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneBlockLayers:
    """Nemotron-H: every layer is one block, a mixer or a feed-forward, with one norm.

    The pattern is a list (``layers_block_type``) or a text (``hybrid_override_pattern``: M Mamba-2, * attention,
    - feed-forward, E experts).
    """

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        hidden = fields.size("hidden_size")
        kinds = self.kinds(fields)
        fields.optional_size("num_hidden_layers")
        fields.accept("mtp_layers_block_type", "mtp_hybrid_override_pattern", "expand", "intermediate_size")
        attention = _BIASED.attention(fields, hidden)
        width = fields.optional_size("attention_head_dim")
        if width is not None and not fields.given("head_dim"):
            attention = replace(attention, head_dim=width, value_head_dim=width)
        layers = [self.layer(fields, kind, attention) for kind in kinds]
        return _model(fields, name, hidden, layers, mtp="num_nextn_predict_layers")

    def kinds(self, fields: Fields) -> Sequence[str]:
        """Read the type of each block."""
        letters = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
        spellings = {"mamba": "linear_attention", "attention": "full_attention"}
        listed = fields.listed("layers_block_type", str) or fields.listed("layer_types", str)
        text = fields.text("hybrid_override_pattern")
        if listed is None and text is None:
            raise fields.refusal("hybrid_override_pattern", "the pattern of blocks is missing")
        kinds = [spellings.get(kind, kind) for kind in listed] if listed else [letters.get(c, c) for c in text or ""]
        for kind in kinds:
            if kind not in letters.values():
                raise fields.refusal("hybrid_override_pattern", f"{kind!r} is not a block of M, *, - and E")
        return kinds

    def layer(self, fields: Fields, kind: str, attention: Attention) -> Layer:
        """Make a layer of one block, either a mixer or a feed-forward."""
        if kind == "linear_attention":
            return Layer(name="mamba", count=1, mixer=mamba2(fields, attention), mlp=None, norms=1)
        if kind == "full_attention":
            return Layer(name="attention", count=1, mixer=attention, mlp=None, norms=1)
        if kind == "mlp":
            dense = FeedForward(
                hidden=fields.size("intermediate_size"), gated=False, bias=fields.flag("mlp_bias", False)
            )
            return Layer(name="dense", count=1, mixer=None, mlp=dense, norms=1)
        experts = mixtures.mixture(fields, Experts(gated=False, grouped=True, router_bias=True))
        latent = fields.optional_size("moe_latent_size") or 0
        return Layer(name="moe", count=1, mixer=None, mlp=replace(experts, latent=latent), norms=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockByBlock:
    """Nemotron-NAS (Puzzle, arXiv 2411.19146).

    Every layer has its number of key heads and its inner width, or lacks its attention or its feed-forward, or has one
    linear layer in place of it.
    """

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        hidden = fields.size("hidden_size")
        blocks = fields.listed("block_configs", dict)
        if blocks is None:
            raise fields.refusal("block_configs", "the list of blocks is missing")
        heads = fields.size("num_attention_heads")
        layers = [self._layer(fields, block, hidden, heads) for block in blocks]
        fields.accept("num_hidden_layers", "num_key_value_heads", "intermediate_size")
        return _model(fields, name, hidden, layers)

    def _layer(self, fields: Fields, block: Mapping[str, Any], hidden: int, heads: int) -> Layer:
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
            mixer = replace(_BIASED, kv_heads=lambda _: heads // group).attention(fields, hidden)
        if (
            isinstance(multiple, int | float)
            and multiple > 0
            and not ffn.get("no_op")
            and not ffn.get("replace_with_linear")
        ):
            inner = -(-int(2 * multiple * hidden / 3) // 256) * 256  # rounded up as in the model's code
            mlp = FeedForward(hidden=inner, gated=True)
        linear = sum(bool(one.get("replace_with_linear")) for one in (attention, ffn))
        norms = (mixer is not None) + (mlp is not None) + linear
        kind = "dense" if mixer and mlp else "attention" if mixer else "mlp" if mlp else "linear"
        return Layer(name=kind, count=1, mixer=mixer, mlp=mlp, norms=norms, extra=linear * hidden * hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBlocks:
    """Zamba: Mamba layers with a shared transformer block between some of them.

    The block reads the hidden state and the embedding, concatenated; a linear layer projects its output back (arXiv
    2405.16712, section 2).
    """

    second: bool = False

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers", most=MOST_LAYERS)
        kinds = self._kinds(fields, count)
        blocks, layers, mixer = fields.size("num_mem_blocks", 1), [], self._mamba(fields)
        mamba = Layer(name="mamba", count=1, mixer=mixer, mlp=None, norms=1)
        shared = self._block(fields, hidden)
        place = 0
        for kind in kinds:
            if kind != "linear_attention" and kind != "mamba":
                first = place < blocks
                adapters = self._adapters(fields, hidden) + hidden * hidden
                layers.append(replace(shared, shared_weights=not first, extra=adapters + (hidden if first else 0)))
                place += 1
            layers.append(mamba)
        fields.accept(*unused("zamba"))
        return _model(fields, name, hidden, layers, tied=True)

    def _kinds(self, fields: Fields, count: int) -> Sequence[str]:
        listed = fields.listed("layers_block_type", str) or fields.listed("layer_types", str)
        if listed is not None:
            strange = next((kind for kind in listed if kind not in _ZAMBA_KINDS), None)
            if strange is not None:
                raise unknown("kind of layer", strange, _ZAMBA_KINDS)
            return listed
        if self.second:
            hybrid = fields.listed("hybrid_layer_ids", int) or ()
            return ["hybrid" if index in hybrid else "mamba" for index in range(count)]
        period, offset = fields.size("attn_layer_period", 6), fields.size("attn_layer_offset", 4, least=0)
        return ["hybrid" if index % period == offset else "mamba" for index in range(count)]

    def _mamba(self, fields: Fields) -> Mixer:
        if self.second:
            return mamba2(fields, None)
        fields.size("n_mamba_heads", 2)  # parts with their own dt, B and C have equally large products
        return mamba1(fields, None)

    def _block(self, fields: Fields, hidden: int) -> Layer:
        heads = fields.size("num_attention_heads")
        width = fields.optional_size("attention_head_dim") or 2 * hidden // heads
        attention = Attention(
            heads=heads,
            kv_heads=fields.optional_size("num_key_value_heads") or heads,
            head_dim=width,
            value_head_dim=width,
            input_width=2 * hidden,
        )
        inner = fields.size("intermediate_size", 4 * hidden)
        return Layer(name="shared", count=1, mixer=attention, mlp=FeedForward(hidden=inner, gated=True), norms=2)

    def _adapters(self, fields: Fields, hidden: int) -> int:
        """Count the parameters of Zamba2's low-rank adapters of the shared feed-forward, one set per use."""
        if not self.second:
            return 0
        return fields.size("adapter_rank", 128) * (hidden + 2 * fields.size("intermediate_size", 4 * hidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleLayers:
    """LongCat-Flash (arXiv 2509.01322, section 2.2).

    A layer is two attentions with a dense feed-forward each, and experts parallel to the first of them; the router may
    choose null experts.
    """

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers", most=MOST_LAYERS)
        inner = fields.size("intermediate_size")
        dense = Layer(
            name="dense", count=2, mixer=_BIASED.attention(fields, hidden), mlp=FeedForward(hidden=inner, gated=True)
        )
        routed = mixtures.mixture(fields, Experts())
        routed = replace(routed, null_experts=fields.size("zero_expert_num", 0, least=0))
        experts = Layer(name="moe", count=1, mixer=None, mlp=routed, norms=0)
        return _model(fields, name, hidden, (dense, experts) * count, mtp="num_nextn_predict_layers")


def _model(
    fields: Fields, name: str, hidden: int, layers: Iterable[Layer], *, tied: bool = False, mtp: str | None = None
) -> Model:
    """Make the model called ``name`` of ``layers`` of width ``hidden`` between embedding and head.

    ``tied``: default of ``tie_word_embeddings``. ``mtp``: field with the number of multi-token-prediction layers, if
    any.
    """
    return Model(
        name=name,
        source=fields.source,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        layers=joined(layers),
        tied_embeddings=fields.flag("tie_word_embeddings", tied),
        mtp_layers=(fields.optional_size(mtp, least=0, most=64) or 0) if mtp else 0,
        max_seq_len=fields.optional_size("max_position_embeddings"),
    )


IRREGULAR: Mapping[str, OneBlockLayers | BlockByBlock | SharedBlocks | DoubleLayers] = MappingProxyType(
    {
        "longcat_flash": DoubleLayers(),
        "nemotron-nas": BlockByBlock(),
        "nemotron_h": OneBlockLayers(),
        "zamba": SharedBlocks(),
        "zamba2": SharedBlocks(second=True),
    }
)
"""Families by ``model_type``."""
