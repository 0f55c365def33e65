"""The indexer of sparse attention, a small scorer that chooses the keys of each query.

DeepSeek-V3.2-Exp (technical report, section 2.1): ``heads`` queries of ``head_dim`` per token against one key per
token, weighted and summed; the ``top_k`` best keys are read by the main attention.
"""

from dataclasses import dataclass

from forerun.spaces.models.parts import Product, Scores, Step, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """An indexer of sparse attention, which chooses ``top_k`` keys per query.

    The indexer has ``heads`` scores of width ``head_dim``; ``weighted``: the heads are weighted by a product of the
    token. ``shared``: the choice is an earlier layer's. Every tensor rank runs the complete indexer.
    """

    heads: int
    head_dim: int
    top_k: int
    weighted: bool = True
    shared: bool = False

    def steps(self, query_width: int, hidden: int) -> tuple[Step, ...]:
        """List projections of queries, key and weights, and the scores of all pairs with the choice of keys."""
        if self.shared:
            return ()
        weights = (uncut(self.heads),) if self.weighted else ()
        return (
            Product(inputs=uncut(query_width), outputs=(uncut(self.heads * self.head_dim),)),
            Product(inputs=uncut(hidden), outputs=(uncut(self.head_dim), *weights)),
            Scores(heads=self.heads, head_dim=self.head_dim),
        )

    @property
    def vectors(self) -> int:
        """Weight and bias of the key's norm."""
        return 0 if self.shared else 2 * self.head_dim
