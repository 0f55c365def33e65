"""Seconds that one device computes for one layer on one microbatch, operator by operator.

Shapes are those of one rank: tensor parallel cuts heads and inner widths, context parallel the sequence, expert
parallel the experts. Each linear operator is three matrix products (forward, data gradient, weight gradient).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.simulator.costs import (
    GemmKind,
    attention_time_s,
    gemm_time_s,
    memory_bound_time_s,
    stream_operator_time_s,
)
from forerun.simulator.layer.shard import CASTS, EIGHT_BIT, Shard, shard_of_layer
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parameters import layer_parameters
from forerun.spaces.models.parts import Pass, Product, Scan, Scores, Softmax, Step, Width
from forerun.spaces.strategies import Context

# Bytes per parameter and microbatch where gradients are added up apart: 16 bit ones are cleared (2), the new ones added
# to them (6), the sum cast (6) and added to the fp32 buffer (12). DeepSpeed, bf16_optimizer.py: clear_lp_grads and
# update_hp_grads.
_APART_BYTES = 26.0

ADDING: Mapping[float, GemmKind] = {4.0: "weight_gradient", 2.0: "weight_gradient_added"}
"""Product that adds to main gradients of so many bytes."""


@dataclass(slots=True)
class Work:
    """Device seconds of a sequence of operators, shape K each; ``core_s`` is the attention core's forward part."""

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats
    core_s: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def backward_s(self) -> Floats:
        """Both gradients."""
        return self.input_gradient_s + self.weight_gradient_s


