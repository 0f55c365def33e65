"""Attention to compressed keys (DeepSeek-V4).

One key head, which is also the value. A query attends to every key in a window, and before the window to compressed
keys of several tokens each: all of them, or an indexer's choice.
"""

from dataclasses import dataclass

from forerun.spaces.models.mixers.attention import Indexer
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Softmax, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """``heads`` queries of ``head_dim``, computed from a vector of ``query_rank``, attend to one key per token.

    ``rate``: tokens of one compressed key (0: none). ``overlapping``: each compressed key is computed from two chunks,
    so its products are twice as wide. ``indexer``: chooses among compressed keys. The output passes ``output_groups``
    products of ``output_rank`` columns each before the product to the model's width.
    """

    heads: int
    head_dim: int
    query_rank: int
    window: int
    output_rank: int
    output_groups: int
    rate: int = 0
    overlapping: bool = False
    indexer: Indexer | None = None
    name: str = "compressed attention"

    @property
    def kv_heads(self) -> int:
        """All queries share one key."""
        return 1

    @property
    def width(self) -> Width:
        """Columns of the queries, and of the core's output."""
        return Width(count=self.heads, each=self.head_dim)

    @property
    def wide(self) -> int:
        """Columns of the compressor's products: two chunks where chunks overlap."""
        return self.head_dim * (2 if self.overlapping else 1)

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List projections, compressor, indexer, core over window and compressed keys, grouped output products."""
        key, rank, model = uncut(self.head_dim), uncut(self.query_rank), uncut(hidden)
        made: list[Step] = [
            Product(inputs=model, outputs=(rank,), own_tokens=True),
            Product(inputs=rank, outputs=(self.width,)),
            Product(inputs=model, outputs=(key,)),
        ]
        if self.rate:
            made.append(Product(inputs=model, outputs=(uncut(self.wide), uncut(self.wide))))
        if self.indexer is not None:
            small = uncut(2 * self.indexer.head_dim)
            made.append(Product(inputs=model, outputs=(small, small)))
            made += [step for step in self.indexer.steps(self.query_rank, hidden) if step != self.index_key(hidden)]
        out = Width(count=self.output_groups, each=self.output_rank)
        return (
            *made,
            ElementwisePass(form="rope", widths=(self.width, key)),
            Softmax(
                heads=Width(count=self.heads),
                kv_heads=uncut(1),
                head_dim=self.head_dim,
                value_head_dim=self.head_dim,
                causal=True,
                window=None if self.rate else self.window,
                selected=None if not self.indexer else self.window + self.indexer.top_k,
                compressed=self.rate if self.rate and not self.indexer else 1,
            ),
            Product(inputs=self.width, outputs=(out,), blocks=self.output_groups),
            Product(inputs=out, outputs=(model,)),
        )

    def index_key(self, hidden: int) -> Product:
        """Return the indexer's product of one key per token; the compressor computes the keys."""
        assert self.indexer is not None
        return Product(inputs=uncut(hidden), outputs=(uncut(self.indexer.head_dim), uncut(self.indexer.heads)))

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count norms of latent vectors and keys, positions inside a chunk and sinks, with those of the indexer."""
        replicated = self.query_rank + self.head_dim
        if self.rate:
            replicated += self.rate * self.wide + self.head_dim
        if self.indexer is not None:
            replicated += self.indexer.head_dim * (1 + 2 * self.rate) + hidden * self.indexer.heads
        return self.heads, replicated

    def kept(self, hidden: int) -> Kept:
        """List queries, key, compressed keys and gates, and the outputs of the core and of its grouped products."""
        out = Width(count=self.output_groups, each=self.output_rank)
        compressed = (uncut(self.wide), uncut(self.wide)) if self.rate else ()
        inner = (self.width, uncut(self.head_dim), *compressed, self.width, out)
        return Kept(inner=inner, last=out, own_columns=2 * self.query_rank)
