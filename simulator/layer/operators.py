"""Seconds that one device computes for one layer on one microbatch, operator by operator.

Shapes are those of one rank: tensor parallel cuts heads and inner widths, context parallel the sequence, expert
parallel the experts. Each linear operator is three matrix products (forward, data gradient, weight gradient).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from forerun.simulator.costs import (
    GemmKind,
    attention_time_s,
    gemm_time_s,
    memory_bound_time_s,
    stream_operator_time_s,
)
from forerun.simulator.layer.shard import CASTS, EIGHT_BIT, Shard
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parameters import layer_parameters
from forerun.spaces.strategies import Context

# Bytes per parameter and microbatch where gradients are added up apart: 16 bit ones are cleared (2), the new ones added
# to them (6), the sum cast (6) and added to the fp32 buffer (12). DeepSpeed, bf16_optimizer.py: clear_lp_grads and
# update_hp_grads.
_APART_BYTES = 26.0

ADDING: Mapping[float, GemmKind] = {4.0: "weight_gradient", 2.0: "weight_gradient_added"}
"""Product that adds to main gradients of so many bytes."""


@dataclass(slots=True)
class Work:
    """Device seconds of a sequence of operators, shape K each; ``core_s`` is the attention core's forward part,
    ``again_s`` what selective recomputation repeats."""

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats
    core_s: Floats = field(default_factory=lambda: np.zeros(1))
    again_s: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def backward_s(self) -> Floats:
        """Both gradients."""
        return self.input_gradient_s + self.weight_gradient_s


class Operators:
    """Adds up the operators of a layer for K shards on the device of a context."""

    def __init__(self, context: Context, shard: Shard) -> None:
        self.context, self.shard = context, shard
        self.device, self.precision = context.cluster.device, context.workload.precision
        self.gradient_bytes = context.framework.held_gradient_bytes(self.precision)
        self.wide = 2.0 if self.precision in ("fp32", "tf32") else 1.0
        self.by_product = context.framework.selective == "products"
        self.products = 0
        zeros = np.zeros(len(shard))
        self.work = Work(zeros.copy(), zeros.copy(), zeros.copy(), zeros.copy(), zeros.copy())

    def linear(
        self,
        m: Floats,
        n: Floats,
        k: Floats,
        groups: float | Floats = 1.0,
        precision: str | None = None,
        already_cast: tuple[bool, bool] = (False, False),
    ) -> None:
        """Add ``y[m, n] = x[m, k] w[k, n]`` and its gradients; eight-bit precisions add the casts of x and dy, unless
        another kernel wrote them so (``already_cast``)."""
        precision = precision or self.precision
        weight: GemmKind = "weight_gradient_half"
        if self.context.framework.fused_accumulation:
            weight = ADDING.get(self.gradient_bytes, weight)
        device, work = self.device, self.work
        before_s = work.forward_s.copy() if self.by_product else work.forward_s
        work.forward_s += gemm_time_s(device, precision, m, n, k, groups=groups)
        work.input_gradient_s += gemm_time_s(device, precision, m, k, n, groups=groups, kind="data_gradient")
        work.weight_gradient_s += gemm_time_s(device, precision, n, k, m, groups=groups, kind=weight)
        if precision in EIGHT_BIT:
            cast = CASTS[precision]
            if not already_cast[0]:
                work.forward_s += stream_operator_time_s(device, cast, groups * m * k)
            if not already_cast[1]:
                work.input_gradient_s += stream_operator_time_s(device, cast, groups * m * n, backward=True)
        self.products += 1
        if self.by_product and self.products % 2 == 0:
            work.again_s += work.forward_s - before_s

    def _columns(self, widths: tuple[Floats, ...], hidden: int) -> None:
        """Add products of ``widths`` columns that read one input: as one, or each by itself. Then their gradients of
        the input are added up, a pass over it each."""
        tokens, wide = self.shard.tokens, np.full_like(self.shard.tp, hidden)
        if self.context.framework.merged_products:
            widths = (sum(widths[1:], widths[0]),)
        for number, width in enumerate(widths):
            self.linear(tokens, width, wide)
            if number:
                added_s = stream_operator_time_s(
                    self.device, "residual_add", tokens * hidden * self.wide, backward=True
                )
                self.work.input_gradient_s += added_s

    def stream(self, name: str, elements: Floats) -> None:
        """Add a memory-bound operator over ``elements`` elements, as one kernel or eagerly as the profile says."""
        fused, elements = name not in self.context.framework.eager, elements * self.wide
        forward_s = stream_operator_time_s(self.device, name, elements, fused=fused)
        self.work.forward_s += forward_s
        if self.by_product:
            self.work.again_s += forward_s
        self.work.input_gradient_s += stream_operator_time_s(self.device, name, elements, fused=fused, backward=True)

    def attention(self, attention: Attention, hidden: int, keys: float | None = None) -> None:
        """Add projections, rotary embedding and core of one attention block; ``keys`` is the length attended to."""
        shard = self.shard
        heads, kv_heads = attention.heads / shard.tp, np.maximum(attention.kv_heads / shard.tp, 1.0)
        if attention.latent is None:
            shared = (kv_heads * attention.head_dim, kv_heads * attention.value_head_dim)
            self._columns((heads * attention.head_dim, *shared), hidden)
        else:
            self._latent_projections(attention, hidden)
            kv_heads = heads
        if attention.query_key_norm:
            self.stream("rmsnorm", shard.tokens * (heads + kv_heads) * attention.head_dim)
        if not self.context.model.learned_positions:
            self.stream("rope", shard.tokens * (heads + kv_heads) * attention.head_dim)
        self._core(attention, heads, kv_heads, keys)
        self.linear(shard.tokens, np.full_like(heads, hidden), heads * attention.value_head_dim)

    def _latent_projections(self, attention: Attention, hidden: int) -> None:
        """Add the low-rank projections of latent attention; the down-projections are not cut by tensor parallel."""
        latent, shard = attention.latent, self.shard
        assert latent is not None
        heads, wide = attention.heads / shard.tp, np.full_like(shard.tp, hidden)
        query = np.full_like(shard.tp, latent.query_rank or hidden)
        if latent.query_rank is not None:
            self.linear(shard.inner_tokens, query, wide)
        self.linear(shard.tokens, heads * attention.head_dim, query)
        rank = np.full_like(shard.tp, latent.key_value_rank)
        self.linear(shard.inner_tokens, rank + latent.rope_head_dim, wide)
        expanded = attention.head_dim - latent.rope_head_dim + attention.value_head_dim
        self.linear(shard.tokens, heads * expanded, rank)

    def _core(self, attention: Attention, heads: Floats, kv_heads: Floats, keys: float | None) -> None:
        """Add the attention core. Over context ranks it is a kernel per rank and step: with two mirrored chunks each
        rank sees half of the pairs of every block (causal), and the parts are merged in fp32 after every step."""
        shard, seq = self.shard, float(self.context.workload.seq_len)
        ring = attention.causal & (shard.cp > 1)
        seconds = []
        for backward in (False, True):
            plain, halved = (
                attention_time_s(
                    self.device,
                    self.precision,
                    kernel=self.context.attention,  # type: ignore[arg-type]  # checked by the rule itself
                    batch=shard.mbs,
                    heads=heads,
                    kv_heads=kv_heads,
                    seq_q=seq / shard.cp,
                    seq_k=length,
                    head_dim=attention.head_dim,
                    value_head_dim=attention.value_head_dim,
                    causal=causal,
                    window=attention.window if causal else None,
                    dropout=self.context.framework.dropout,
                    backward=backward,
                )
                for causal, length in ((attention.causal and keys is None, keys or seq), (False, seq / shard.cp / 2))
            )
            merged = shard.tokens * heads * attention.value_head_dim * (2 if backward else 1)
            step_s = halved + stream_operator_time_s(self.device, "residual_add", merged)
            seconds.append(np.where(ring, shard.cp * step_s, plain))
        self.work.core_s += seconds[0]
        if not self.by_product:
            self.work.again_s += seconds[0]
        self.work.forward_s += seconds[0]
        self.work.input_gradient_s += seconds[1]

    def feed_forward(self, mlp: FeedForward, hidden: int) -> None:
        """Add a dense MLP."""
        inner, wide = mlp.hidden / self.shard.tp, np.full_like(self.shard.tp, hidden)
        self._columns((inner, inner) if mlp.gated else (inner,), hidden)
        self._activation(self.shard.tokens * inner, gated=mlp.gated)
        self.linear(self.shard.tokens, wide, inner)

    def mixture(self, mixture: MixtureOfExperts, hidden: int) -> None:
        """Add router, routed experts at the busiest rank's load, and shared experts. Where experts are fused, their
        products apply the activation and its gradient, and write their results in eight bit."""
        fused = self.context.framework.fused_experts
        shard, imbalance = self.shard, self.context.workload.moe_imbalance
        local = mixture.experts / shard.ep
        routed = shard.tokens / shard.tp * mixture.top_k * shard.etp * imbalance
        inner, wide = mixture.expert_hidden / shard.etp, np.full_like(shard.tp, hidden)
        self.linear(shard.tokens / shard.tp, np.full_like(shard.tp, mixture.experts), wide, precision=self._half())
        self.stream("copy", 2 * routed * hidden)
        up = inner * (2 if mixture.gated else 1)
        self.linear(routed / local, up, wide, groups=local, already_cast=(False, fused))
        if not fused:
            self._activation(routed * inner, gated=mixture.gated)
        self.linear(routed / local, wide, inner, groups=local, already_cast=(fused, False))
        self.stream("copy", 2 * routed * hidden)
        if mixture.shared_hidden:
            self.feed_forward(FeedForward(hidden=mixture.shared_hidden, gated=mixture.gated), hidden)

    def _activation(self, elements: Floats, *, gated: bool) -> None:
        self.stream("swiglu" if gated else "gelu", elements)

    def _half(self) -> str:
        """Precision of what eight-bit training leaves in half precision."""
        return "bf16" if self.precision in EIGHT_BIT else self.precision

    def norms(self, layer: Layer, hidden: int) -> None:
        """Add the layer's norms and residual additions (with dropout where the profile keeps it)."""
        profile, elements = self.context.framework, self.shard.inner_tokens * hidden
        for _ in range(layer.norms):
            self.stream("layernorm" if layer.norm_bias else "rmsnorm", elements)
        residual = "residual_dropout" if profile.dropout else "residual_add"
        for _ in range((2 if layer.cross_attention else 1) * layer.attends + layer.feeds_forward):
            self.stream(residual, elements)

    def accumulation(self, parameters: Floats) -> None:
        """Add the pass that adds fresh weight gradients to the gradient buffer, where no matrix product does it."""
        if not self.context.framework.fused_accumulation:
            self.work.weight_gradient_s += memory_bound_time_s(self.device, parameters * self._added_bytes())

    def _added_bytes(self) -> Floats:
        """Bytes per parameter that adding a fresh weight gradient up moves."""
        return np.where(self.shard.apart, _APART_BYTES, 2.0 + 2.0 * self.gradient_bytes)

    def table_gradient(self, parameters: Floats) -> None:
        """Add what the gradient of a table of tokens costs besides its rows: it is dense, so that all of it is cleared,
        and added to the gradient buffer by a pass of its own even where matrix products add up theirs."""
        copied = parameters * (2.0 + self._added_bytes()) / 4.0  # a copied value moves four bytes
        self.work.weight_gradient_s += stream_operator_time_s(self.device, "copy", copied)


