"""The recurrent block of Griffin: a gated linear recurrence per channel, parallel to a GeLU branch.

De et al., arXiv 2402.19427, section 2.4.
"""

from dataclasses import dataclass

from forerun.spaces.models.mixers.elementwise import elementwise
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedRecurrence:
    """``width`` channels; input and recurrence gates are block-diagonal with ``blocks`` blocks."""

    width: int
    blocks: int
    convolution: int = 4
    name: str = "gated linear recurrence"

    @property
    def heads(self) -> int:
        """Units that tensor parallelism divides: blocks of the gates."""
        return self.blocks

    @property
    def kv_heads(self) -> int:
        """Units that tensor parallelism divides: blocks of the gates."""
        return self.blocks

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List both branches' projections, convolution, gates, recurrence, output projection."""
        wide, inner = uncut(hidden), Width(count=self.blocks, each=self.width // self.blocks)
        return (
            Product(inputs=wide, outputs=(inner, inner), bias=True),
            ElementwisePass(form="gelu", widths=(inner,)),
            Product(inputs=inner, outputs=(inner, inner), bias=True, blocks=self.blocks),
            elementwise(channels=self.width, state=1, tensors=5),
            ElementwisePass(form="gelu", widths=(inner,)),
            Product(inputs=inner, outputs=(wide,), bias=True),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution with its bias, and the decay of every channel."""
        return self.width * (self.convolution + 2), 0

    def kept(self, hidden: int) -> Kept:
        """List both branches before and after convolution and activation, both gates, the recurrence's output."""
        inner = Width(count=self.blocks, each=self.width // self.blocks)
        return Kept(inner=(inner,) * 7, last=inner)
