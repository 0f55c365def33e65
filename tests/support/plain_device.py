"""Slow and plain: seconds of operators and collectives on one device for one microbatch, one number at a time.

Written apart from ``forerun.simulator``, from what its docstrings say. Only the cost rules of
``forerun.simulator.costs`` are shared, since they are the one source of what an operator costs.
"""

from dataclasses import dataclass, field

from forerun.simulator.costs import (
    attention_time_s,
    collective_time_s,
    gemm_time_s,
    launched_s,
    memory_bound_time_s,
    stream_operator_time_s,
)
from forerun.spaces.models.model import Attention, MixtureOfExperts
from forerun.spaces.strategies import Context, Strategy

EIGHT_BIT = ("fp8", "mxfp8", "fp4", "nvfp4")


def recipe_word(context: Context) -> str:
    """What shares a scale in eight-bit training."""
    fixed = {"mxfp8": "mx", "fp4": "four bit", "nvfp4": "four bit"}
    return fixed.get(context.workload.precision, context.framework.eight_bit_recipe)


@dataclass(kw_only=True)
class Compute:
    """Seconds of operators: forward, gradients of inputs and of weights, and the attention core alone; forward passes
    of products one by one, and of all passes over memory."""

    forward_s: float = 0.0
    input_s: float = 0.0
    weight_s: float = 0.0
    core_s: float = 0.0
    products_s: list[float] = field(default_factory=list)
    streams_s: float = 0.0


