"""RWKV time mixing, version 4 (Peng et al., arXiv 2305.13048, section 3.1): a recurrence per channel."""

from dataclasses import dataclass

from forerun.spaces.models.mixers.elementwise import elementwise
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class RwkvTimeMix:
    """Key, value and receptance of ``inner`` channels, a decay and a bonus per channel."""

    inner: int
    name: str = "RWKV"

    @property
    def heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.inner

    @property
    def kv_heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.inner

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List three token shifts, projections, recurrence, gate, output projection."""
        wide, width = uncut(hidden), Width(count=self.inner)
        return (
            *(ElementwisePass(form="residual_add", widths=(wide,)) for _ in range(3)),
            *(Product(inputs=wide, outputs=(width,)) for _ in range(3)),
            elementwise(channels=self.inner, state=3, tensors=3),
            ElementwisePass(form="swiglu", widths=(width,)),
            Product(inputs=width, outputs=(wide,)),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count decay and bonus per channel; three mixing weights per input column."""
        return 2 * self.inner, 3 * hidden

    def kept(self, hidden: int) -> Kept:
        """List three shifted inputs, key, value, receptance and the recurrence's output."""
        width = Width(count=self.inner)
        return Kept(inner=(uncut(hidden),) * 3 + (width,) * 4, last=width)
