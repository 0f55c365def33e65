"""Linear attention and state-space mixers, computed in chunks of the sequence."""

from dataclasses import dataclass

from forerun.spaces.models.parts import Contraction, Kept, Product, Scan, Step, Width, passes, uncut

_MAMBA2_STATE_PASSES = 8
"""Accesses to states in fp32: written, read and written again between chunks, and read. Source: mamba_ssm,
ssd_combined.py: _chunk_state_fwd, _state_passing_fwd, _chunk_scan_fwd."""


def _chunked(
    *, heads: int, key_heads: int, key_dim: int, value_dim: int, chunk: int, delta: bool = False, state_passes: int = 2
) -> Scan:
    """Return the scan of ``heads`` recurrences with states of ``key_dim x value_dim``.

    ``state_passes``: number of reads and writes of the states of chunks, in 16-bit values (2: one write and one read).
    """
    # Per chunk of C tokens (arXiv 2405.21060, section 6): scores ``[C, C]`` of queries and keys (once per key head, of
    # which there are ``key_heads``), their product with the values, the chunk's contribution to the state, and the read
    # of the preceding state. The delta rule (arXiv 2412.06464, section 3) adds products of keys with keys, and products
    # with the inverse of this triangular matrix for its two corrected operands.
    head, shared, each = Width(count=heads), Width(count=key_heads), 1.0 / chunk
    products = [
        Contraction(units=shared, per_token=each, m=chunk, n=chunk, k=key_dim),
        Contraction(units=head, per_token=each, m=chunk, n=value_dim, k=chunk),
        Contraction(units=head, per_token=each, m=key_dim, n=value_dim, k=chunk),
        Contraction(units=head, per_token=each, m=chunk, n=value_dim, k=key_dim),
    ]
    if delta:
        products += [
            Contraction(units=shared, per_token=each, m=chunk, n=chunk, k=key_dim),
            Contraction(units=head, per_token=each, m=chunk, n=key_dim + value_dim, k=chunk),
            Contraction(units=head, per_token=each, m=chunk, n=value_dim, k=key_dim),
        ]
    state = key_dim * value_dim
    moved = 2 * value_dim + 2 * max(key_dim * key_heads // heads, 1) + state_passes * state // chunk
    return Scan(
        contractions=tuple(products),
        traffic=Width(count=heads, each=moved * (2 if delta else 1)),
        state=Width(count=heads, each=state),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Mamba-2, state-space duality (Dao and Gu, arXiv 2405.21060): a scalar decay per head.

    ``heads`` of width ``head_dim`` with a state of ``head_dim x state`` each; ``groups`` of heads share B and C.
    ``convolution``: taps of the causal convolution over x, B and C. ``chunk``: tokens of a chunk of the kernel.
    ``norm``: a gated RMSNorm before the output projection.
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
    def mixed(self) -> tuple[Width, Width, Width]:
        """Columns of x, B and C, which the convolution reads."""
        shared = Width(count=self.groups, each=self.state)
        return self.inner, shared, shared

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List input projection (z, x, B, C, dt), convolution, chunked scan, gated norm, output projection."""
        wide = uncut(hidden)
        return (
            Product(inputs=wide, outputs=(self.inner, *self.mixed, Width(count=self.heads)), bias=self.bias),
            *passes("gelu", *self.mixed),
            _chunked(
                heads=self.heads,
                key_heads=self.groups,
                key_dim=self.state,
                value_dim=self.head_dim,
                chunk=self.chunk,
                state_passes=_MAMBA2_STATE_PASSES,
            ),
            *passes("swiglu", self.inner),
            *(passes("rmsnorm", self.inner) if self.norm else ()),
            Product(inputs=self.inner, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution, decay, skip and time-step bias per head, norm."""
        convolution = sum(width.whole for width in self.mixed) * (self.convolution + self.convolution_bias)
        return convolution + 3 * self.heads + (self.inner.whole if self.norm else 0), 0

    def kept(self, hidden: int) -> Kept:
        """List z, x, B, C, dt before the convolution and x, B, C after it, and the scan's output.

        The kernel recomputes the states of chunks.
        """
        return Kept(inner=(self.inner, *self.mixed, *self.mixed, Width(count=self.heads), self.inner), last=self.inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Gated delta rule: linear attention that overwrites the state of a key (Yang et al., arXiv 2412.06464).

    ``heads`` value heads of ``value_head_dim`` over ``key_heads`` of ``key_head_dim``. ``convolution``: taps of the
    causal convolution over queries, keys and values. ``decay_rank``: rank of the product for one decay per key channel
    (0: a full product; None: one decay per head). ``gate_rank``: rank of the output gate's product (None or 0: a full
    product). Qwen3-Next, Qwen3.5 and OLMo Hybrid have one decay per head; Kimi Delta Attention (arXiv 2510.26692) has
    one per channel.
    """

    heads: int
    key_heads: int
    key_head_dim: int
    value_head_dim: int
    convolution: int = 4
    chunk: int = 64
    decay_rank: int | None = None
    gate_rank: int | None = None
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

    @property
    def mixed(self) -> tuple[Width, Width, Width]:
        """Columns of queries, keys and values, which the convolution reads."""
        return self.key_width, self.key_width, self.value_width

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List projections, convolution, chunked delta rule, gated norm, output projection."""
        wide, head = uncut(hidden), Width(count=self.heads)
        narrow = (head,) if self.decay_rank is not None else (head, head)
        return (
            Product(inputs=wide, outputs=(*self.mixed, *narrow)),
            *(_low_rank(wide, self.decay_rank, self.key_width) if self.decay_rank is not None else ()),
            *_low_rank(wide, self.gate_rank, self.value_width),
            *passes("gelu", *self.mixed),
            *passes("rmsnorm", self.key_width, self.key_width),
            _chunked(
                heads=self.heads,
                key_heads=self.key_heads,
                key_dim=self.key_head_dim,
                value_dim=self.value_head_dim,
                chunk=self.chunk,
                delta=True,
            ),
            *passes("rmsnorm", self.value_width),
            *passes("swiglu", self.value_width),
            Product(inputs=self.value_width, outputs=(wide,)),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count convolution, decay and its bias, norm of a head."""
        bias = self.heads if self.decay_rank is None else self.key_width.whole
        convolution = sum(width.whole for width in self.mixed) * self.convolution
        return convolution + self.heads + bias, self.value_head_dim

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values before and after convolution, gate, and the output before and after its norm."""
        decay = (self.key_width,) if self.decay_rank is not None else ()
        after = (self.value_width,) * 2
        return Kept(inner=(*self.mixed, *self.mixed, *after, *decay, self.value_width), last=self.value_width)


def _low_rank(wide: Width, rank: int | None, width: Width) -> tuple[Product, ...]:
    """List the product from ``wide`` to ``width`` columns, or both products of one of ``rank``."""
    if not rank:
        return (Product(inputs=wide, outputs=(width,)),)
    return Product(inputs=wide, outputs=(uncut(rank),)), Product(inputs=uncut(rank), outputs=(width,))


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention:
    """Lightning attention: ``heads`` heads of ``head_dim`` without a softmax, each with a fixed decay.

    A sigmoid gate of the output's width follows an RMSNorm of the output. ``chunk``: tokens of a block of the kernel.
    Sources: MiniMax-01, arXiv 2501.08313; Qin et al., arXiv 2401.04658.
    """

    heads: int
    head_dim: int
    chunk: int = 256
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
        wide, width, each = uncut(hidden), self.width, self.head_dim
        return (
            Product(inputs=wide, outputs=(width,) * 4),
            *passes("gelu", width, width, width),
            _chunked(heads=self.heads, key_heads=self.heads, key_dim=each, value_dim=each, chunk=self.chunk),
            *passes("rmsnorm", width),
            *passes("swiglu", width),
            Product(inputs=width, outputs=(wide,)),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count the weight of the norm."""
        return self.width.whole, 0

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values before and after their activation, gate, output before and after its norm."""
        return Kept(inner=(self.width,) * 9, last=self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLstm:
    """The matrix memory of xLSTM: ``heads`` heads with keys of ``key_head_dim`` and values of ``value_head_dim``.

    Each head has exponential input and forget gates, and an output gate of the values' width. Sources: Beck et al.,
    arXiv 2405.04517; the 7B form arXiv 2503.13427.
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

    @property
    def key_width(self) -> Width:
        """Columns of the queries, and of the keys."""
        return Width(count=self.heads, each=self.key_head_dim)

    @property
    def value_width(self) -> Width:
        """Columns of the values, of the output gate and of the output."""
        return Width(count=self.heads, each=self.value_head_dim)

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List projections, chunked recurrence, norm, output gate, output projection."""
        wide, head, keys, values = uncut(hidden), Width(count=self.heads), self.key_width, self.value_width
        return (
            Product(inputs=wide, outputs=(keys, keys, values, values), bias=self.bias),
            Product(inputs=wide, outputs=(head, head), bias=True),
            _chunked(
                heads=self.heads,
                key_heads=self.heads,
                key_dim=self.key_head_dim,
                value_dim=self.value_head_dim,
                chunk=self.chunk,
            ),
            *passes("rmsnorm", values),
            *passes("swiglu", values),
            Product(inputs=values, outputs=(wide,), bias=self.bias),
        )

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count the weight of the norm over heads."""
        return self.value_width.whole, 0

    def kept(self, hidden: int) -> Kept:
        """List queries, keys, values, output gate, the core's output before and after its norm."""
        return Kept(inner=(self.key_width,) * 2 + (self.value_width,) * 4, last=self.value_width)