class Operators:
    """Adds up the operators of a layer for K shards on the device of a context; its sequences have ``seq_len`` tokens
    (the workload's unless given)."""

    def __init__(self, context: Context, shard: Shard, seq_len: int | None = None) -> None:
        self.context, self.shard = context, shard
        self.seq_len = float(seq_len or context.workload.seq_len)
        self.device, self.precision = context.cluster.device, context.workload.precision
        self.gradient_bytes = context.framework.held_gradient_bytes(self.precision)
        self.wide = 2.0 if self.precision in ("fp32", "tf32") else 1.0
        zeros = np.zeros(len(shard))
        self.work = Work(zeros.copy(), zeros.copy(), zeros.copy(), zeros.copy())

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
        work.forward_s += gemm_time_s(device, precision, m, n, k, groups=groups)
        work.input_gradient_s += gemm_time_s(device, precision, m, k, n, groups=groups, kind="data_gradient")
        work.weight_gradient_s += gemm_time_s(device, precision, n, k, m, groups=groups, kind=weight)
        if precision in EIGHT_BIT:
            cast = CASTS[precision]
            if not already_cast[0]:
                work.forward_s += stream_operator_time_s(device, cast, groups * m * k)
            if not already_cast[1]:
                work.input_gradient_s += stream_operator_time_s(device, cast, groups * m * n, backward=True)

    def product(self, product: Product) -> None:
        """Add a product, its columns as one or each by itself. Then their gradients of the input are added up, a pass
        over it each."""
        shard = self.shard
        tokens = shard.inner_tokens if product.own_tokens else shard.tokens
        inputs = local(product.inputs, shard.tp)
        widths = [local(width, shard.tp) for width in product.outputs]
        if product.blocks > 1:
            blocks = product.blocks / shard.tp
            self.linear(tokens, sum(widths[1:], widths[0]) / blocks, inputs / blocks, groups=blocks)
            return
        if self.context.framework.merged_products:
            widths = [sum(widths[1:], widths[0])]
        for number, width in enumerate(widths):
            self.linear(tokens, width, inputs)
            if number:
                added_s = stream_operator_time_s(
                    self.device, "residual_add", tokens * inputs * self.wide, backward=True
                )
                self.work.input_gradient_s += added_s

    def stream(self, name: str, elements: Floats) -> None:
        """Add a memory-bound operator over ``elements`` elements, as one kernel or eagerly as the profile says."""
        fused, elements = name not in self.context.framework.eager, elements * self.wide
        self.work.forward_s += stream_operator_time_s(self.device, name, elements, fused=fused)
        self.work.input_gradient_s += stream_operator_time_s(self.device, name, elements, fused=fused, backward=True)

    def steps(self, steps: Sequence[Step], keys: float | None = None) -> None:
        """Add the operators of a mixer or of a dense feed-forward. ``keys``: length attended to where it is another
        sequence's."""
        for step in steps:
            match step:
                case Product():
                    self.product(step)
                case Pass():
                    if step.form != "rope" or not self.context.model.learned_positions:
                        self.stream(step.form, self.shard.tokens * locals_of(step.widths, self.shard.tp))
                case Softmax():
                    self._softmax(step, keys)
                case Scan():
                    self._scan(step)
                case Scores():
                    self._scores(step)

    def _softmax(self, core: Softmax, keys: float | None) -> None:
        """Add the attention core. Over context ranks it is a kernel per rank and step: with two mirrored chunks each
        rank sees half of the pairs of every block (causal), and the parts are merged in fp32 after every step.

        Chunks of a chunked core are sequences of their own. Keys that an indexer chose cost what a window of as many
        costs: each query reads them once.
        """
        shard, seq, batch = self.shard, self.seq_len, self.shard.mbs
        if core.chunked and core.window is not None and core.window < seq:
            batch, seq = batch * (seq / core.window), float(core.window)
        limits = [limit for limit in (None if core.chunked else core.window, core.selected) if limit is not None]
        heads, kv_heads = local(core.heads, shard.tp), local(core.kv_heads, shard.tp)
        ring = core.causal & (shard.cp > 1)
        seconds = []
        for backward in (False, True):
            plain, halved = (
                attention_time_s(
                    self.device,
                    self.precision,
                    kernel=self.context.attention,  # type: ignore[arg-type]  # checked by the rule itself
                    batch=batch,
                    heads=heads,
                    kv_heads=kv_heads,
                    seq_q=seq / shard.cp,
                    seq_k=length,
                    head_dim=core.head_dim,
                    value_head_dim=core.value_head_dim,
                    causal=causal,
                    window=min(limits) if causal and limits else None,
                    dropout=self.context.framework.dropout,
                    backward=backward,
                )
                for causal, length in (
                    (core.causal and keys is None, (keys or seq) / core.compressed),
                    (False, seq / shard.cp / 2 / core.compressed),
                )
            )
            merged = shard.tokens * heads * core.value_head_dim * (2 if backward else 1)
            step_s = halved + stream_operator_time_s(self.device, "residual_add", merged)
            seconds.append(np.where(ring, shard.cp * step_s, plain))
        self.work.core_s += seconds[0]
        self.work.forward_s += seconds[0]
        self.work.input_gradient_s += seconds[1]

    def _scan(self, scan: Scan) -> None:
        """Add a chunked scan: each of its batched products, both gradients of it, and a pass over its tensors. Its
        backward pass computes the states of chunks again (mamba_ssm's and flash-linear-attention's kernels)."""
        shard, half = self.shard, self._half()
        for one in scan.contractions:
            groups = shard.tokens * one.per_token * local(one.units, shard.tp)
            m, n, k = (np.full_like(shard.tp, size) for size in (one.m, one.n, one.k))
            forward_s = gemm_time_s(self.device, half, m, n, k, groups=groups)
            self.work.forward_s += forward_s
            self.work.input_gradient_s += (
                forward_s
                + gemm_time_s(self.device, half, m, k, n, groups=groups, kind="data_gradient")
                + gemm_time_s(self.device, half, n, k, m, groups=groups, kind="data_gradient")
            )
        moved = shard.tokens * local(scan.traffic, shard.tp) / 2.0 * self.wide  # a copied value is read and written
        self.work.forward_s += stream_operator_time_s(self.device, "copy", moved)
        self.work.input_gradient_s += stream_operator_time_s(self.device, "copy", 3 * moved)

    def _scores(self, scores: Scores) -> None:
        """Add an indexer's scores of half of all pairs, which every tensor rank computes whole, both gradients, and the
        choice of keys: a pass over the scores in fp32."""
        shard, half = self.shard, self._half()
        rows, columns = self.seq_len / shard.cp, np.full_like(shard.tp, self.seq_len / 2)
        width, groups = np.full_like(shard.tp, scores.head_dim), shard.mbs * scores.heads
        self.work.forward_s += gemm_time_s(self.device, half, rows, columns, width, groups=groups)
        self.work.forward_s += stream_operator_time_s(self.device, "copy", 2 * shard.mbs * rows * columns)
        self.work.input_gradient_s += gemm_time_s(self.device, half, rows, width, columns, groups=groups)
        self.work.input_gradient_s += gemm_time_s(self.device, half, columns, width, rows, groups=groups)

    def mixture(self, mixture: MixtureOfExperts, hidden: int) -> None:
        """Add router, routed experts at the busiest rank's load, and shared experts. Where experts are fused, their
        products apply the activation and its gradient, and write their results in eight bit."""
        fused = self.context.framework.fused_experts
        shard, imbalance = self.shard, self.context.workload.moe_imbalance
        on_rank = mixture.experts / shard.ep
        routed = shard.tokens / shard.tp * mixture.routed_copies * shard.etp * imbalance
        inner, wide = mixture.expert_hidden / shard.etp, np.full_like(shard.tp, hidden)
        choices = np.full_like(shard.tp, mixture.experts + mixture.null_experts)
        self.linear(shard.tokens / shard.tp, choices, wide, precision=self._half())
        for product in mixture.latent_products(hidden):
            self.product(product)
        width = mixture.width(hidden)
        wide = np.full_like(shard.tp, width)
        self.stream("copy", 2 * routed * width)
        up = inner * (2 if mixture.gated else 1)
        self.linear(routed / on_rank, up, wide, groups=on_rank, already_cast=(False, fused))
        if not fused:
            self._activation(routed * inner, gated=mixture.gated)
        self.linear(routed / on_rank, wide, inner, groups=on_rank, already_cast=(fused, False))
        self.stream("copy", 2 * routed * width)
        if mixture.shared is not None:
            self.steps(mixture.shared.steps(hidden))

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


