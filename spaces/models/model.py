"""A model as input of the cost rules: layers with shapes, in execution order.

Only facts that change time or memory are kept. Sizes are element counts of the unsharded model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from forerun.spaces.errors import RequestError
from forerun.spaces.models.feed_forwards import FeedForward, MixtureOfExperts
from forerun.spaces.models.mixers import Attention, GatedDelta, LatentAttention
from forerun.spaces.models.parts import Mixer

__all__ = ["Attention", "FeedForward", "LatentAttention", "Layer", "MixtureOfExperts", "Model", "Trains"]

Trains = Literal["all", "adapters", "inputs", "nothing"]
"""Gradients of a layer's backward pass. Gradients are computed for its parameters; for low-rank adapters only; for its
input only, for earlier layers; or not at all, without a backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A run of ``count`` equal layers, each a mixer of tokens and a feed-forward; either may be None.

    A layer with ``cross_attention`` also reads the encoder's output (T5 decoder).
    ``norms`` counts normalisations over the hidden size; ``norm_bias`` is true for LayerNorm, false for RMSNorm.
    ``module``: the module of ``MODULES`` that this layer represents, None for a complete layer. ``hidden``: its width
    if it differs from the model's (a vision encoder); ``tokens``: its tokens per sequence of the workload if they
    differ from the sequence length (patches of an image). ``shared_weights``: it uses the weights of an earlier layer
    (ALBERT, Zamba). ``extra``: parameters too small to model as operators (scales, adapters), replicated over tensor
    ranks. ``trains``: its trained part; ``adapter_rank``, ``adapted``: rank of its adapters, and the products with an
    adapter (``forerun.spaces.models.tuning``).
    """

    name: str
    count: int
    mixer: Mixer | None
    mlp: FeedForward | MixtureOfExperts | None
    cross_attention: Attention | None = None
    norms: int = 2
    norm_bias: bool = False
    module: str | None = None
    hidden: int | None = None
    tokens: int | None = None
    shared_weights: bool = False
    extra: int = 0
    trains: Trains = "all"
    adapter_rank: int = 0
    adapted: tuple[str, ...] = ()

    @property
    def attends(self) -> bool:
        """Whether this layer, or module of a layer, has the mixer."""
        return self.mixer is not None and self.module != "mlp"

    @property
    def feeds_forward(self) -> bool:
        """Whether this layer, or module of a layer, has the feed-forward."""
        return self.mlp is not None and self.module != "attention"

    def width(self, model: "Model") -> int:
        """Return the columns of its input and output in ``model``."""
        return self.hidden or model.hidden

    @property
    def attention(self) -> Attention:
        """The mixer, for code that is limited to softmax attention.

        Raises
        ------
        RequestError
            The layer has another mixer.
        """
        if not isinstance(self.mixer, Attention):
            kind = "no mixer" if self.mixer is None else self.mixer.name
            raise RequestError(f"layer {self.name} has {kind}, but this needs softmax attention in every layer")
        return self.mixer

    @property
    def feed_forward(self) -> FeedForward | MixtureOfExperts:
        """The feed-forward, for code that needs one in every layer.

        Raises
        ------
        RequestError
            The layer has none.
        """
        if self.mlp is None:
            raise RequestError(f"layer {self.name} has no feed-forward, but this needs one in every layer")
        return self.mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model to train."""

    name: str
    source: str
    """Source of the numbers."""
    hidden: int
    """Width of the model."""
    vocab: int
    """Rows of the token embedding; 0 for models without one (ViT)."""
    layers: tuple[Layer, ...]
    """Layers in execution order."""
    tied_embeddings: bool = False
    learned_positions: int = 0
    """Length of a learned position table (0: rotary or relative)."""
    rotary: bool = True
    """Whether queries and keys are rotated without such a table; otherwise scores have a distance bias (ALiBi)."""
    token_types: int = 0
    """Rows of a table of token types (BERT)."""
    embedding_norm: bool = False
    final_norm: bool = True
    final_norm_bias: bool = False
    lm_head_bias: bool = False
    head_transform: bool = False
    """Whether a hidden x hidden dense layer precedes the LM head (BERT)."""
    mtp_layers: int = 0
    """Multi-token-prediction blocks (DeepSeek-V3) after the last layer. Each is one more layer like the last, a
    2*hidden -> hidden projection and another pass through the shared head."""
    patch_inputs: int = 0
    """Input width of a patch projection (ViT: patch*patch*channels)."""
    classes: int = 0
    """Width of a classification head."""
    embedding_width: int | None = None
    """Columns of the token tables if not ``hidden``, which a product projects to it (ALBERT)."""
    embedding_extra: int = 0
    """Further parameters before the first layer (tables per layer, projections of image features)."""
    extra_parameters: int = 0
    """Parameters too small to model as operators (pooler, relative position tables, class token)."""
    encoder_layers: int = 0
    """Number of leading layers that form the encoder of an encoder-decoder model, else 0."""
    max_seq_len: int | None = None
    """Longest supported sequence in tokens; None: not stated."""
    frozen_ends: tuple[str, ...] = ()
    """Ends, "embedding" or "head", whose tables are not trained."""
    published_parameters: float | None = None
    """The published count; None: not stated."""

    def encoder_tokens(self, seq_len: int) -> int:
        """Return the encoder's output tokens for a sequence of ``seq_len``, the input of cross attention."""
        tokens = self.layers[0].tokens if self.encoder_layers else None
        return tokens or seq_len

    @property
    def decodes(self) -> bool:
        """Whether the model is a decoder over tokens, possibly with image or audio encoders."""
        attention = [layer.attention for layer in self.layers if isinstance(layer.mixer, Attention)]
        return not self.encoder_layers and not self.patch_inputs and (not attention or attention[-1].causal)

    @property
    def hybrid(self) -> bool:
        """Whether any layer has only one part, or a mixer other than attention or the delta rule.

        Megatron-core has a separate model for these.
        """
        return any(not isinstance(x.mixer, Attention | GatedDelta) or x.mlp is None for x in self.layers)

    @property
    def table_width(self) -> int:
        """Columns of the token table."""
        return self.embedding_width or self.hidden

    @property
    def layer_count(self) -> int:
        """Number of layers without multi-token-prediction blocks."""
        return sum(layer.count for layer in self.layers if not layer.module)


