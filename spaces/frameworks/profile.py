"""What a training framework does with the hardware, and which strategies it accepts.

A profile is data. Code never asks for a framework's name; it asks for one of these facts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """Which strategies the framework accepts. Choices are spelled as in ``forerun.spaces.strategies.axes``.

    ``zero_with_pipeline``: highest sharding stage allowed when pp > 1. ``kv_replication``: tp may exceed the number of
    key/value heads (heads are then copied). ``sequence_parallel``: "optional", "always" (whenever tp > 1) or "never".
    ``expert_tensor``: experts may have a tensor degree of their own (folding). ``sp_with_experts``: tp > 1 together
    with ep > 1 needs sequence parallel (Megatron-LM arguments.py). ``recompute_layers``: full recompute may stop after
    some layers of a stage (Megatron-LM's block method). ``partial_zero``: sharding stages at which a part of the
    replicas may share the states while the others hold copies; ``shards_context``: those that share them are whole
    context-parallel groups.
    """

    schedules: tuple[str, ...]
    splits: tuple[str, ...]
    recompute: tuple[str, ...]
    zero_stages: tuple[int, ...]
    zero_with_pipeline: int
    sequence_parallel: str
    pipeline_parallel: bool
    tensor_parallel: bool
    context_parallel: bool
    expert_parallel: bool
    expert_tensor: bool
    kv_replication: bool
    sp_with_experts: bool
    placements: tuple[str, ...]
    recompute_layers: bool = False
    partial_zero: tuple[int, ...] = ()
    shards_context: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProfile:
    """One framework in one usual configuration.

    Kernels: ``attention`` is the attention kernel ("flash", "flash2", "flash_triton", "flash1", "fused_softmax",
    "unfused", "unfused_half"); ``eager`` names the memory-bound operators
    (``forerun.simulator.costs.STREAM_OPERATORS``) that run as separate kernels instead of one; ``fused_accumulation``
    whether weight gradients are added to the gradient buffer by the matrix product itself (else by a pass of their
    own); ``merged_products`` whether products that read the same input (queries, keys and values; gate and up) are one,
    else each is one of its own, whose gradient of the input is added up over tensor ranks by itself where sequence
    parallel is off; ``selective`` what selective recomputation
    repeats: the attention "core" (Megatron-LM), or everything but it and every second of the "products" (torchtitan);
    ``keeps_gathered`` whether the buffers of activations gathered for the blocks of one microbatch
    stay with the allocator (and are not gathered again in the backward pass), ``gathers_ahead`` whether in a pipeline
    those of all microbatches in flight but two do instead; ``gathered_logits`` whether the loss sees the whole
    vocabulary on every tensor rank (else each its own rows); ``dropout`` whether dropout masks are kept;
    ``fused_experts`` whether the products of experts apply the activation and cast their results themselves (in eight
    bit).

    Numbers: ``gradient_bytes`` per parameter of the local gradient buffer (``bf16_gradient_bytes`` where bf16 training
    differs from fp16), ``reduce_bytes`` per parameter on the wire, ``apart_to_zero``: up to this sharding stage bf16
    gradients are added up in an fp32 buffer that stands beside them (-1: never),
    ``master_bytes`` fp32 copy per parameter, ``optimizer_bytes`` both moments per parameter (half-precision training).

    Overlap (shares of the time that could be hidden, 0 to 1): ``overlap_gradients`` of the gradient reduction under the
    backward pass, ``overlap_parameters`` of the parameter gather under the forward pass, ``overlap_tensor`` of tensor
    parallel collectives under matrix products, ``overlap_tensor_backward`` of those of a column-parallel product's
    backward pass under its two gradients (asynchronous in Megatron-LM), ``overlap_context`` of key/value exchange under
    attention, ``overlap_expert`` of expert all-to-all under other computation, ``overlap_pipeline`` whether sends
    overlap with compute (else blocking). ``broadcasts_parameters``: with a sharded optimizer every replica broadcasts
    its own parameters in turn (else all gather at once). ``scatters_hops``: every tensor rank sends its part of an
    activation to the next stage (else each the whole). ``dispatches_once``: a token goes only once to every node that
    has experts for it (DeepEP, HybridEP). ``overlap_slowdown``: factor on computation while it overlaps.

    Host: ``host_layer_s`` of launch work per layer and microbatch, both passes together, on the host of an H100, and
    ``host_rank_s`` more per further tensor rank, ``pipeline_rank_s`` besides in a pipeline; ``host_expert_s`` more
    per layer with routed experts, whose token counts the host waits for, ``host_scales_s`` more for those whose inputs
    get one eight-bit scale per tensor, expert by expert; ``tensor_step_s`` per ring step of a
    collective over tensor ranks that leaves the scale-up domain, beyond the link's own; ``host_step_s`` once per step,
    ``step_bytes`` of memory traffic per parameter and step over all gradients that a device holds, however sharded,
    ``host_microbatch_s`` per microbatch, ``pipeline_hop_s`` fixed cost of a blocking pipeline hop beyond the transfer,
    ``collective_launch_s`` fixed host and synchronisation cost of a tensor-parallel collective.

    Memory: ``logit_bytes`` per logit that the loss keeps besides the logits themselves; ``context_bytes`` outside the
    allocator, ``communicator_bytes`` of all communicators, ``fragmentation`` share of the allocator's peak lost,
    ``pipeline_idle`` share of activations and logits that it holds idle besides in a pipeline, while there is room,
    ``allocator_stall`` share of all passes lost where its idle buffers do not fit and it has to free and ask again.
    ``host_tensors`` may lie in the memory of the host ("optimizer", "parameters"), as ``host_setting`` asks for.
    Gradient buckets are of ``bucket_bytes`` and at least ``bucket_rank_bytes`` per replica (Megatron-LM: 40M or 1M
    gradients per rank, whichever is more); ``bucket_copies`` of them stand beside the gradient buffer (none where
    buckets are views of it), or ``bucket_gradient_bytes`` per parameter where all buckets stay.
    ``bucket_width_bytes``: bytes by which a gradient fills a bucket (0: those on the wire); ``gathers_tensors``:
    sharded parameters are gathered one tensor at a time, not by buckets; ``tree_reduction``: gradients may be reduced
    over a tree of nodes (else by rings alone); ``layer_units``: gradients or parameters that are sharded travel one
    layer at a time, whatever buckets hold (FSDP's units); ``reduces_whole``: all replicas add up whole gradients, even
    where each updates a part of the parameters only.
    """

    name: str
    title: str
    source: str
    legality: Legality
    attention: str = "flash"
    eager: tuple[str, ...] = ("cross_entropy",)
    fused_accumulation: bool = True
    merged_products: bool = True
    selective: str = "core"
    keeps_gathered: bool = False
    gathers_ahead: bool = False
    gathered_logits: bool = False
    dropout: bool = False
    fused_experts: bool = False
    gradient_bytes: float = 4.0
    bf16_gradient_bytes: float | None = None
    reduce_bytes: float = 4.0
    apart_to_zero: int = -1
    master_bytes: float = 4.0
    optimizer_bytes: float = 8.0
    overlap_gradients: float = 0.0
    overlap_parameters: float = 0.0
    overlap_tensor: float = 0.0
    overlap_tensor_backward: float = 0.0
    overlap_context: float = 0.8
    overlap_expert: float = 0.0
    dispatches_once: bool = False
    overlap_pipeline: bool = False
    broadcasts_parameters: bool = False
    scatters_hops: bool = True
    overlap_slowdown: float = 1.2
    host_layer_s: float = 4.4e-3
    host_rank_s: float = 0.0
    pipeline_rank_s: float = 0.0
    host_expert_s: float = 0.0
    host_scales_s: float = 0.0
    tensor_step_s: float = 0.0
    host_step_s: float = 0.01
    host_microbatch_s: float = 3.5e-3
    pipeline_hop_s: float = 0.0
    collective_launch_s: float = 50e-6
    logit_bytes: float = 8.0
    context_bytes: float = 1.0e9
    communicator_bytes: float = 0.25e9
    fragmentation: float = 0.05
    pipeline_idle: float = 0.0
    allocator_stall: float = 0.0
    bucket_bytes: float = 25e6
    bucket_rank_bytes: float = 0.0
    bucket_width_bytes: float = 0.0
    gathers_tensors: bool = False
    tree_reduction: bool = True
    reduces_whole: bool = False
    layer_units: bool = False
    step_bytes: float = 0.0
    bucket_copies: float = 2.0
    bucket_gradient_bytes: float = 0.0
    host_tensors: tuple[str, ...] = ()
    host_setting: str = ""

    def adds_up_apart(self, precision: str) -> bool:
        """Whether some sharding stage adds gradients of ``precision`` up in an fp32 buffer beside them."""
        return self.apart_to_zero >= 0 and precision not in ("fp32", "tf32", "fp16")

    def held_gradient_bytes(self, precision: str) -> float:
        """Bytes per parameter of the gradients that a device holds when it trains at ``precision``, what is added up
        apart not counted."""
        if precision in ("fp32", "tf32"):
            return 4.0
        if precision != "fp16" and self.bf16_gradient_bytes is not None:
            return self.bf16_gradient_bytes
        return self.gradient_bytes