class PlainDevice:
    """What one device does for one microbatch under one strategy."""

    def __init__(self, context: Context, strategy: Strategy) -> None:
        self.context, self.strategy = context, strategy
        self.device, self.profile = context.cluster.device, context.framework
        self.hidden, self.precision = context.model.hidden, context.workload.precision
        self.bytes = 4.0 if self.precision in ("fp32", "tf32") else 2.0
        self.saved = 1.0 if self.precision in EIGHT_BIT else self.bytes
        self.gradient_bytes = self.profile.held_gradient_bytes(self.precision)
        apart = strategy.zero <= self.profile.main_grad_to_zero and self.precision not in ("fp16", "fp32", "tf32")
        self.added_bytes = 26.0 if apart else 2.0 + 2.0 * self.gradient_bytes
        self.half = "bf16" if self.precision in EIGHT_BIT else self.precision
        self.tokens = strategy.mbs * (context.workload.seq_len / strategy.cp)
        self.inner_tokens = self.tokens / strategy.tp if strategy.sp else self.tokens

    # Operators

    def linear(
        self,
        to: Compute,
        m: float,
        n: float,
        k: float,
        groups: float = 1.0,
        half: bool = False,
        casts: tuple[bool, bool] = (True, True),
    ) -> None:
        """A product and its gradients; in eight bit with the casts of its input and of its output's gradient."""
        precision = self.half if half else self.precision
        weight = "weight_gradient_half"
        if self.profile.fused_accumulation and self.gradient_bytes == 4.0:
            weight = "weight_gradient"
        if self.profile.fused_accumulation and self.gradient_bytes == 2.0:
            weight = "weight_gradient_added"
        before_s = to.forward_s
        to.forward_s += self.product_s(precision, (m, n, k), groups, "forward")
        to.input_s += self.product_s(precision, (m, k, n), groups, "data_gradient")
        to.weight_s += self.product_s(precision, (n, k, m), groups, weight)
        if precision in EIGHT_BIT:
            words = {"delayed": "cast", "mx": "cast", "block": "cast_blocks", "row": "cast_rows"}
            cast = words.get(recipe_word(self.context), "cast_scaled")
            kept = self.profile.eight_bit_copies or (
                self.profile.eight_bit_parameters and precision not in ("fp4", "nvfp4")
            )
            for wanted, elements, backward in (
                (not kept, n * k, False),
                (casts[0], m * k, False),
                (casts[1], m * n, True),
            ):
                seconds = float(stream_operator_time_s(self.device, cast, groups * elements, backward=backward))
                if wanted and backward:
                    to.input_s += seconds
                elif wanted:
                    to.forward_s += seconds
        to.products_s.append(to.forward_s - before_s)

    def product_s(self, precision: str, size: tuple[float, float, float], groups: float, kind: str) -> float:
        """Products of all experts in one kernel, or one after another, which takes no less."""
        together = float(gemm_time_s(self.device, precision, *size, groups=groups, kind=kind))
        if groups == 1 or self.profile.grouped_experts:
            return together
        alone = max(float(gemm_time_s(self.device, precision, *size, kind=kind)), float(launched_s(self.device, 1.0)))
        return max(together, groups * alone)

    def columns(self, to: Compute, widths: list[float]) -> None:
        """Products that read one input; apart, the gradients of that input are added, each to the sum of the others."""
        if self.profile.merged_products:
            self.linear(to, self.tokens, sum(widths), self.hidden)
            return
        for number, width in enumerate(widths):
            cast = number == 0 or "rmsnorm" in self.context.eager  # a compiled program casts an input once
            self.linear(to, self.tokens, width, self.hidden, casts=(cast, True))
        moved = self.tokens * self.hidden * self.bytes / 2.0
        added_s = float(stream_operator_time_s(self.device, "residual_add", moved, backward=True))
        to.input_s += (len(widths) - 1) * added_s

    def stream(self, to: Compute, name: str, elements: float) -> None:
        fused, moved = name not in self.context.eager, elements * self.bytes / 2.0
        forward_s = float(stream_operator_time_s(self.device, name, moved, fused=fused))
        to.forward_s += forward_s
        to.streams_s += forward_s
        to.input_s += float(stream_operator_time_s(self.device, name, moved, fused=fused, backward=True))

    def accumulate(self, to: Compute, parameters: float) -> None:
        if not self.profile.fused_accumulation:
            to.weight_s += float(memory_bound_time_s(self.device, parameters * self.added_bytes))

    def attention(self, to: Compute, attention: Attention, cross: bool) -> None:
        heads, shared = self.heads(attention)
        latent, rotated = attention.latent, (heads + shared) * attention.head_dim
        if latent is None:
            widths = [heads * attention.head_dim, shared * attention.head_dim, shared * attention.value_head_dim]
            self.columns(to, widths)
        else:
            if latent.query_rank is not None:
                self.linear(to, self.inner_tokens, latent.query_rank, self.hidden)
            self.linear(to, self.tokens, heads * attention.head_dim, latent.query_rank or self.hidden)
            self.linear(to, self.inner_tokens, latent.key_value_rank + latent.rope_head_dim, self.hidden)
            nope = attention.head_dim - latent.rope_head_dim
            self.linear(to, self.tokens, heads * (nope + attention.value_head_dim), latent.key_value_rank)
        if attention.query_key_norm:
            self.stream(to, "rmsnorm", self.tokens * rotated)
        if self.context.model.learned_positions == 0 and self.context.model.rotary:
            self.stream(to, "rope", self.tokens * rotated)
        forward_s, backward_s = (self.core_s(attention, cross, backward) for backward in (False, True))
        to.core_s += forward_s
        to.forward_s += forward_s
        to.input_s += backward_s
        self.linear(to, self.tokens, self.hidden, heads * attention.value_head_dim)

    def heads(self, attention: Attention) -> tuple[float, float]:
        """Query heads and key/value heads on one tensor rank (latent keys are expanded to all heads)."""
        heads = attention.heads / self.strategy.tp
        return heads, heads if attention.latent else max(attention.kv_heads / self.strategy.tp, 1.0)

    def core_s(self, attention: Attention, cross: bool, backward: bool) -> float:
        heads, shared = self.heads(attention)
        seq, cp, steps = float(self.context.workload.seq_len), self.strategy.cp, 1
        keys, causal = seq, attention.causal and not cross
        if attention.causal and cp > 1:  # a kernel per rank's keys; two mirrored chunks see half of the pairs of each
            keys, causal, steps = seq / cp / 2, False, cp
        seconds = attention_time_s(
            self.device,
            self.precision,
            kernel=self.context.attention,  # type: ignore[arg-type]
            batch=self.strategy.mbs,
            heads=heads,
            kv_heads=shared,
            seq_q=seq / cp,
            seq_k=keys,
            head_dim=attention.head_dim,
            value_head_dim=attention.value_head_dim,
            causal=causal,
            window=attention.window if causal else None,
            dropout=self.profile.dropout,
            backward=backward,
        )
        if steps == 1:
            return float(seconds)
        merged = self.tokens * heads * attention.value_head_dim * (2 if backward else 1)
        return steps * float(seconds + stream_operator_time_s(self.device, "residual_add", merged))

    def feed_forward(self, to: Compute, width: int, gated: bool) -> None:
        inner = width / self.strategy.tp
        self.columns(to, [inner, inner] if gated else [inner])
        self.stream(to, "swiglu" if gated else "gelu", self.tokens * inner)
        self.linear(to, self.tokens, self.hidden, inner)

    def mixture(self, to: Compute, mixture: MixtureOfExperts) -> None:
        local, inner = mixture.experts / self.strategy.ep, mixture.expert_hidden / self.strategy.etp
        routed = self.routed(mixture)
        self.linear(to, self.tokens / self.strategy.tp, mixture.experts, self.hidden, half=True)
        self.stream(to, "copy", 2 * routed * self.hidden)
        padded = self.profile.pads_experts and not self.profile.fused_experts
        if padded and self.context.workload.precision in EIGHT_BIT:
            self.stream(to, "copy", routed * self.hidden)
            self.stream(to, "copy", routed * self.hidden)
        apart, up = not self.profile.fused_experts, 2 * inner if mixture.gated else inner
        self.linear(to, routed / local, up, self.hidden, groups=local, casts=(True, apart))
        if mixture.expert_bias:
            self.stream(to, "clamped_swiglu", routed * inner)
        elif apart:
            self.stream(to, "swiglu" if mixture.gated else "gelu", routed * inner)
        self.linear(to, routed / local, self.hidden, inner, groups=local, casts=(apart, True))
        if mixture.expert_bias:
            self.stream(to, "expert_bias", routed * self.hidden)
            to.forward_s += float(launched_s(self.device, 2.0 * local))
            to.input_s += float(launched_s(self.device, 11.0 * local))
        if not self.profile.grouped_experts and "rmsnorm" in self.context.eager:
            to.forward_s += float(launched_s(self.device, 8.0 * local))
            to.input_s += float(launched_s(self.device, 16.0 * local))
        self.stream(to, "copy", 2 * routed * self.hidden)
        if mixture.shared_hidden:
            self.feed_forward(to, mixture.shared_hidden, mixture.gated)

    def routed(self, mixture: MixtureOfExperts) -> float:
        """Token copies that the busiest rank's experts work on: its own share, times the ranks that share an expert."""
        own = self.tokens / self.strategy.tp * mixture.top_k
        return own * self.strategy.etp * self.context.workload.moe_imbalance

    # Communication

    def collective(self, name: str, size: float, ranks: int, stride: int) -> float:
        if ranks == 1:
            return 0.0
        return float(collective_time_s(self.context.cluster, name, size, ranks, stride))  # type: ignore[arg-type]

    def tensor_s(self, name: str, width: float) -> float:
        """One collective over tensor ranks on a [tokens, width] activation, with its launch."""
        tp, profile = self.strategy.tp, self.profile
        if tp == 1:
            return 0.0
        passes = 2 if name == "all_reduce" else 1
        away_s = passes * profile.tensor_step_s * (tp - 1) if tp > self.context.cluster.scale_up_size else 0.0
        size = self.tokens * width * self.bytes
        if name == "all_gather" and profile.eight_bit_gathers and self.precision in ("fp8", "mxfp8"):
            size *= 0.5 if recipe_word(self.context) in ("delayed", "current") else 1.0
        return self.collective(name, size, tp, 1) + profile.collective_launch_s + away_s

    def expert_exchange_s(self, mixture: MixtureOfExperts) -> float:
        """Dispatch and combine of one direction."""
        ep, etp, domain = self.strategy.ep, self.strategy.etp, self.context.cluster.scale_up_size
        one = self.tokens / self.strategy.tp * self.context.workload.moe_imbalance * self.hidden * self.bytes
        if self.precision in EIGHT_BIT:
            one *= self.profile.dispatch_share
        size, domains = one * mixture.top_k, ep * etp / domain
        if self.profile.dispatches_once and domains > 1:
            missed = (1 - mixture.top_groups / mixture.groups) ** max(mixture.groups / domains, 1)
            reached = max(domains * (1 - missed), 1)
            copies = reached * (1 - (1 - 1 / reached) ** mixture.top_k)
            away = self.collective("all_to_all", one * copies, ep, etp)
            across = 2 * max(away, self.collective("all_to_all", size, min(max(domain // etp, 1), ep), etp))
        else:
            across = 2 * self.collective("all_to_all", size, ep, etp)
        return across + sum(self.collective(name, size * etp, etp, 1) for name in ("all_gather", "reduce_scatter"))

    def padded_vocab(self) -> float:
        """Rows of the token table on one tensor rank."""
        step = 128 * self.strategy.tp
        return -(-self.context.model.vocab // step) * 128.0

    def loss_vocab(self) -> float:
        return self.padded_vocab() * (self.strategy.tp if self.profile.gathered_logits else 1)
