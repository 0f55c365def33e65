"""Seconds of one layer's communication on one microbatch, and the part of it that computation hides.

Tensor parallelism: with sequence parallelism every block gathers its input and scatters its output (Korthikanti et al.,
arXiv 2205.05198, figure 5); without, it all-reduces its output (Shoeybi et al., arXiv 1909.08053). Context parallelism
passes keys and values around; expert parallelism sends every token to its experts and back.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.costs import Collective, collective_time_s
from forerun.simulator.layer.eight_bit import EIGHT_BIT, gathered_share
from forerun.simulator.layer.shard import Shard, activation_bytes, shard_of_layer
from forerun.simulator.layer.widths import local, loss_vocab
from forerun.simulator.layer.work import Work
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Attention, Layer, MixtureOfExperts
from forerun.spaces.models.parts import Scan, Softmax
from forerun.spaces.strategies import Context, Recompute

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTraffic:
    """Exposed seconds of communication by kind and direction, shape K each."""

    tensor_forward_s: Floats
    tensor_backward_s: Floats
    context_forward_s: Floats
    context_backward_s: Floats
    expert_forward_s: Floats
    expert_backward_s: Floats
    alone_forward_s: Floats
    """Further seconds of expert traffic in a pass without a simultaneous microbatch."""
    alone_backward_s: Floats
    """The same for the backward pass."""

    def waiting(self, seconds: float) -> "LayerTraffic":
        """Return the expert traffic with an additional wait in seconds, a third of it in the forward pass."""
        if not seconds:
            return self
        return replace(
            self,
            expert_forward_s=self.expert_forward_s + seconds / 3,
            expert_backward_s=self.expert_backward_s + seconds * 2 / 3,
        )

    @property
    def forward_s(self) -> Floats:
        """All exposed communication of the forward pass."""
        return self.tensor_forward_s + self.context_forward_s + self.expert_forward_s

    @property
    def backward_s(self) -> Floats:
        """All exposed communication of the backward pass."""
        return self.tensor_backward_s + self.context_backward_s + self.expert_backward_s


class OverlapWindow:
    """Computation that can hide communication; each second hides at most one communication."""

    def __init__(self, free_s: Floats) -> None:
        self.free_s = free_s

    def exposed(self, communication_s: Floats, share: float, most_s: Floats | None = None) -> Floats:
        """Return the exposed seconds; the free window hides up to ``share`` of a communication, at most ``most_s``."""
        window_s = self.free_s if most_s is None else np.minimum(self.free_s, most_s)
        hidden_s = np.minimum(communication_s * share, window_s)
        self.free_s = self.free_s - hidden_s
        return np.asarray(communication_s - hidden_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSync:
    """Seconds of tensor ranks' exchange of one [tokens, width] activation, shape K; the unused kind is 0."""

    gather_s: Floats
    """Seconds to gather it on all ranks, with sequence parallelism."""
    scatter_s: Floats
    """Seconds to scatter it, with sequence parallelism."""
    reduce_s: Floats
    """Seconds to all-reduce it, without sequence parallelism."""

    @property
    def once_s(self) -> Floats:
        """Seconds of one synchronisation in a block's forward pass."""
        return self.gather_s + self.scatter_s + self.reduce_s


def tensor_sync(context: Context, shard: Shard, width: float) -> TensorSync:
    """Return the cost of synchronising an activation over tensor ranks, including the fixed cost of each launch."""
    cluster, profile = context.cluster, context.framework
    size = shard.tokens * width * activation_bytes(context.workload.precision)
    away = np.where(shard.tp > cluster.scale_up_size, profile.tensor_step_s * (shard.tp - 1), 0.0)

    def seconds(collective: Collective, used: Mask, passes: int, share: float = 1.0) -> Floats:
        if not used.any():
            return np.zeros(used.shape)
        one = collective_time_s(cluster, collective, size * share, shard.tp, 1.0)
        return np.where(used, one + profile.collective_launch_s + passes * away, 0.0)

    sharded = (shard.tp > 1) & shard.sp
    return TensorSync(
        gather_s=seconds("all_gather", sharded, 1, gathered_share(context)),
        scatter_s=seconds("reduce_scatter", sharded, 1),
        reduce_s=seconds("all_reduce", (shard.tp > 1) & ~shard.sp, 2),
    )


def tensor_blocks(layer: Layer) -> int:
    """Count the blocks that tensor ranks synchronise: attentions, dense MLP and shared experts."""
    blocks = (2 if layer.cross_attention else 1) if layer.attends else 0
    routed = isinstance(layer.mlp, MixtureOfExperts) and not layer.mlp.shared_hidden
    return blocks + (layer.feeds_forward and not routed)