def windowed_layers(layer: Layer, windows: Sequence[int | None]) -> tuple[Layer, ...]:
    """Return ``layer`` once per entry of ``windows`` (None: full attention), with equal neighbours joined.

    Windowed layers are named ``<name>-window``.
    """
    return joined(
        replace(
            layer,
            name=layer.name if window is None else f"{layer.name}-window",
            count=1,
            mixer=replace(layer.attention, window=window),
        )
        for window in windows
    )


def joined(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Join neighbours of ``layers`` that differ only in their count."""
    runs: list[Layer] = []
    for layer in layers:
        if runs and replace(runs[-1], count=1) == replace(layer, count=1):
            runs[-1] = replace(runs[-1], count=runs[-1].count + layer.count)
        else:
            runs.append(layer)
    return tuple(runs)


MODULES = ("attention", "mlp")
"""Modules of a layer in execution order. Norms and residual additions belong to the module whose input they compute."""


def module_of(layer: Layer, module: str) -> Layer:
    """Return one module of a layer, with its norms.

    The mixer has the first of two norms (two of three with cross-attention), and the outer two of four; the single norm
    of a layer belongs to its attention.
    """
    if layer.mixer is None or layer.mlp is None:
        feeding_mlp = layer.norms if layer.mixer is None else 0
    else:
        feeding_mlp = layer.norms // (3 if layer.cross_attention is not None else 2)
    norms = feeding_mlp if module == "mlp" else layer.norms - feeding_mlp
    return replace(layer, module=module, norms=norms)
