"""Mamba-2, state-space duality (Dao and Gu, arXiv 2405.21060): a scalar decay per head, computed in chunks."""

from dataclasses import dataclass

from forerun.spaces.models.mixers.scans import chunked
from forerun.spaces.models.parts import ElementwisePass, Kept, Product, Step, Width, uncut

_STATE_PASSES = 8
"""Accesses to states in fp32: written, read and written again between chunks, and read. Source: mamba_ssm,
ssd_combined.py: _chunk_state_fwd, _state_passing_fwd, _chunk_scan_fwd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """``heads`` of width ``head_dim`` with a state of ``head_dim x state`` each; ``groups`` of heads share B and C.

    ``convolution``: taps of the causal convolution over x, B and C. ``chunk``: tokens of a chunk of the kernel.
    ``norm``: a gated RMSNorm before the output projection. ``input_width`` as for ``Attention``.
    """

    heads: int
    head_dim: int
    state: int
    groups: int = 1
    convolution: int = 4
    chunk: int = 256
    bias: bool = False
    convolution_bias: bool = True
    norm: bool = True
    name: str = "Mamba-2"

    @property
    def kv_heads(self) -> int:
        """Groups of heads that share B and C."""
        return self.groups

    @property
    def inner(self) -> Width:
        """Columns of x, of the gate z and of the output."""
        return Width(count=self.heads, each=self.head_dim)

    @property
    def shared(self) -> Width:
        """Columns of B, and of C."""
        return Width(count=self.groups, each=self.state)

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List input projection (z, x, B, C, dt), convolution, chunked scan, gated norm, output projection."""
        wide, mixed = uncut(hidden), (self.inner, self.shared, self.shared)
        columns = (self.inner, *mixed, Width(count=self.heads))
        norm = (ElementwisePass(form="rmsnorm", widths=(self.inner,)),) if self.norm else ()
        return (
            Product(inputs=wide, outputs=columns, bias=self.bias),
            *(ElementwisePass(form="gelu", widths=(width,)) for width in mixed),
            chunked(
                heads=self.heads,
                key_heads=self.groups,
                key_dim=self.state,
                value_dim=self.head_dim,
                chunk=self.chunk,
                state_passes=_STATE_PASSES,
            ),
            ElementwisePass(form="swiglu", widths=(self.inner,)),
            *norm,
            Product(inputs=self.inner, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution, decay, skip and time-step bias per head, norm."""
        mixed = self.inner.whole + 2 * self.shared.whole
        convolution = mixed * (self.convolution + (1 if self.convolution_bias else 0))
        return convolution + 3 * self.heads + (self.inner.whole if self.norm else 0), 0

    def kept(self, hidden: int) -> Kept:
        """List z, x, B, C, dt before the convolution and x, B, C after it, and the scan's output.

        The kernel recomputes the states of chunks.
        """
        mixed = (self.inner, self.shared, self.shared)
        inner = (self.inner, *mixed, *mixed, Width(count=self.heads), self.inner)
        return Kept(inner=inner, last=self.inner)
