"""Mamba, the selective scan (Gu and Dao, arXiv 2312.00752): a decay per channel and state element."""

from dataclasses import dataclass

from forerun.spaces.models.mixers.elementwise import elementwise
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """Mamba: ``inner`` channels with ``state`` elements each.

    The channels have ``heads`` equal parts with separate dt, B and C (Zamba: 2). ``rank``: width of the low-rank time
    step. ``norms``: RMSNorms of dt, B and C (Jamba).
    """

    inner: int
    state: int
    rank: int
    parts: int = 1
    convolution: int = 4
    bias: bool = False
    convolution_bias: bool = True
    norms: bool = False
    name: str = "Mamba"

    @property
    def heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.inner

    @property
    def kv_heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.inner

    @property
    def width(self) -> Width:
        """Columns of x, of the gate and of the output."""
        return Width(count=self.inner)

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List input projection, convolution, products of dt, B and C, selective scan, gate, output projection."""
        wide, small = uncut(hidden), self.rank + 2 * self.state
        return (
            Product(inputs=wide, outputs=(self.width, self.width), bias=self.bias),
            ElementwisePass(form="gelu", widths=(self.width,)),
            Product(inputs=self.width, outputs=(uncut(small),)),
            Product(inputs=uncut(self.rank), outputs=(self.width,), bias=True),
            elementwise(channels=self.inner, state=self.state, tensors=5),
            ElementwisePass(form="swiglu", widths=(self.width,)),
            Product(inputs=self.width, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution, decay per channel and state element, skip; norms of dt, B and C."""
        convolution = self.inner * (self.convolution + (1 if self.convolution_bias else 0))
        return convolution + self.inner * (self.state + 1), (self.rank + 2 * self.state if self.norms else 0)

    def kept(self, hidden: int) -> Kept:
        """List x before and after convolution, gate, dt, B, C and the scan's output."""
        inner = (self.width,) * 5 + (uncut(self.rank + 2 * self.state),)
        return Kept(inner=inner, last=self.width)