def layer_exchange(
    context: Context, layer: Layer, shard: Shard, work: Work, shorter_s: tuple[Floats | float, Floats | float] = (0, 0)
) -> LayerTraffic:
    """Return the exposed communication of one layer; ``work``: computation that may hide it.

    ``shorter_s``: saving of the last sum of the forward pass, and of the backward pass, over an all-reduce, because the
    neighbours need only parts.
    """
    profile, shard = context.framework, shard_of_layer(context, layer, shard)
    blocks = tensor_blocks(layer)
    sync = tensor_sync(context, shard, layer.width(context.model))
    covered = max(profile.overlap_tensor, profile.overlap_tensor_backward)
    # The input is gathered again for its weight gradient; the gradient of a row-parallel product waits for its gather.
    again = 0.0 if profile.keeps_gathered else 1.0
    hidden = blocks * (again * sync.gather_s + sync.scatter_s) + _readers(context, layer) * sync.reduce_s - shorter_s[1]
    open_s = blocks * sync.gather_s
    keys = _context_s(context, layer, shard)
    experts = _expert_s(context, layer, shard)
    forward, backward = OverlapWindow(work.forward_s), OverlapWindow(work.backward_s)

    slower = _beside_experts(context)
    # Their backward pass takes twice as long as the forward one.
    shared_s = work.modules_s.get(Recompute.SHARED_EXPERTS) if profile.overlap_shared_experts else None

    def exposed_experts(window: OverlapWindow, pass_s: Floats, times: float) -> Floats:
        if shared_s is not None:
            shown_s = window.exposed(experts, 1.0, times * shared_s)
        else:
            shown_s = window.exposed(experts, profile.overlap_expert)
        beside_s = np.where(experts > 0, pass_s, 0.0) if profile.reserves_expert_multiprocessors else experts - shown_s
        return shown_s + slower * beside_s

    rings = profile.context_exchange == "ring"
    hides = profile.overlap_context if rings else 0.0
    context_s = (
        forward.exposed(keys, hides, work.core_s),
        backward.exposed(2 * keys if rings else keys, hides, 2 * work.core_s),
    )
    tensor_s = (
        forward.exposed(blocks * sync.once_s - shorter_s[0], profile.overlap_tensor),
        backward.exposed(open_s, profile.overlap_tensor, work.core_s) + backward.exposed(hidden, covered),
    )
    there_s, back_s = exposed_experts(forward, work.forward_s, 1.0), exposed_experts(backward, work.backward_s, 2.0)
    return LayerTraffic(
        context_forward_s=context_s[0],
        context_backward_s=context_s[1],
        tensor_forward_s=tensor_s[0],
        tensor_backward_s=tensor_s[1],
        expert_forward_s=there_s,
        expert_backward_s=back_s,
        alone_forward_s=experts - there_s,
        alone_backward_s=experts - back_s,
    )


def _beside_experts(context: Context) -> float:
    """Return the relative slowdown of computation while kernels that send tokens occupy multiprocessors."""
    profile, units = context.framework, context.cluster.device.compute_units
    held = profile.expert_multiprocessors
    # Devices with fewer units (TPUs, Gaudi) have separate engines for data movement.
    beside = bool(profile.overlap_expert) or profile.overlap_shared_experts
    return held / (units - held) if beside and held < units / 2 else 0.0


def _readers(context: Context, layer: Layer) -> int:
    """Count the column-parallel products of a layer that all-reduce their input gradient over tensor ranks.

    Products with the same input are one, or each is a module with its own all-reduce (Megatron-LM's
    ColumnParallelLinear). With sequence parallelism the input is gathered, and its gradient scattered, once for all.
    """
    blocks = tensor_blocks(layer)
    if context.framework.merged_products:
        return blocks
    mixers = (layer.mixer, layer.cross_attention) if layer.attends else ()
    mixing = [mixer for mixer in mixers if mixer is not None]
    gates = blocks - len(mixing) if layer.mlp is not None and layer.mlp.gated else 0
    return blocks + 2 * sum(isinstance(mixer, Attention) and mixer.latent is None for mixer in mixing) + gates


