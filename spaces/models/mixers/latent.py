"""Low-rank projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from dataclasses import dataclass

from forerun.spaces.models.parts import Product, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Queries, keys and values computed from low-rank vectors.

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
