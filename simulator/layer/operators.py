"""Seconds of one device's computation for one layer on one microbatch, operator by operator.

Shapes are those of one rank: tensor parallelism shards heads and inner widths, context parallelism the sequence, expert
parallelism the experts.
"""

from collections.abc import Sequence

import numpy as np

from forerun.simulator.costs import (
    attention_time_s,
    attention_work,
    stream_operator_time_s,
)
from forerun.simulator.layer.collector import OperatorCollector
from forerun.simulator.layer.eight_bit import EIGHT_BIT
from forerun.simulator.layer.widths import local, locals_of
from forerun.simulator.layer.work import OperatorTime
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Layer, MixtureOfExperts
from forerun.spaces.models.parts import ElementwisePass, Product, Scan, Scores, Softmax, Step
from forerun.spaces.models.tuning import adapted_products, adapter_parameters
from forerun.spaces.strategies import Recompute
from forerun.spaces.strategies.framework_laws import separate_norms

# Speed of the small products inside a scan relative to a matrix library. Its Triton kernels keep states in fp32 and run
# decays, masks and sums between products of 64 to 256 rows. Published runs of Nemotron 3 Nano in bf16 and fp8 on H100
# and in mxfp8 on GB200 fit 0.15 to 0.22 (one model).
SCAN_SHARE = 0.2

# Kernels of one biased expert, forward and backward (Megatron-core's TEGroupedMLP): its output is sliced, the bias
# weighted and added; in the backward pass, gradients of bias and weight are a product and a sum each, cast, joined and
# accumulated.
EXPERT_BIAS_KERNELS = (2.0, 11.0)

# Small kernels of one expert in addition to its products where a PyTorch loop runs them: its tokens are selected (the
# host waits for their number), sliced, weighted and added. Qwen3 30B in transformers takes 11 ms more per layer of 128
# experts than with grouped products on an H100, forward. Of the backward pass, where autograd has two for each, only
# weights that are slices of one tensor were measured, which cost more.
LOOPED_EXPERT_KERNELS = (8.0, 16.0)