def local(width: Width, tp: Floats) -> Floats:
    """Columns of ``width`` on one of ``tp`` tensor ranks."""
    if not width.cut:
        return np.full_like(tp, width.whole)
    return np.asarray(np.maximum(width.count / tp, 1.0) * width.each)


def locals_of(widths: Sequence[Width], tp: Floats) -> Floats:
    """Columns of all ``widths`` together on one of ``tp`` tensor ranks."""
    return sum((local(width, tp) for width in widths), np.zeros_like(tp))


def layer_work(context: Context, layer: Layer, shard: Shard) -> Work:
    """Return device seconds of one layer on one microbatch for K shards (communication and launches not included)."""
    hidden = layer.width(context.model)
    shard = shard_of_layer(context, layer, shard)
    operators = Operators(context, shard, layer.tokens)
    operators.norms(layer, hidden)
    if layer.attends and layer.mixer is not None:
        operators.steps(layer.mixer.steps(hidden))
        if layer.cross_attention is not None:
            keys = context.model.encoder_tokens(context.workload.seq_len)
            operators.steps(layer.cross_attention.steps(hidden), keys=float(keys))
    if layer.feeds_forward:
        if isinstance(layer.mlp, MixtureOfExperts):
            operators.mixture(layer.mlp, hidden)
        elif isinstance(layer.mlp, FeedForward):
            operators.steps(layer.mlp.steps(hidden))
    one = layer_parameters(layer, hidden)
    operators.accumulation(
        (one.mixer + one.mlp_dense) / shard.tp
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
