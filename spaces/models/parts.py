"""The parts of a mixer or a feed-forward: matrix products, passes over memory and cores, in execution order.

The parts describe a mixer or feed-forward completely, in one file. Parameters, FLOPs, seconds, bytes kept for the
backward pass and tensor-parallel shards all follow from the parts; no cost rule names a mixer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """Columns of a tensor: ``count`` units of ``each`` elements."""

    count: int
    each: int = 1
    cut: bool = True
    """Whether tensor ranks share the units, at least one per rank. Key heads are copied if there are more ranks than
    heads."""

    @property
    def whole(self) -> int:
        """Columns of the unsharded tensor."""
        return self.count * self.each


def uncut(count: int) -> Width:
    """Return columns that are replicated over tensor ranks."""
    return Width(count=count, cut=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Products of one input with one matrix per output, which frameworks run as one product or several."""

    inputs: Width
    outputs: tuple[Width, ...]
    bias: bool = False
    """Whether each output column has a bias."""
    own_tokens: bool = False
    """Whether a tensor rank runs it on its tokens between blocks."""
    blocks: int = 1
    """Number of blocks of the matrix, which is block-diagonal for several."""

    @property
    def cut(self) -> bool:
        """Whether tensor ranks shard the matrix."""
        return self.inputs.cut or any(width.cut for width in self.outputs)

    @property
    def matrix(self) -> int:
        """Elements of the matrices."""
        return self.inputs.whole * sum(width.whole for width in self.outputs) // self.blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwisePass:
    """A memory-bound operator over elements of each token, in one kernel."""

    form: str
    """Name in ``forerun.simulator.costs.stream_operators``."""
    widths: tuple[Width, ...]
    """Columns of its input."""


def passes(form: str, *widths: Width) -> tuple[ElementwisePass, ...]:
    """Return one operator over each of ``widths``."""
    return tuple(ElementwisePass(form=form, widths=(width,)) for width in widths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A batch of small matrix products ``[m, k] x [k, n]`` inside a core."""

    units: Width
    """Units divided among tensor ranks: heads, or groups of heads that share keys."""
    per_token: float
    """Products per token and unit."""
    m: int
    n: int
    k: int

    @property
    def flops_per_token(self) -> float:
        """Operations of the forward pass for one token."""
        return 2.0 * self.units.whole * self.per_token * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The core of a linear-time mixer: products inside chunks of the sequence, and a state passed between chunks.

    ``traffic``: further elements per token that its kernels read and write (inputs, output, the states of chunks).
    ``state``: elements of the running state of one sequence, which context ranks pass on.
    """

    contractions: tuple[Contraction, ...]
    traffic: Width
    state: Width

    def flops_per_token(self) -> float:
        """Return the forward operations of matrix units for one token."""
        return sum(contraction.flops_per_token for contraction in self.contractions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The core of softmax attention: see ``forerun.spaces.models.mixers.attention.Attention`` for its fields.

    ``selected``: limit of the keys read by each query, chosen by an indexer (None: all). ``compressed``: tokens of one
    key.
    """

    heads: Width
    kv_heads: Width
    head_dim: int
    value_head_dim: int
    causal: bool
    window: int | None
    chunked: bool = False
    selected: int | None = None
    compressed: int = 1

    def mean_keys(self, seq_len: float, causal_half: bool) -> float:
        """Return the mean number of keys of a query over a sequence (``causal_half``: only unmasked keys)."""
        limits = [limit for limit in (self.window, self.selected) if limit is not None]
        keys = float(min([seq_len / self.compressed, *limits]))
        if causal_half and self.causal and self.chunked:
            return keys / 2
        if causal_half and self.causal:
            # The first `keys` queries attend to half as many on average, the others to their entire window.
            return keys - keys * keys * self.compressed / (2 * seq_len)
        return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of each query with all earlier keys, which ``heads`` heads share, and the choice of the best keys."""

    heads: int
    head_dim: int


Step: TypeAlias = Product | ElementwisePass | Scan | Softmax | Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Elements per token kept for the backward pass."""

    inner: tuple[Width, ...]
    """Tensors inside the block."""
    last: Width
    """Input of the last product (8-bit training also keeps its cast copy)."""
    own_columns: int = 0
    """Elements of tensors that a tensor rank keeps only for its tokens."""


class Mixer(Protocol):
    """The contract of a mixer of tokens."""

    @property
    def name(self) -> str:
        """Name for users."""

    @property
    def heads(self) -> int:
        """Units that tensor parallelism must divide."""

    @property
    def kv_heads(self) -> int:
        """Units that tensor parallelism must divide or copy."""

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List operators in execution order; the last operator is the product to ``hidden`` columns."""

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count parameters outside products: (sharded by tensor ranks, replicated)."""

    def kept(self, hidden: int) -> Kept:
        """List the tensors that the backward pass needs."""


def matrices(steps: Iterable[Step]) -> tuple[int, int]:
    """Count elements of the matrices of products: (sharded by tensor ranks, replicated)."""
    sizes = {True: 0, False: 0}
    for step in steps:
        if isinstance(step, Product):
            sizes[step.cut] += step.matrix
    return sizes[True], sizes[False]


def biases(steps: Iterable[Step]) -> tuple[int, int]:
    """Count elements of the biases of products: (sharded by tensor ranks, replicated)."""
    sizes = {True: 0, False: 0}
    for step in steps:
        if isinstance(step, Product) and step.bias:
            for width in step.outputs:
                sizes[width.cut] += width.whole
    return sizes[True], sizes[False]


def core_flops(steps: Iterable[Step], seq_len: float, causal_half: bool) -> float:
    """Return the forward FLOPs per token of the cores among ``steps``."""
    total = 0.0
    for step in steps:
        if isinstance(step, Softmax):
            keys = step.mean_keys(seq_len, causal_half)
            total += 2.0 * keys * step.heads.whole * (step.head_dim + step.value_head_dim)
        elif isinstance(step, Scan):
            total += step.flops_per_token()
        elif isinstance(step, Scores):
            total += 2.0 * seq_len * (0.5 if causal_half else 1.0) * step.heads * step.head_dim
    return total
