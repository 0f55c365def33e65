"""Lightning attention: linear attention with a fixed decay per head, computed in blocks (MiniMax-01, arXiv 2501.08313;
Qin et al., arXiv 2401.04658)."""

from dataclasses import dataclass

from forerun.spaces.models.mixers.scans import chunked
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention:
    """Linear attention: ``heads`` heads of ``head_dim`` without a softmax.

    ``gated``: a sigmoid gate of the output's width, after an RMSNorm of the output. ``chunk``: tokens of a block of the
    kernel.
    """

    heads: int
    head_dim: int
    chunk: int = 256
    gated: bool = True
    name: str = "lightning attention"

    @property
    def kv_heads(self) -> int:
        """Heads of keys: one for each query head."""
        return self.heads

    @property
    def width(self) -> Width:
        """Columns of queries, keys, values, gate and output, each."""
        return Width(count=self.heads, each=self.head_dim)

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List projections, activation, blocks, norm and gate, output projection."""
        wide, width = uncut(hidden), self.width
        own = self.head_dim
        scan = chunked(heads=self.heads, key_heads=self.heads, key_dim=own, value_dim=own, chunk=self.chunk)
        return (
            Product(inputs=wide, outputs=(width,) * (4 if self.gated else 3)),
            *(ElementwisePass(form="gelu", widths=(width,)) for _ in range(3)),
            scan,
            *(
                (ElementwisePass(form="rmsnorm", widths=(width,)), ElementwisePass(form="swiglu", widths=(width,)))
                if self.gated
                else ()
            ),
            Product(inputs=width, outputs=(wide,)),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count the weight of the norm."""
        return (self.width.whole if self.gated else 0), 0

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values before and after their activation, gate, output before and after its norm."""
        return Kept(inner=(self.width,) * (9 if self.gated else 7), last=self.width)
