"""Softmax attention: multi-head, grouped-query or latent; full, windowed, chunked or sparse; gated or not.

Vaswani et al. (arXiv 1706.03762); grouped queries: Ainslie et al. (arXiv 2305.13245); output gate: Qiu et al.
(arXiv 2505.06708); sinks: Xiao et al. (arXiv 2309.17453).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Scores, Softmax, Step, Width, passes, uncut

Norm: TypeAlias = Literal["head", "width"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Low-rank projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    ``query_rank``: None when queries are projected directly. ``rope_head_dim``: part of a head with positions;
    ``Attention.head_dim`` is the complete query/key head (``nope + rope``).
    """

    query_rank: int | None
    key_value_rank: int
    rope_head_dim: int

    def projections(
        self, wide: Width, heads: int, head_dim: int, value_head_dim: int, *, bias: bool
    ) -> tuple[Product, ...]:
        """Return the products for queries, keys and values, expanded as in training (equations 9 to 19).

        Every tensor rank has complete down-projections and runs them on its own tokens (``parallel_mode="duplicate"``
        in Megatron-LM); only these have the ``bias`` (``attention_bias`` of DeepSeek).
        """
        made = []
        query = wide
        if self.query_rank is not None:
            query = uncut(self.query_rank)
            made.append(Product(inputs=wide, outputs=(query,), bias=bias, own_tokens=True))
        made.append(Product(inputs=query, outputs=(Width(count=heads, each=head_dim),)))
        down = uncut(self.key_value_rank + self.rope_head_dim)
        made.append(Product(inputs=wide, outputs=(down,), bias=bias, own_tokens=True))
        expanded = Width(count=heads, each=head_dim - self.rope_head_dim + value_head_dim)
        made.append(Product(inputs=uncut(self.key_value_rank), outputs=(expanded,)))
        return tuple(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The indexer of sparse attention, which chooses ``top_k`` keys of each query.

    ``heads`` queries of ``head_dim`` per token are scored against one key per token; the scores are summed over heads,
    weighted by a product of the token. ``shared``: the choice is an earlier layer's. Every tensor rank runs the
    complete indexer. Source: DeepSeek-V3.2-Exp, technical report, section 2.1.
    """

    heads: int
    head_dim: int
    top_k: int
    shared: bool = False

    def steps(self, query_width: int, hidden: int) -> tuple[Step, ...]:
        """List projections of queries, key and weights, and the scores of all pairs with the choice of keys."""
        if self.shared:
            return ()
        return (
            Product(inputs=uncut(query_width), outputs=(uncut(self.heads * self.head_dim),)),
            Product(inputs=uncut(hidden), outputs=(uncut(self.head_dim), uncut(self.heads))),
            Scores(heads=self.heads, head_dim=self.head_dim),
        )

    @property
    def vectors(self) -> int:
        """Weight and bias of the key's norm."""
        return 0 if self.shared else 2 * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention block. ``kv_heads < heads`` is grouped-query attention."""

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    causal: bool = True
    window: int | None = None
    """Limit of keys read by each query: the last ones, or those of its chunk (``chunked``)."""
    chunked: bool = False
    query_key_value_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    """Whether queries and keys have an RMSNorm."""
    norm_width: Norm = "head"
    """Columns of the norm: each head, or the entire width."""
    gate: int = 0
    """Columns of a sigmoid gate on the output (0: none; ``heads``: one per head; as wide as the output)."""
    sinks: bool = False
    """Whether each head has one learned logit."""
    shared_keys: bool = False
    """Whether keys and values are another layer's, without products of their own."""
    shared_values: bool = False
    """Whether values equal the keys, or another layer's values, without a product of their own."""
    latent: LatentAttention | None = None
    indexer: Indexer | None = None
    """Indexer that chooses the keys of a query."""
    input_width: int | None = None
    """Columns of the input if not the model's width (Zamba's concatenated input)."""
    key_input_width: int | None = None
    """Columns of the input of keys and values, likewise (cross attention to an encoder of another width)."""
    extra: int = 0
    """Further parameters, replicated over tensor ranks (tables of relative positions)."""

    @property
    def name(self) -> str:
        """Name for users."""
        kind = "latent attention" if self.latent else "attention"
        return f"sparse {kind}" if self.indexer else kind

    @property
    def query_width(self) -> Width:
        """Columns of the queries."""
        return Width(count=self.heads, each=self.head_dim)

    @property
    def key_width(self) -> Width:
        """Columns of the keys; latent ones are expanded to all heads, as in training."""
        return Width(count=self.heads if self.latent else self.kv_heads, each=self.head_dim)

    @property
    def value_width(self) -> Width:
        """Columns of the values."""
        return Width(count=self.heads if self.latent else self.kv_heads, each=self.value_head_dim)

    @property
    def output_width(self) -> Width:
        """Columns of the core's output."""
        return Width(count=self.heads, each=self.value_head_dim)

    def projections(self, hidden: int) -> tuple[Product, ...]:
        """List the products before the core, without those of an indexer."""
        wide = uncut(self.input_width or hidden)
        gate = (Width(count=self.heads, each=self.gate // self.heads),) if self.gate else ()
        if self.latent is not None:
            direct = (Product(inputs=wide, outputs=gate),) if gate else ()
            shape = (self.heads, self.head_dim, self.value_head_dim)
            return (*self.latent.projections(wide, *shape, bias=self.query_key_value_bias), *direct)
        keys: tuple[Width, ...] = (self.key_width, self.value_width)
        if self.shared_keys:
            keys = ()
        elif self.shared_values:
            keys = (self.key_width,)
        if self.key_input_width is not None:
            queries = Product(inputs=wide, outputs=(self.query_width, *gate), bias=self.query_key_value_bias)
            other = uncut(self.key_input_width)
            return (queries, Product(inputs=other, outputs=keys, bias=self.query_key_value_bias))
        return (Product(inputs=wide, outputs=(self.query_width, *keys, *gate), bias=self.query_key_value_bias),)

    def output(self, hidden: int) -> Product:
        """Return the product after the core."""
        return Product(inputs=self.output_width, outputs=(uncut(hidden),), bias=self.output_bias)

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List operators in execution order.

        Rotary embedding is a pass over queries and keys; a model with learned positions does not have it
        (``forerun.simulator`` does not model them).
        """
        both = (self.query_width, self.key_width)
        norms = (ElementwisePass(form="rmsnorm", widths=both),) if self.query_key_norm else ()
        rope = ElementwisePass(form="rope", widths=both)
        selected = None if self.indexer is None else self.indexer.top_k
        core = Softmax(
            heads=Width(count=self.heads),
            kv_heads=Width(count=self.heads if self.latent else self.kv_heads),
            head_dim=self.head_dim,
            value_head_dim=self.value_head_dim,
            causal=self.causal,
            window=self.window,
            chunked=self.chunked,
            selected=selected,
        )
        chosen = self.indexer.steps(self.latent.query_rank or hidden, hidden) if self.indexer and self.latent else ()
        if self.indexer and not self.latent:
            chosen = self.indexer.steps(hidden, hidden)
        gated = passes("swiglu", self.output_width) if self.gate else ()
        return (*self.projections(hidden), *norms, rope, *chosen, core, *gated, self.output(hidden))

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count norms of queries, keys, latent vectors and the indexer (replicated), and sinks (sharded)."""
        replicated = self.extra + (self.indexer.vectors if self.indexer else 0)
        if self.latent is not None:
            replicated += self.latent.key_value_rank + (self.latent.query_rank or 0)
        if self.query_key_norm and self.norm_width == "head":
            replicated += self.head_dim * (1 if self.shared_keys else 2)
        elif self.query_key_norm:
            replicated += self.query_width.whole + (0 if self.shared_keys else self.key_width.whole)
        return (self.heads if self.sinks else 0), replicated

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values and the core's output; latent vectors before and after their norms."""
        ranks = 0
        if self.latent is not None:
            ranks = self.latent.key_value_rank + self.latent.rope_head_dim + (self.latent.query_rank or 0)
        gate = (Width(count=self.heads, each=self.gate // self.heads), self.output_width) if self.gate else ()
        inner = (self.query_width, self.key_width, self.value_width, self.output_width, *gate)
        return Kept(inner=inner, last=self.output_width, own_columns=2 * ranks)