def layer_work(context: Context, layer: Layer, shard: Shard) -> Work:
    """Return device seconds of one layer on one microbatch for K shards (communication and launches not included)."""
    operators, hidden = Operators(context, shard), context.model.hidden
    operators.norms(layer, hidden)
    if layer.attends:
        operators.attention(layer.attention, hidden)
        if layer.cross_attention is not None:
            operators.attention(layer.cross_attention, hidden, keys=float(context.workload.seq_len))
    if layer.feeds_forward:
        if isinstance(layer.mlp, MixtureOfExperts):
            operators.mixture(layer.mlp, hidden)
        else:
            operators.feed_forward(layer.mlp, hidden)
    one = layer_parameters(layer, hidden)
    operators.accumulation(
        (one.attention + one.mlp_dense) / shard.tp
        + one.router
        + one.replicated
        + one.experts_total / (shard.ep * shard.etp)
    )
    return operators.work


def embedding_work(context: Context, shard: Shard) -> Work:
    """Return device seconds of what stands before the first layer."""
    operators, model = Operators(context, shard), context.model
    if model.vocab:
        operators.stream("embedding", shard.tokens * model.hidden)
        operators.table_gradient(padded_vocab(model, shard.tp) * model.hidden)
    if model.patch_inputs:
        wide = np.full_like(shard.tp, model.hidden)
        operators.linear(shard.tokens, wide, np.full_like(shard.tp, model.patch_inputs))
    return operators.work


