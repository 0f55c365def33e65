"""Recurrences per channel: no matrix product in the core, which memory and vector units limit."""

from dataclasses import dataclass

from forerun.spaces.models.parts import Kept, Product, Scan, Step, Width, passes, uncut


def elementwise(*, channels: int, state: int, tensors: int) -> Scan:
    """Return the scan of ``channels`` independent recurrences with ``state`` elements each (a head is one channel).

    A fused kernel reads and writes ``tensors`` elements per channel and token and keeps the state on chip (Mamba, arXiv
    2312.00752, section 3.3.2); the backward pass recomputes the state.
    """
    return Scan(
        contractions=(),
        traffic=Width(count=channels, each=tensors + state // 8),
        state=Width(count=channels, each=state),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channels:
    """Independent channels, which tensor ranks divide."""

    channels: int

    @property
    def heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.channels

    @property
    def kv_heads(self) -> int:
        """Units that tensor parallelism divides: channels."""
        return self.channels

    @property
    def width(self) -> Width:
        """Columns of the state, of a gate and of the output."""
        return Width(count=self.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba(_Channels):
    """Mamba, the selective scan (Gu and Dao, arXiv 2312.00752): a decay per channel and state element.

    ``rank``: width of the low-rank time step. ``norms``: RMSNorms of dt, B and C (Jamba).
    """

    state: int
    rank: int
    convolution: int = 4
    bias: bool = False
    convolution_bias: bool = True
    norms: bool = False
    name: str = "Mamba"

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List input projection, convolution, products of dt, B and C, selective scan, gate, output projection."""
        wide, small = uncut(hidden), self.rank + 2 * self.state
        return (
            Product(inputs=wide, outputs=(self.width, self.width), bias=self.bias),
            *passes("gelu", self.width),
            Product(inputs=self.width, outputs=(uncut(small),)),
            Product(inputs=uncut(self.rank), outputs=(self.width,), bias=True),
            elementwise(channels=self.channels, state=self.state, tensors=5),
            *passes("swiglu", self.width),
            Product(inputs=self.width, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution, decay per channel and state element, skip; norms of dt, B and C."""
        convolution = self.channels * (self.convolution + self.convolution_bias)
        return convolution + self.channels * (self.state + 1), (self.rank + 2 * self.state if self.norms else 0)

    def kept(self, hidden: int) -> Kept:
        """List x before and after convolution, gate, dt, B, C and the scan's output."""
        inner = (self.width,) * 5 + (uncut(self.rank + 2 * self.state),)
        return Kept(inner=inner, last=self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedRecurrence:
    """The recurrent block of Griffin: a gated linear recurrence, parallel to a GeLU branch.

    ``width`` channels; input and recurrence gates are block-diagonal with ``blocks`` blocks, which tensor ranks divide
    (De et al., arXiv 2402.19427, section 2.4).
    """

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
            *passes("gelu", inner),
            Product(inputs=inner, outputs=(inner, inner), bias=True, blocks=self.blocks),
            elementwise(channels=self.width, state=1, tensors=5),
            *passes("gelu", inner),
            Product(inputs=inner, outputs=(wide,), bias=True),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution with its bias, and the decay of every channel."""
        return self.width * (self.convolution + 2), 0

    def kept(self, hidden: int) -> Kept:
        """List both branches before and after convolution and activation, both gates, the recurrence's output."""
        inner = Width(count=self.blocks, each=self.width // self.blocks)
        return Kept(inner=(inner,) * 7, last=inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class RwkvTimeMix(_Channels):
    """RWKV time mixing, version 4 (Peng et al., arXiv 2305.13048, section 3.1).

    Key, value and receptance of every channel, with a decay and a bonus.
    """

    name: str = "RWKV"

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List three token shifts, projections, recurrence, gate, output projection."""
        wide = uncut(hidden)
        return (
            *passes("residual_add", wide, wide, wide),
            *(Product(inputs=wide, outputs=(self.width,)) for _ in range(3)),
            elementwise(channels=self.channels, state=3, tensors=3),
            *passes("swiglu", self.width),
            Product(inputs=self.width, outputs=(wide,)),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count decay and bonus per channel; three mixing weights per input column."""
        return 2 * self.channels, 3 * hidden

    def kept(self, hidden: int) -> Kept:
        """List three shifted inputs, key, value, receptance and the recurrence's output."""
        return Kept(inner=(uncut(hidden),) * 3 + (self.width,) * 4, last=self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution(_Channels):
    """Gated short convolution: a causal convolution of ``taps`` per channel, gated before and after.

    Source: LFM2, https://www.liquid.ai/blog/liquid-foundation-models-v2.
    """

    taps: int
    bias: bool = False
    name: str = "short convolution"

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List input projection (B, C, x), gated convolution, output projection."""
        wide = uncut(hidden)
        return (
            Product(inputs=wide, outputs=(self.width,) * 3, bias=self.bias),
            elementwise(channels=self.channels, state=self.taps - 1, tensors=4),
            Product(inputs=self.width, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count taps and bias of every channel."""
        return self.channels * (self.taps + self.bias), 0

    def kept(self, hidden: int) -> Kept:
        """List both gates, x, and the convolution's input and output."""
        return Kept(inner=(self.width,) * 6, last=self.width)