class Operators(OperatorCollector):
    """The operators of the parts of a layer: products, attention, scans, mixtures, norms, adapters."""

    def product(self, product: Product) -> None:
        """Add a product, its columns as one product or several, and the sum of several input gradients."""
        shard = self.shard
        tokens = shard.inner_tokens if product.own_tokens else shard.tokens
        inputs = local(product.inputs, shard.tp)
        widths = [local(width, shard.tp) for width in product.outputs]
        columns = [width.whole for width in product.outputs]
        if product.blocks > 1 or self.context.framework.merged_products:
            columns = [sum(columns)]
        names = [f"{self.part} product {product.inputs.whole} -> {column}" for column in columns]
        if product.blocks > 1:
            blocks = product.blocks / shard.tp
            self.linear(names[0], tokens, sum(widths[1:], widths[0]) / blocks, inputs / blocks, groups=blocks)
            return
        if self.context.framework.merged_products:
            widths = [sum(widths[1:], widths[0])]
        # Compiled programs cast a tensor once: one 8-bit input for all products that read it.
        once = "rmsnorm" not in self.context.eager
        for number, width in enumerate(widths):
            self.linear(names[number], tokens, width, inputs, already_cast=(once and number > 0, False))
            if number:
                self._streamed("sum of input gradients", "residual_add", tokens * inputs * self.wide, backward=True)

    def steps(self, steps: Sequence[Step], keys: float | None = None) -> None:
        """Add the operators of a mixer or dense feed-forward; ``keys``: number of keys, if of another sequence."""
        for step in steps:
            match step:
                case Product():
                    self.product(step)
                case ElementwisePass():
                    model = self.context.model
                    if step.form != "rope" or (model.rotary and not model.learned_positions):
                        self.stream(step.form, self.shard.tokens * locals_of(step.widths, self.shard.tp))
                case Softmax():
                    self._softmax(step, keys)
                case Scan():
                    self._scan(step)
                case Scores():
                    self._scores(step)

    def _softmax(self, core: Softmax, keys: float | None) -> None:
        """Add the attention core.

        Over context ranks the core is one kernel per rank and step: with two mirrored chunks each rank computes half of
        the pairs of every block (causal), and the parts are merged in fp32 after every step.

        Chunks of a chunked core are separate sequences. Keys chosen by an indexer cost as much as a window of the same
        size: each query reads them once.
        """
        shard, seq, batch = self.shard, self.seq_len, self.shard.mbs
        if core.chunked and core.window is not None and core.window < seq:
            batch, seq = batch * (seq / core.window), float(core.window)
        documents = self.context.workload.document_tokens
        if documents is not None and self.of_workload and keys is None and documents < seq:
            batch, seq = batch * (seq / documents), documents
        limits = [limit for limit in (None if core.chunked else core.window, core.selected) if limit is not None]
        heads, kv_heads = local(core.heads, shard.tp), local(core.kv_heads, shard.tp)
        ring, share = core.causal & (shard.cp > 1), np.asarray(shard.cp)
        if self.context.framework.context_exchange == "heads":  # all tokens of a part of the heads
            heads, kv_heads = np.maximum(heads / shard.cp, 1.0), np.maximum(kv_heads / shard.cp, 1.0)
            ring, share = np.zeros_like(ring), np.ones_like(shard.cp)
        for backward in (False, True):
            plain, halved = (
                attention_time_s(
                    self.device,
                    self.precision,
                    kernel=self.context.attention,  # type: ignore[arg-type]  # checked by the rule itself
                    batch=batch,
                    heads=heads,
                    kv_heads=kv_heads,
                    seq_q=seq / share,
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
            flops, moved = attention_work(
                batch=batch,
                heads=heads,
                kv_heads=kv_heads,
                seq_q=seq,
                seq_k=keys or seq,
                head_dim=core.head_dim,
                value_head_dim=core.value_head_dim,
                causal=core.causal and keys is None,
                window=min(limits) if limits else None,
                backward=backward,
            )
            self.records.append(
                OperatorTime(
                    name=f"{self.part} core",
                    direction="input_gradient" if backward else "forward",
                    seconds=np.where(ring, shard.cp * step_s, plain),
                    matrix_s=flops / shard.cp / self.device.peak(self.half_precision()),
                    memory_s=moved / shard.cp / self.device.memory_bytes_per_s,
                    kind="attention",
                    core=not backward,
                    repeated=not backward and not self.by_product,
                )
            )

    def _scan(self, scan: Scan) -> None:
        """Add a chunked scan: its batched products, both gradients of each, and a pass over its tensors.

        The backward pass recomputes the states of chunks (mamba_ssm's and flash-linear-attention's kernels).
        """
        shard, half, name = self.shard, self.half_precision(), f"{self.part} scan"
        for one in scan.contractions:
            groups = shard.tokens * one.per_token * local(one.units, shard.tp)
            m, n, k = (np.full_like(shard.tp, size) for size in (one.m, one.n, one.k))
            self._matrix(name, "forward", (m, n, k), half, "forward", groups, speed=SCAN_SHARE)
            self._matrix(name, "input_gradient", (m, n, k), half, "forward", groups, speed=SCAN_SHARE)
            self._matrix(name, "input_gradient", (m, k, n), half, "data_gradient", groups, speed=SCAN_SHARE)
            self._matrix(name, "input_gradient", (n, k, m), half, "data_gradient", groups, speed=SCAN_SHARE)
        moved = shard.tokens * local(scan.traffic, shard.tp) / 2.0 * self.wide  # a copied value is read and written
        self._streamed(name, "copy", moved)
        self._streamed(name, "copy", 3 * moved, direction="input_gradient")

    def _scores(self, scores: Scores) -> None:
        """Add an indexer's scores of half of all pairs, both gradients, and the choice of keys.

        Every tensor rank computes all of them; the choice is a pass over the scores in fp32.
        """
        shard, half = self.shard, self.half_precision()
        rows, columns = self.seq_len / shard.cp, np.full_like(shard.tp, self.seq_len / 2)
        width, groups = np.full_like(shard.tp, scores.head_dim), shard.mbs * scores.heads
        name = f"{self.part} indexer scores"
        self._matrix(name, "forward", (rows, columns, width), half, "forward", groups)
        self._streamed(name, "copy", 2 * shard.mbs * rows * columns)
        self._matrix(name, "input_gradient", (rows, width, columns), half, "forward", groups)
        self._matrix(name, "input_gradient", (columns, width, rows), half, "forward", groups)

    def mixture(self, mixture: MixtureOfExperts, hidden: int) -> None:
        """Add router, routed experts at the busiest rank's load, and shared experts.

        Products of fused experts apply the activation and its gradient, and write their results in 8 bit. Biased
        experts (gpt-oss) have an activation and a bias that no kernel fuses.
        """
        fused, together = self.context.framework.fused_experts, self.context.framework.grouped_experts
        shard, imbalance = self.shard, self.context.workload.moe_imbalance
        on_rank = mixture.experts / shard.ep
        routed = shard.tokens / shard.tp * mixture.routed_copies * shard.etp * imbalance
        inner, wide = mixture.expert_hidden / shard.etp, np.full_like(shard.tp, hidden)
        choices = np.full_like(shard.tp, mixture.experts + mixture.null_experts)
        self.linear("router", shard.tokens / shard.tp, choices, wide, precision=self.half_precision())
        for product in mixture.latent_products(hidden):
            self.product(product)
        width = mixture.width(hidden)
        wide = np.full_like(shard.tp, width)
        padded = self.precision in EIGHT_BIT and self.context.framework.pads_experts and not fused
        if padded:
            self.stream("copy", routed * width, "experts' rows padded")
        self.stream("copy", 2 * routed * width, "expert permutation")
        up = inner * (2 if mixture.gated else 1)
        columns = mixture.expert_hidden * (2 if mixture.gated else 1)
        self.linear(
            f"experts product {width} -> {columns}",
            routed / on_rank,
            up,
            wide,
            groups=on_rank,
            already_cast=(False, fused),
            together=together,
        )
        with self.inside(Recompute.MOE_ACT):
            if mixture.expert_bias:
                self.stream("clamped_swiglu", routed * inner, "experts clamped swiglu")
            elif not fused:
                self._activation(routed * inner, gated=mixture.gated)
        name = f"experts product {mixture.expert_hidden} -> {width}"
        self.linear(name, routed / on_rank, wide, inner, groups=on_rank, already_cast=(fused, False), together=together)
        if mixture.expert_bias:
            self.stream("expert_bias", routed * width, "experts bias")
            self._one_by_one("experts bias, expert by expert", on_rank, EXPERT_BIAS_KERNELS)
        if not together and "rmsnorm" in self.context.eager:
            self._one_by_one("experts, one after another", on_rank, LOOPED_EXPERT_KERNELS)
        if padded:
            self.stream("copy", routed * width, "experts' rows unpadded")
        self.stream("copy", 2 * routed * width, "expert permutation")
        if mixture.shared is not None:
            with self.inside(Recompute.SHARED_EXPERTS):
                self.steps(mixture.shared.steps(hidden))

    def _activation(self, elements: Floats, *, gated: bool) -> None:
        self.stream("swiglu" if gated else "gelu", elements)

    def norms(self, layer: Layer, hidden: int) -> None:
        """Add the layer's norms and residual additions (with dropout where the profile has it)."""
        profile, elements = self.context.framework, self.shard.inner_tokens * hidden
        form, separate = "layernorm" if layer.norm_bias else "rmsnorm", separate_norms(profile, layer)
        for _ in range(layer.norms - separate):
            self.stream(form, elements)
        with self.inside(Recompute.LAYERNORM):
            for _ in range(separate):
                self.stream(form, elements)
        residual = "residual_dropout" if profile.dropout else "residual_add"
        for _ in range((2 if layer.cross_attention else 1) * layer.attends + layer.feeds_forward):
            self.stream(residual, elements)

    def adapters(self, layer: Layer, hidden: int) -> None:
        """Add the two thin products of every adapter, and the sum with the adapted product's output."""
        shard, rank = self.shard, np.full_like(self.shard.tp, layer.adapter_rank)
        mixture = layer.mlp if isinstance(layer.mlp, MixtureOfExperts) else None
        for one in adapted_products(layer, hidden):
            tokens, groups, tp = shard.tokens, np.ones_like(shard.tp), shard.tp
            if one.routed and mixture is not None:
                tokens = (
                    shard.tokens / shard.tp * mixture.routed_copies * shard.etp * self.context.workload.moe_imbalance
                )
                groups, tp = mixture.experts / shard.ep, shard.etp
            inputs = one.inputs / (tp if one.product.inputs.cut or one.routed else 1.0)
            outputs = one.outputs / (tp if one.product.cut and not one.product.inputs.cut else 1.0)
            name, half = f"adapter {one.inputs} -> {layer.adapter_rank} -> {one.outputs}", self.half_precision()
            self.linear(name, tokens / groups, rank, np.full_like(shard.tp, inputs), groups, half)
            self.linear(name, tokens / groups, np.full_like(shard.tp, outputs), rank, groups, half)
            self.stream("residual_add", tokens * outputs, f"{name} added")
        beside, inside = adapter_parameters(layer, hidden)
        self.accumulation(beside / shard.tp + inside / (shard.ep * shard.etp))

    def table_gradient(self, parameters: Floats) -> None:
        """Add the cost of a token table's dense gradient beyond its rows.

        All of it (``parameters`` [K]) is cleared, and added to the gradient buffer in a separate pass, even where
        matrix products accumulate directly.
        """
        copied = parameters * (2.0 + self._added_bytes()) / 4.0  # a copied value moves four bytes
        self._streamed("embedding", "copy", copied, direction="weight_gradient")
