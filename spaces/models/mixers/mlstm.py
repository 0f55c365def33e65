"""The matrix memory of xLSTM (Beck et al., arXiv 2405.04517; the 7B form arXiv 2503.13427): linear attention with
exponential gates, computed in chunks."""

from dataclasses import dataclass

from forerun.spaces.models.mixers.scans import chunked
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLstm:
    """``heads`` heads with keys of ``key_head_dim`` and values of ``value_head_dim``.

    Each head has an input and a forget gate, and an output gate of the values' width.
    """

    heads: int
    key_head_dim: int
    value_head_dim: int
    chunk: int = 64
    bias: bool = False
    name: str = "mLSTM"

    @property
    def kv_heads(self) -> int:
        """Heads of keys: one for each query head."""
        return self.heads

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List projections, chunked recurrence, norm, output gate, output projection."""
        wide, head = uncut(hidden), Width(count=self.heads)
        keys = Width(count=self.heads, each=self.key_head_dim)
        values = Width(count=self.heads, each=self.value_head_dim)
        scan = chunked(
            heads=self.heads,
            key_heads=self.heads,
            key_dim=self.key_head_dim,
            value_dim=self.value_head_dim,
            chunk=self.chunk,
        )
        return (
            Product(inputs=wide, outputs=(keys, keys, values, values), bias=self.bias),
            Product(inputs=wide, outputs=(head, head), bias=True),
            scan,
            ElementwisePass(form="rmsnorm", widths=(values,)),
            ElementwisePass(form="swiglu", widths=(values,)),
            Product(inputs=values, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count the weight of the norm over heads."""
        return self.heads * self.value_head_dim, 0

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values, output gate, the core's output before and after its norm."""
        keys = Width(count=self.heads, each=self.key_head_dim)
        values = Width(count=self.heads, each=self.value_head_dim)
        return Kept(inner=(keys, keys, values, values, values, values), last=values)