def head_work(context: Context, shard: Shard) -> Work:
    """Return device seconds of what follows the last layer: norm, logits, loss; once more per predicted token (MTP)."""
    operators, model = Operators(context, shard), context.model
    half = operators._half()
    wide = np.full_like(shard.tp, model.hidden)
    norm = "layernorm" if model.layers[-1].norm_bias else "rmsnorm"
    for _ in range(1 + model.mtp_layers):
        operators.stream(norm, shard.inner_tokens * model.hidden)
        if model.head_transform:
            operators.linear(shard.tokens, wide, wide, precision=half)
        if model.vocab:
            operators.linear(shard.tokens, padded_vocab(model, shard.tp), wide, precision=half)
            operators.stream("cross_entropy", shard.tokens * loss_vocab(context, shard.tp))
    if model.vocab:
        operators.accumulation(padded_vocab(model, shard.tp) * model.hidden)
    for _ in range(model.mtp_layers):
        operators.linear(shard.tokens, wide / shard.tp, 2 * wide)
    return operators.work


def loss_vocab(context: Context, tp: Floats) -> Floats:
    """Rows of the vocabulary that one tensor rank's loss works on."""
    rows = padded_vocab(context.model, tp)
    return rows * tp if context.framework.gathered_logits else rows


def padded_vocab(model: Model, tp: Floats) -> Floats:
    """Rows of the vocabulary on one tensor rank: Megatron pads it to a multiple of 128 * tp."""
    return np.asarray(np.ceil(model.vocab / (128 * tp)) * 128)