def _context_s(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Seconds of context parallelism: exchange of keys and values, of tokens by heads, or of states in fp32 (scans)."""
    total_s = np.zeros_like(shard.tp)
    if not layer.attends or layer.mixer is None or not (shard.cp > 1).any():
        return total_s
    for step in layer.mixer.steps(layer.width(context.model)):
        if isinstance(step, Softmax) and context.framework.context_exchange == "heads":
            total_s = total_s + _heads_exchange_s(context, step, shard)
            continue
        if isinstance(step, Softmax):
            width = local(step.kv_heads, shard.tp) * (step.head_dim + step.value_head_dim)
            size = shard.tokens * shard.cp * width * activation_bytes(context.workload.precision)
        elif isinstance(step, Scan):
            size = shard.mbs * shard.cp * local(step.state, shard.tp) * 4.0
        else:
            continue
        each_s = collective_time_s(context.cluster, "all_gather", size, shard.cp, shard.tp)
        total_s = total_s + np.where(shard.cp > 1, each_s, 0.0)
    return total_s


def _heads_exchange_s(context: Context, core: Softmax, shard: Shard) -> Floats:
    """Seconds of the all-to-alls of queries, keys, values and outputs between context ranks, one direction.

    Keys and values of fewer heads than ranks are copied first.
    """
    heads = local(core.heads, shard.tp)
    shared = np.maximum(local(core.kv_heads, shard.tp), np.minimum(shard.cp, heads))
    columns = (heads + shared) * (core.head_dim + core.value_head_dim)
    size = shard.tokens * columns * activation_bytes(context.workload.precision)
    return np.where(shard.cp > 1, collective_time_s(context.cluster, "all_to_all", size, shard.cp, shard.tp), 0.0)


def _expert_s(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Seconds of dispatch and combine of one direction: all-to-all over ep, gather and scatter over etp.

    A token sent once to a domain is copied there to each of its experts: the links of the domain carry all copies.
    """
    if not isinstance(layer.mlp, MixtureOfExperts) or not layer.feeds_forward:
        return np.zeros_like(shard.tp)
    cluster, imbalance = context.cluster, context.workload.moe_imbalance
    if context.framework.gathers_tokens:
        return _gathered_experts_s(context, shard)
    width = layer.mlp.width(layer.width(context.model)) * activation_bytes(context.workload.precision)
    if context.workload.precision in EIGHT_BIT:
        width = width * context.framework.dispatch_share
    one = shard.tokens / shard.tp * imbalance * width
    size = one * layer.mlp.routed_copies
    ones = np.ones_like(shard.tp)
    sent = collective_time_s(cluster, "all_to_all", size, shard.ep, shard.etp)
    if context.framework.dispatches_once:
        domains = np.maximum(shard.ep * shard.etp / cluster.scale_up_size, 1.0)
        away = collective_time_s(cluster, "all_to_all", one * domains_visited(layer.mlp, domains), shard.ep, shard.etp)
        near = np.clip(np.floor(cluster.scale_up_size / shard.etp), 1.0, shard.ep)
        within = collective_time_s(cluster, "all_to_all", size, near, shard.etp)
        sent = np.where(domains > 1, np.maximum(away, within), sent)
    gathered = collective_time_s(cluster, "all_gather", size * shard.etp, shard.etp, ones)
    scattered = collective_time_s(cluster, "reduce_scatter", size * shard.etp, shard.etp, ones)
    return np.where(shard.ep > 1, 2 * sent, 0.0) + np.where(shard.etp > 1, gathered + scattered, 0.0)


def _gathered_experts_s(context: Context, shard: Shard) -> Floats:
    """Seconds to gather the tokens of all expert ranks on each rank, and to reduce their partial results."""
    ranks = shard.ep * shard.etp
    size = shard.tokens / shard.tp * ranks * context.model.hidden * activation_bytes(context.workload.precision)
    ones = np.ones_like(shard.tp)
    gathered = collective_time_s(context.cluster, "all_gather", size, ranks, ones)
    scattered = collective_time_s(context.cluster, "reduce_scatter", size, ranks, ones)
    return np.where(ranks > 1, gathered + scattered, 0.0)


def domains_visited(mixture: MixtureOfExperts, domains: Floats) -> Floats:
    """Return the mean number of scale-up domains with experts to which a token is sent.

    Of top_k copies to random experts on N domains, N (1 - (1 - 1/N)^top_k) go to different ones. N counts domains with
    a part of any of the token's groups: with M groups on each domain, a domain has none of them with probability (1 -
    top/groups)^M.
    """
    together = np.maximum(mixture.groups / domains, 1.0)
    reached = np.maximum(domains * (1.0 - (1.0 - mixture.top_groups / mixture.groups) ** together), 1.0)
    return np.asarray(reached * (1.0 - (1.0 - 1.0 / reached) ** mixture.top_k))


def ends_exchange_s(context: Context, shard: Shard) -> tuple[Floats, Floats]:
    """Seconds of tensor-parallel communication per direction of (embedding, head).

    The vocabulary-parallel loss also reduces three scalars per token (Megatron-LM's cross entropy); a loss over the
    complete vocabulary gathers the logits.
    """
    sync = tensor_sync(context, shard, context.model.hidden)
    once = np.where(shard.sp, sync.scatter_s, sync.reduce_s / 2)
    if not context.model.vocab:
        return np.zeros_like(once), np.zeros_like(once)
    if context.framework.gathered_logits:
        width = activation_bytes(context.workload.precision)
        whole = shard.tokens * width * loss_vocab(context, shard.tp)
        loss_s = collective_time_s(context.cluster, "all_gather", whole, shard.tp, 1.0)
    else:
        loss_s = 3 * tensor_sync(context, replace(shard, sp=np.zeros_like(shard.sp)), 2.0).once_s
    return once, (once + loss_s / 2) * (1 + context.model.mtp_layers)
