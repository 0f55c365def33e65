"""A dense feed-forward, gated (Shazeer, arXiv 2002.05202) or not."""

from dataclasses import dataclass

from forerun.spaces.models.parts import ElementwisePass, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense MLP."""

    hidden: int
    """Inner width."""
    gated: bool
    """Whether it has three matrices in place of two."""
    bias: bool = False

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List the products up (and gate), the activation and the product down; ``hidden``: the model's width."""
        inner, wide = Width(count=self.hidden), uncut(hidden)
        return (
            Product(inputs=wide, outputs=(inner, inner) if self.gated else (inner,), bias=self.bias),
            ElementwisePass(form="swiglu" if self.gated else "gelu", widths=(inner,)),
            Product(inputs=inner, outputs=(wide,), bias=self.bias),
        )
