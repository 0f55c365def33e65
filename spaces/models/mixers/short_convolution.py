"""Gated short convolution (LFM2, https://www.liquid.ai/blog/liquid-foundation-models-v2): two gates and a few taps."""

from dataclasses import dataclass

from forerun.spaces.models.mixers.elementwise import elementwise
from forerun.spaces.models.parts import Kept, Product, Step, Width, uncut


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution:
    """``channels`` channels with a causal convolution of ``taps`` each, gated before and after."""

    channels: int
    taps: int
    bias: bool = False
    name: str = "short convolution"

    @property
    def heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.channels

    @property
    def kv_heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.channels

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List input projection (B, C, x), gated convolution, output projection."""
        wide, width = uncut(hidden), Width(count=self.channels)
        return (
            Product(inputs=wide, outputs=(width,) * 3, bias=self.bias),
            elementwise(channels=self.channels, state=self.taps - 1, tensors=4),
            Product(inputs=width, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count taps and bias of every channel."""
        return self.channels * (self.taps + (1 if self.bias else 0)), 0

    def kept(self, hidden: int) -> Kept:
        """List both gates, x, and the convolution's input and output."""
        width = Width(count=self.channels)
        return Kept(inner=(width,) * 6, last=width)
