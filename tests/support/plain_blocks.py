"""Slow and plain: seconds and bytes of one block (layer, embedding or head) on one device for one microbatch."""

from collections.abc import Iterable
from dataclasses import dataclass

from plain_device import EIGHT_BIT, Compute, PlainDevice

from forerun.simulator.costs import stream_operator_time_s
from forerun.spaces.models import layer_parameters
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts
from forerun.spaces.strategies import Recompute, Schedule


@dataclass(kw_only=True)
class PlainBlock:
    """Seconds of both passes and what they are made of; bytes kept for the backward pass, and while it runs."""

    forward_s: float
    backward_s: float
    weight_s: float
    parts_s: dict[str, float]
    kept_bytes: float = 0.0
    working_bytes: float = 0.0
    idle_bytes: float = 0.0
    loss_bytes: float = 0.0


class PlainBlocks(PlainDevice):
    """The blocks of a model as one device runs them."""

    def layer(self, layer: Layer) -> PlainBlock:
        work, profile, strategy = Compute(), self.profile, self.strategy
        for _ in range(layer.norms):
            self.stream(work, "layernorm" if layer.norm_bias else "rmsnorm", self.inner_tokens * self.hidden)
        for _ in range(2 if layer.cross_attention is None else 3):
            self.stream(
                work, "residual_dropout" if profile.dropout else "residual_add", self.inner_tokens * self.hidden
            )
        self.attention(work, layer.attention, cross=False)
        if layer.cross_attention is not None:
            self.attention(work, layer.cross_attention, cross=True)
        if isinstance(layer.mlp, MixtureOfExperts):
            self.mixture(work, layer.mlp)
        else:
            self.feed_forward(work, layer.mlp.hidden, layer.mlp.gated)
        own = layer_parameters(layer, self.hidden)
        whole = own.router + own.replicated + own.experts_total / (strategy.ep * strategy.etp)
        self.accumulate(work, (own.mixer + own.mlp_dense) / strategy.tp + whole)
        block = self.with_exchange(layer, work)
        self.add_activations(block, layer)
        return block

    def with_exchange(self, layer: Layer, work: Compute) -> PlainBlock:
        """Passes of a layer with what of its communication computation does not hide."""
        profile, attention = self.profile, layer.attention
        compute_back = work.input_s + work.weight_s
        blocks = 1 + (layer.cross_attention is not None)
        if isinstance(layer.mlp, FeedForward) or layer.mlp.shared_hidden:
            blocks += 1
        if self.strategy.sp:
            gather, scatter = self.tensor_s("all_gather", self.hidden), self.tensor_s("reduce_scatter", self.hidden)
            once, behind = gather + scatter, blocks * (scatter + (0.0 if profile.keeps_gathered else gather))
        else:
            gather, once = 0.0, self.tensor_s("all_reduce", self.hidden)
            behind = self.readers(layer) * once
        share = max(profile.overlap_tensor, profile.overlap_tensor_backward)
        shared = max(attention.kv_heads / self.strategy.tp, 1.0) * (attention.head_dim + attention.value_head_dim)
        size = self.tokens * self.strategy.cp * shared * self.bytes
        keys = self.collective("all_gather", size, self.strategy.cp, self.strategy.tp)
        experts = self.expert_exchange_s(layer.mlp) if isinstance(layer.mlp, MixtureOfExperts) else 0.0
        # A second of computation hides one communication only: keys first, then tensor ranks, then experts.
        free, core = work.forward_s, work.core_s
        hidden_c = min(profile.overlap_context * keys, core, free)
        hidden_t = min(profile.overlap_tensor * blocks * once, free - hidden_c)
        hidden_e = min(profile.overlap_expert * experts, free - hidden_c - hidden_t)
        context_f, tensor_f, expert_f = keys - hidden_c, blocks * once - hidden_t, experts - hidden_e
        free = compute_back
        hidden_c = min(profile.overlap_context * 2 * keys, 2 * core, free)
        hidden_g = min(profile.overlap_tensor * blocks * gather, core, free - hidden_c)
        hidden_t = min(share * behind, free - hidden_c - hidden_g)
        hidden_e = min(profile.overlap_expert * experts, free - hidden_c - hidden_g - hidden_t)
        context_b, expert_b = 2 * keys - hidden_c, experts - hidden_e
        tensor_b = blocks * gather + behind - hidden_g - hidden_t
        held, units = profile.expert_multiprocessors, self.device.compute_units
        slower = held / (units - held) if profile.overlap_expert and held < units / 2 else 0.0
        apart = profile.reserves_expert_multiprocessors and experts > 0
        expert_f += slower * (work.forward_s if apart else experts - expert_f)
        expert_b += slower * (compute_back if apart else experts - expert_b)
        shown_s = expert_f, expert_b
        if isinstance(layer.mlp, MixtureOfExperts):  # token counts are read, whatever a microbatch has
            left = launched(layer, self.hidden, profile.graphed) / launched(layer, self.hidden)
            waited_s = profile.expert_wait_s * left / self.device.host_speed
            expert_f, expert_b = expert_f + waited_s / 3, expert_b + waited_s * 2 / 3
        forward_s = work.forward_s + tensor_f + context_f + expert_f
        parts = {"tensor": tensor_f + tensor_b, "context": context_f + context_b, "expert": expert_f + expert_b}
        again = 0.0
        if self.strategy.recompute == Recompute.FULL:
            again = work.forward_s
            parts = {
                "tensor": 2 * tensor_f + tensor_b,
                "context": 2 * context_f + context_b,
                "expert": 2 * expert_f + expert_b,
            }
        elif self.strategy.recompute == Recompute.SELECTIVE:
            again = work.core_s
            if profile.selective == "products":
                again = work.streams_s + sum(work.products_s[1::2])
        parts |= {"compute": work.forward_s + compute_back, "recompute": again}
        if profile.overlap_expert:  # nothing runs beside it while the pipeline fills and drains
            alone = [self.alone() * (experts - shown) for shown in shown_s]
            forward_s += alone[0]
            parts["expert"] += sum(alone)
        return PlainBlock(
            forward_s=forward_s,
            backward_s=sum(parts.values()) - forward_s,
            weight_s=work.weight_s,
            parts_s=parts,
        )

    def alone(self) -> float:
        """Share of passes beside which no other microbatch computes."""
        strategy = self.strategy
        filling = 1.25 * strategy.pp - 0.5 if strategy.schedule == Schedule.DUALPIPE else strategy.pp
        microbatches = self.context.workload.global_batch / (strategy.dp * strategy.mbs)
        return 1.0 if strategy.schedule == Schedule.GPIPE else min(filling / microbatches, 1.0)

    def readers(self, layer: Layer) -> int:
        """Products whose input gradients tensor ranks add up: one a block, or q, k and v, gate and up each."""
        apart, count = not self.profile.merged_products, 0
        for attention in filter(None, (layer.attention, layer.cross_attention)):
            count += 3 if apart and attention.latent is None else 1
        if isinstance(layer.mlp, FeedForward) or layer.mlp.shared_hidden:
            count += 2 if apart and layer.mlp.gated else 1
        return count

    def add_activations(self, block: PlainBlock, layer: Layer) -> None:
        norm = self.bytes + self.saved + (1.0 if self.profile.dropout else 0.0)
        if "rmsnorm" in self.context.eager and not layer.norm_bias:
            norm += 4.0 + self.bytes
        rest, core = layer.norms * norm * self.inner_tokens * self.hidden, 0.0
        for attention in filter(None, (layer.attention, layer.cross_attention)):
            rest += self.projections_bytes(attention)
            core += self.core_bytes(attention)
        rest += self.mlp_bytes(layer.mlp)
        block.kept_bytes = rest + core
        if self.strategy.recompute == Recompute.SELECTIVE:
            if self.profile.selective == "products":
                kept = core + self.bytes * (self.inner_tokens * self.hidden + self.every_second(layer))
                rest, core = min(kept, rest + core), max(rest + core - kept, 0.0)
            block.kept_bytes, block.working_bytes = rest, core
        if self.strategy.recompute == Recompute.FULL:
            block.kept_bytes, block.working_bytes = self.bytes * self.inner_tokens * self.hidden, rest + core
        block.working_bytes += self.flowing_bytes(layer.mlp)
        if self.profile.keeps_gathered and self.strategy.sp:
            block.idle_bytes = layer.norms * self.bytes * self.tokens * self.hidden

    def flowing_bytes(self, mlp: FeedForward | MixtureOfExperts) -> float:
        """Gradient of the residual stream and, as wide as the first product is, of the activation's input."""
        if isinstance(mlp, MixtureOfExperts):
            inner = self.routed(mlp) * mlp.expert_hidden / self.strategy.etp
        else:
            inner = self.tokens * mlp.hidden / self.strategy.tp
        return self.bytes * (self.inner_tokens * self.hidden + (inner + inner if mlp.gated else inner))

    def matrices(self, layer: Layer) -> set[tuple[int, int, str]]:
        """Matrices of a layer as (inputs, outputs, who shares them): those of one shape count once."""
        h, found = self.hidden, set[tuple[int, int, str]]()
        for one in filter(None, (layer.attention, layer.cross_attention)):
            query, key = one.heads * one.head_dim, one.kv_heads * one.head_dim
            value, output = one.kv_heads * one.value_head_dim, one.heads * one.value_head_dim
            if one.latent is not None:
                small = one.latent.key_value_rank + one.latent.rope_head_dim
                grown = one.heads * (one.head_dim - one.latent.rope_head_dim + one.value_head_dim)
                rank = one.latent.query_rank
                found |= {(h, query, "tp")} if rank is None else {(h, rank, "all"), (rank, query, "tp")}
                found |= {(h, small, "all"), (one.latent.key_value_rank, grown, "tp")}
            else:
                read = [query + key + value] if self.profile.merged_products else [query, key, value]
                found |= {(h, each, "tp") for each in read}
            found |= {(output, h, "tp")}
        mlp = layer.mlp
        twice = 2 if mlp.gated and self.profile.merged_products else 1
        if isinstance(mlp, MixtureOfExperts):
            found |= {(h, twice * mlp.expert_hidden, "experts"), (mlp.expert_hidden, h, "experts")}
        inner = mlp.shared_hidden if isinstance(mlp, MixtureOfExperts) else mlp.hidden
        return found | ({(h, twice * inner, "tp"), (inner, h, "tp")} if inner else set())

    def dummy_bytes(self, kinds: Iterable[Layer]) -> float:
        """A gradient that nothing reads for every shape among the matrices of some layers."""
        if not (self.profile.dummy_gradients and self.profile.fused_accumulation):
            return 0.0
        shapes = set[tuple[int, int, str]]().union(*map(self.matrices, kinds))
        ranks = {"tp": self.strategy.tp, "experts": self.strategy.etp, "all": 1}
        return sum(self.bytes * a * b / ranks[on] for a, b, on in shapes)

    def every_second(self, layer: Layer) -> float:
        """Elements of the outputs of cores and of the first, third, ... product of a layer."""
        tokens, near, tp, cores, outputs = self.tokens, self.inner_tokens, self.strategy.tp, 0.0, []
        for attention in filter(None, (layer.attention, layer.cross_attention)):
            (heads, shared), latent = self.heads(attention), attention.latent
            wide = [heads * attention.head_dim, shared * attention.head_dim, shared * attention.value_head_dim]
            if latent is not None:
                own = near * (latent.key_value_rank + latent.rope_head_dim)
                grown = heads * (attention.head_dim - latent.rope_head_dim + attention.value_head_dim)
                outputs += [] if latent.query_rank is None else [near * latent.query_rank]
                outputs += [tokens * wide[0], own, tokens * grown]
            else:
                outputs += [tokens * sum(wide)] if self.profile.merged_products else [tokens * one for one in wide]
            outputs.append(near * self.hidden)
            cores += tokens * heads * attention.value_head_dim
        mlp = layer.mlp
        if isinstance(mlp, MixtureOfExperts):
            inner = self.routed(mlp) * mlp.expert_hidden / self.strategy.etp + tokens * mlp.shared_hidden / tp
            return cores + sum(outputs[::2]) + inner
        first = [tokens * mlp.hidden / tp] * (2 if mlp.gated else 1)
        outputs += [sum(first)] if self.profile.merged_products else first
        return cores + sum([*outputs, near * self.hidden][::2])

    def projections_bytes(self, attention: Attention) -> float:
        heads, shared = self.heads(attention)
        per_token = self.bytes * (heads + shared) * (attention.head_dim + attention.value_head_dim)
        if self.precision in EIGHT_BIT:
            more = 1.5 - self.bytes if self.profile.eight_bit_activations else self.saved
            per_token += more * heads * attention.value_head_dim
        total = per_token * self.tokens
        if attention.latent is not None:
            latent = attention.latent
            ranks = latent.key_value_rank + latent.rope_head_dim + (latent.query_rank or 0)
            total += 2 * self.bytes * ranks * self.inner_tokens
        return total

    def core_bytes(self, attention: Attention) -> float:
        heads, kernel = self.heads(attention)[0], self.context.attention
        if kernel not in ("unfused", "unfused_half", "fused_softmax"):
            return 4.0 * heads * self.tokens
        per_score = self.bytes
        if self.profile.dropout:
            per_score += self.bytes + 1
        if kernel == "unfused":
            per_score += (4.0 if self.bytes == 2.0 else 0.0) + 1.0
        return per_score * heads * self.tokens * self.context.workload.seq_len

    def mlp_bytes(self, mlp: FeedForward | MixtureOfExperts) -> float:
        wide = (2 if mlp.gated else 1) + (("swiglu" if mlp.gated else "gelu") in self.context.eager)
        eight = self.profile.eight_bit_activations and self.precision in EIGHT_BIT
        width = 1.0 if eight else self.bytes
        per_inner, tp = wide * width + self.saved, self.strategy.tp
        if isinstance(mlp, FeedForward):
            return per_inner * self.tokens * mlp.hidden / tp
        outputs = width if self.profile.keeps_expert_outputs else 0.0
        expert = (outputs + self.saved) * self.hidden + per_inner * mlp.expert_hidden / self.strategy.etp
        total = self.routed(mlp) * expert + per_inner * self.tokens * mlp.shared_hidden / tp
        return total + 8.0 * mlp.experts * self.tokens / tp  # the router's probabilities in fp32, twice

    def embedding(self) -> PlainBlock:
        work, model = Compute(), self.context.model
        if model.vocab:
            self.stream(work, "embedding", self.tokens * self.hidden)
            moved = self.padded_vocab() * self.hidden * (2.0 + self.added_bytes)
            work.weight_s += float(stream_operator_time_s(self.device, "copy", moved / 4.0))
        if model.patch_inputs:
            self.linear(work, self.tokens, self.hidden, model.patch_inputs)
        block = self.end(work, self.end_exchange_s())
        block.kept_bytes = self.inner_tokens * self.hidden if self.profile.dropout else 0.0
        return block

    def head(self) -> PlainBlock:
        work, model = Compute(), self.context.model
        losses = 1 + model.mtp_layers
        exchange_s, vocab = self.end_exchange_s(), self.padded_vocab()
        for _ in range(losses):
            self.stream(work, "layernorm" if model.layers[-1].norm_bias else "rmsnorm", self.inner_tokens * self.hidden)
            if model.head_transform:
                self.linear(work, self.tokens, self.hidden, self.hidden, half=True)
            if model.vocab:
                self.linear(work, self.tokens, vocab, self.hidden, half=True)
                self.stream(work, "cross_entropy", self.tokens * self.loss_vocab())
        for _ in range(model.mtp_layers):
            self.linear(work, self.tokens, self.hidden / self.strategy.tp, 2 * self.hidden)
        loss_bytes = 2 * self.bytes * self.inner_tokens * self.hidden
        if model.vocab:
            self.accumulate(work, vocab * self.hidden)
            kept = self.profile.logit_bytes if "cross_entropy" in self.context.eager else 0.0
            loss_bytes += self.tokens * (self.bytes + kept) * self.loss_vocab()
            if self.profile.gathered_logits:
                whole = self.tokens * self.bytes * self.loss_vocab()
                loss_s = self.collective("all_gather", whole, self.strategy.tp, 1)
                loss_bytes += self.tokens * self.bytes * vocab if self.strategy.tp > 1 else 0.0
            else:
                loss_s = 3 * self.tensor_s("all_reduce", 2.0)
            if self.profile.dummy_gradients:
                gathered = self.tokens if self.strategy.sp and self.strategy.tp > 1 else 0.0
                rows = [vocab * self.tokens, vocab * self.hidden, (self.tokens + gathered) * self.hidden]
                inputs = 2 * self.bytes * self.inner_tokens * self.hidden
                loss_bytes = max(loss_bytes, inputs + self.bytes * sum(rows))
            exchange_s = losses * (exchange_s + loss_s / 2)
        block = self.end(work, exchange_s)
        block.loss_bytes = loss_bytes * losses
        return block

    def end_exchange_s(self) -> float:
        """One synchronisation of embedding or head: half an all-reduce."""
        if not self.context.model.vocab:
            return 0.0
        if self.strategy.sp:
            return self.tensor_s("reduce_scatter", self.hidden)
        return self.tensor_s("all_reduce", self.hidden) / 2

    def end(self, work: Compute, exchange_s: float) -> PlainBlock:
        compute_s = work.forward_s + work.input_s + work.weight_s
        return PlainBlock(
            forward_s=work.forward_s + exchange_s,
            backward_s=work.input_s + work.weight_s + exchange_s,
            weight_s=work.weight_s,
            parts_s={"compute": compute_s, "tensor": 2 * exchange_s},
        )


def launched(layer: Layer, hidden: int, graphed: tuple[str, ...] = ()) -> float:
    """Launches of a layer over those of a dense one: half of them feed forward (shared experts as often again), and six
    operators mix tokens, two of them norm and residual. Of 44 launches in a graph 7 are left."""
    left = {part: 7 / 44 if part in graphed else 1.0 for part in ("attention", "mlp", "router", "experts")}
    mixers = [one for one in (layer.mixer, layer.cross_attention) if one is not None]
    mixed = sum(max(2 + len(one.steps(hidden)), 6) / 6 for one in mixers) * left["attention"]
    if not isinstance(layer.mlp, MixtureOfExperts):
        return (mixed + left["mlp"]) / 2
    fed = (left["router"] + left["experts"]) / 2 + (left["router"] if layer.mlp.shared_hidden > 0 else 0.0)
    return (mixed + fed) / 2
