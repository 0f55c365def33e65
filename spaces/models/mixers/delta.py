"""Gated delta rule: linear attention that overwrites the state of a key (Yang et al., arXiv 2412.06464).

Qwen3-Next, Qwen3.5 and OLMo Hybrid have one decay per head; Kimi Delta Attention (arXiv 2510.26692) has one per
channel.
"""

from dataclasses import dataclass

from forerun.spaces.models.mixers.scans import chunked
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """``heads`` value heads of ``value_head_dim`` over ``key_heads`` of ``key_head_dim``.

    ``convolution``: taps of the causal convolution over queries, keys and values. ``decay_rank``: rank of the product
    for one decay per key channel (0: a full product; None: one decay per head). ``gate_rank``: rank of the output
    gate's product (None: a full product; 0: no gate). ``gate_bias``: bias of the gate.
    """

    heads: int
    key_heads: int
    key_head_dim: int
    value_head_dim: int
    convolution: int = 4
    chunk: int = 64
    decay_rank: int | None = None
    gate_rank: int | None = None
    gated: bool = True
    name: str = "gated DeltaNet"

    @property
    def kv_heads(self) -> int:
        """Heads of queries and keys."""
        return self.key_heads

    @property
    def key_width(self) -> Width:
        """Columns of the queries, and of the keys."""
        return Width(count=self.key_heads, each=self.key_head_dim)

    @property
    def value_width(self) -> Width:
        """Columns of the values, of the gate and of the output."""
        return Width(count=self.heads, each=self.value_head_dim)

    def _low_rank(self, wide: Width, rank: int | None, width: Width) -> tuple[Product, ...]:
        if not rank:
            return (Product(inputs=wide, outputs=(width,)),)
        return (Product(inputs=wide, outputs=(uncut(rank),)), Product(inputs=uncut(rank), outputs=(width,)))

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List projections, convolution, chunked delta rule, gated norm, output projection."""
        wide, mixed = uncut(hidden), (self.key_width, self.key_width, self.value_width)
        head = Width(count=self.heads)
        narrow = (head,) if self.decay_rank is not None else (head, head)
        decay = self._low_rank(wide, self.decay_rank, self.key_width) if self.decay_rank is not None else ()
        gate = self._low_rank(wide, self.gate_rank, self.value_width) if self.gated else ()
        scan = chunked(
            heads=self.heads,
            key_heads=self.key_heads,
            key_dim=self.key_head_dim,
            value_dim=self.value_head_dim,
            chunk=self.chunk,
            delta=True,
        )
        return (
            Product(inputs=wide, outputs=(*mixed, *narrow)),
            *decay,
            *gate,
            *(ElementwisePass(form="gelu", widths=(width,)) for width in mixed),
            *(ElementwisePass(form="rmsnorm", widths=(self.key_width,)) for _ in range(2)),
            scan,
            ElementwisePass(form="rmsnorm", widths=(self.value_width,)),
            ElementwisePass(form="swiglu", widths=(self.value_width,)),
            Product(inputs=self.value_width, outputs=(wide,)),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution, decay and its bias, norm of a head."""
        mixed = 2 * self.key_width.whole + self.value_width.whole
        bias = self.heads if self.decay_rank is None else self.key_width.whole
        return mixed * self.convolution + self.heads + bias, self.value_head_dim

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values before and after convolution, gate, and the output before and after its norm."""
        mixed = (self.key_width, self.key_width, self.value_width)
        gates = (self.value_width,) * (2 if self.gated else 1)
        decay = (self.key_width,) if self.decay_rank is not None else ()
        return Kept(inner=(*mixed, *mixed, *gates, *decay, self.value_width), last=self.value_width)
