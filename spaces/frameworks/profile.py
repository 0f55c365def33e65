"""Profile of a training framework: its use of the hardware, and its legal strategies.

A profile is data. Code never tests for a framework's name, but for one of these facts. ``switches`` have the settings
that a user can change; their effects are changes of these facts.
"""

from dataclasses import dataclass

from forerun.spaces.frameworks.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """Legal strategies of the framework. Choices are spelled as in ``forerun.spaces.strategies.axes``."""

    schedules: tuple[str, ...]
    """Pipeline schedules."""
    splits: tuple[str, ...]
    """Rules that assign layers to pipeline stages."""
    recompute: tuple[str, ...]
    """Complete choices of recompute in the framework."""
    zero_stages: tuple[int, ...]
    """ZeRO stages."""
    zero_with_pipeline: int
    """Highest ZeRO stage allowed when pp > 1."""
    sequence_parallel: str
    """"optional", "always" (whenever tp > 1) or "never"."""
    pipeline_parallel: bool
    """Whether pp may exceed 1; the next four fields are for tp, cp, ep and etp."""
    tensor_parallel: bool
    context_parallel: bool
    expert_parallel: bool
    expert_tensor: bool
    """Whether experts may have their own tensor degree (folding)."""
    kv_replication: bool
    """Whether tp may exceed the number of key/value heads (heads are copied)."""
    sp_with_experts: bool
    """Whether tp > 1 together with ep > 1 requires sequence parallelism (Megatron-LM arguments.py)."""
    placements: tuple[str, ...]
    """Orders of degrees in device numbering."""
    recompute_layers: bool = False
    """Whether full recompute may stop after some layers of a (virtual) stage (Megatron-LM's block method)."""
    recompute_modules: tuple[str, ...] = ()
    """Modules of a layer that can be recomputed separately (``forerun.spaces.strategies.axes.MODULES``)."""
    pipeline_alone: bool = False
    """Whether pipelines exclude tensor and expert degrees."""
    interleaves_hybrids: bool = True
    """Whether hybrid models, whose layers have one part each, may have virtual stages."""
    plain_replicas_alone: bool = False
    """Whether replicas that share no states (zero=0) exclude other degrees."""
    partial_zero: tuple[int, ...] = ()
    """ZeRO stages at which a part of the replicas may share the states while the others keep copies."""
    shards_context: bool = False
    """Whether replicas that share states are entire context-parallel groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProfile:
    """One framework in one configuration: catalogue entry or user file, including switches.

    Overlaps are shares (0 to 1) of the communication time that long enough computation hides. Bytes are per parameter
    and seconds are of the host of an H100 system, unless stated otherwise.
    """

    name: str
    """Name in the catalogue, or of the user's file."""
    title: str
    """One-line description."""
    source: str
    """Source of its facts."""
    legality: Legality
    """Legal strategies."""
    vendors: tuple[str, ...] = ()
    """Manufacturers of supported devices; empty for all."""
    architectures: tuple[str, ...] = ()
    """Prefixes of supported architectures; empty for all of its vendors."""
    version: str = ""
    """Release of the facts; switches of later releases are not available."""
    lineage: tuple[str, ...] = ()
    """Names of the profile itself and of its ``like`` ancestors, nearest first."""
    switches: tuple[tuple[str, str], ...] = ()
    """Setting of every switch of the framework, in the order of ``forerun.spaces.frameworks.switches``."""

    attention: str = "flash"
    """Attention kernel: "flash", "flash2", "flash_triton", "flash1", "fused_softmax", "unfused" or "unfused_half"."""
    eager: tuple[str, ...] = ("cross_entropy",)
    """Memory-bound operators (``forerun.simulator.costs.stream_operators``) that run as several kernels."""
    fused_accumulation: bool = True
    """Whether the matrix product adds weight gradients to the gradient buffer (otherwise a separate pass does)."""
    graphs: str = "none"
    """Part of a step launched as one CUDA graph: "none", parts of "layers", or the whole "step"."""
    graphed: tuple[str, ...] = ()
    """Parts of layers in graphs: "attention", "mlp" (dense), "router", "experts". "router" includes operators before
    dispatch, and shared experts."""
    merged_products: bool = True
    """Whether products with the same input (queries, keys and values; gate and up) are one product. Otherwise each
    all-reduces its input gradient over tensor ranks without sequence parallelism."""
    fused_norms: bool = False
    """Whether norms run inside the following product, which keeps their input, so that their recompute frees nothing.
    An example is Transformer Engine's ``TELayerNormColumnParallelLinear``; norms before latent attention and before
    experts are separate modules (``gpt_layer_specs.py`` of Megatron-Core)."""
    selective: str = "core"
    """Operators repeated by selective recompute. "core": the attention core (Megatron-LM); "products": all except the
    core and every second matrix product (torchtitan)."""
    stops_recompute: bool = False
    """Whether full recompute of a layer ends with the last tensor that its backward pass needs. In this case it does
    not repeat the last product of a dense feed-forward and the communication after it (PyTorch's non-reentrant
    checkpoints: steps of 1.5 to 8B on one H100 take 1.18 times as long as without recompute)."""
    keeps_gathered: bool = False
    """Whether activations gathered over tensor ranks for one microbatch stay allocated. The backward pass does not
    gather such activations again."""
    gathers_ahead: bool = False
    """Whether, in a pipeline, gathered activations of all in-flight microbatches but two stay allocated instead."""
    gathered_logits: bool = False
    """Whether the loss uses the entire vocabulary on every tensor rank (otherwise each its own rows)."""
    dropout: bool = False
    """Whether dropout masks are kept for the backward pass."""
    fused_experts: bool = False
    """Whether the products of experts apply the activation and cast their results (8-bit training)."""
    grouped_experts: bool = True
    """Whether all experts of a device are one product per direction (otherwise separate modules in sequence)."""

    gradient_bytes: float = 4.0
    """Bytes of the local gradient buffer."""
    bf16_gradient_bytes: float | None = None
    """The same in bf16 training where it differs from fp16 (None: equal)."""
    reduce_bytes: float = 4.0
    """Bytes of gradients on the wire."""
    main_grad_to_zero: int = -1
    """Highest ZeRO stage at which bf16 gradients are accumulated in a separate fp32 buffer (-1: never)."""
    master_bytes: float = 4.0
    """Bytes of the fp32 copy of the parameters in half-precision training."""
    optimizer_bytes: float = 8.0
    """Bytes of both moments in half-precision training."""

    overlap_gradients: float = 0.0
    """Overlap of gradient reduction with the backward pass."""
    overlap_parameters: float = 0.0
    """Overlap of the gather of sharded parameters with the forward pass."""
    overlap_tensor: float = 0.0
    """Overlap of tensor-parallel collectives with matrix products."""
    overlap_tensor_backward: float = 0.0
    """Overlap of a column-parallel product's backward collectives with its gradients (asynchronous in Megatron-LM)."""
    overlap_context: float = 0.8
    """Overlap of the key/value exchange of context parallelism with attention."""
    overlap_expert: float = 0.0
    """Overlap of expert all-to-all with other computation of the same stage."""
    overlap_shared_experts: bool = False
    """Whether shared experts compute during the all-to-alls of routed experts."""
    expert_multiprocessors: float = 24.0
    """Multiprocessors occupied by the kernels of the expert all-to-all, which slows simultaneous computation."""
    combined_passes: bool = False
    """Whether a forward pass runs together with the backward pass of another microbatch (combined 1F1B). Every device
    is one forward pass of a virtual stage ahead (Megatron-core, pipeline_parallel/schedules.py)."""
    reserves_expert_multiprocessors: bool = False
    """Whether these multiprocessors are reserved in all layers with experts (otherwise only during the traffic)."""
    dispatch_share: float = 1.0
    """Bytes of dispatch and combine relative to half precision, in 8-bit training."""
    dispatches_once: bool = False
    """Whether a token is sent only once to every node with experts for it (DeepEP, HybridEP)."""
    gathers_tokens: bool = False
    """Whether every expert rank gathers all ranks' tokens and keeps its own (Megatron-LM's all-gather dispatcher)."""
    vocabulary: str = "ends"
    """Placement of embedding and head in a pipeline: at its "ends", or in equal parts on all stages. With parts, each
    stage computes its part of every microbatch: in passes between those of layers with two barriers ("vocab-1") or one
    ("vocab-2"), or with all stages at once ("interlaced"; all three arXiv 2411.05288)."""
    overlap_pipeline: bool = False
    """Whether sends between stages overlap with computation (otherwise they block)."""
    broadcasts_parameters: bool = False
    """Whether, with a sharded optimizer, replicas broadcast their parameters in turn (otherwise all gather at once)."""
    scatters_p2p: bool = True
    """Whether every tensor rank sends its part of an activation to the next stage (otherwise all of it)."""
    overlap_slowdown: float = 1.2
    """Factor on computation during replica traffic. Collectives occupy 16 to 24 of 108 to 132 multiprocessors (the
    channels of NCCL) and memory bandwidth. Runs of InternEvo, llm-foundry, Megatron-Bridge and nanotron require it."""

    host_layer_s: float = 4.4e-3
    """Seconds of launches of one layer and microbatch, both passes."""
    host_rank_s: float = 0.0
    """Further seconds per additional tensor rank."""
    pipeline_rank_s: float = 0.0
    """Further seconds per tensor rank in a pipeline."""
    host_expert_s: float = 0.0
    """Further seconds per layer with routed experts, whose token counts the host waits for."""
    expert_wait_s: float = 0.0
    """Seconds per layer with routed experts, both passes, in which the device has nothing queued. The host reads token
    counts before it launches kernels of these sizes, for any size of microbatch. Less where graphs contain some
    launches."""
    pads_experts: bool = False
    """Whether 8-bit rows of each expert are copied to a multiple of 16 or 32, and results back. Megatron-core does so
    (Fp8Padding, Fp8Unpadding) where no kernel fuses experts."""
    tensor_step_s: float = 0.0
    """Seconds per ring step of a tensor-rank collective beyond the scale-up domain, in addition to the link's own."""
    host_step_s: float = 0.01
    """Seconds per step."""
    host_microbatch_s: float = 3.5e-3
    """Seconds per microbatch."""
    p2p_fixed_s: float = 0.0
    """Fixed cost of a blocking transfer between stages in addition to the transfer."""
    collective_launch_s: float = 50e-6
    """Fixed launch and synchronisation cost of a tensor-parallel collective."""

    keeps_expert_outputs: bool = True
    """Whether outputs of experts are kept for the gradient of the router's weights. Otherwise these weigh the
    activation before the last product, whose input is kept anyway."""
    eight_bit_recipe: str = "current"
    """Elements that share a scale in 8-bit training. Such elements are a tensor, by its largest value in earlier steps
    ("delayed") or in this one ("current"), tiles of 128 and 128 x 128 values ("block"), 32 values ("mx"), rows and
    columns ("row")."""
    eight_bit_copies: bool = False
    """Whether 8-bit training keeps weights of layers in both layouts of its products between microbatches. The copies
    are in addition to half precision (Transformer Engine caches them: module/base.py, get_weight_workspace)."""
    eight_bit_parameters: bool = False
    """Whether 8-bit training stores weights of layers only in 8 bit, and gathers them in 8 bit."""
    eight_bit_gathers: bool = False
    """Whether 8-bit training with one scale per tensor gathers inputs of products over tensor ranks in 8 bit."""
    eight_bit_activations: bool = False
    """Whether 8-bit training keeps inputs of activations and outputs of experts in 8 bit, attention's output in 12."""
    logit_bytes: float = 8.0
    """Bytes per logit that the loss keeps in addition to the logits."""
    cut_logit_bytes: float = 0.0
    """Further bytes per logit where tensor ranks shard the vocabulary."""
    holds_logits: bool = True
    """Whether logits stay allocated during the layers' backward passes (the training loop keeps the last output).
    Otherwise the loss and a layer's backward pass are two moments, of which the larger counts."""
    dummy_gradients: bool = False
    """Whether one unused gradient per shape of a weight stays allocated where products accumulate directly. The
    gradient has the weight's type (Transformer Engine from 2.0 on: get_dummy_wgrad); the head has one during its
    backward pass (Megatron-LM, tensor_parallel/layers.py)."""
    workspace_bytes: float = 0.0
    """Bytes of scratch memory of matrix libraries from the allocator."""
    optimizer: str = "adam"
    """Optimizer: "adam", or "muon" (matrices of layers by orthogonalised momentum, all others by Adam)."""
    optimizer_on_host: float = 0.0
    """Share of the optimizer states in host memory, updated by the host (where they fit)."""
    overlap_host_update: bool = True
    """Whether copies of gradients and parameters overlap the host's update of others (otherwise before and after)."""
    activations_on_host: float = 0.0
    """Share of the layers' kept activations that is copied to host memory and back."""
    chunked_loss: bool = False
    """Whether head and loss are computed together on chunks of tokens. The logits of a chunk take no more memory than
    all hidden activations (Liger-Kernel's fused linear cross entropy, which computes its gradient at once)."""
    context_exchange: str = "ring"
    """Exchange of context ranks: keys and values in a "ring", or tokens for "heads" before and after attention. The
    latter is DeepSpeed-Ulysses (arXiv 2309.14509)."""
    context_bytes: float = 1.0e9
    """Bytes per device outside the allocator."""
    communicator_bytes: float = 0.25e9
    """Bytes per device of all communicators."""
    fragmentation: float = 0.05
    """Lost share of the allocator's peak."""
    states_fragment: bool = True
    """Whether this share also applies to parameters, gradients and optimizer states. Otherwise they are in buffers
    allocated once, and only activations and working memory of layers and loss leave gaps."""
    pipeline_idle: float = 0.0
    """Further share of activations and logits that the allocator keeps idle in a pipeline, while memory is free."""
    allocator_stall: float = 0.0
    """Share of all passes lost to allocator retries where idle buffers do not fit."""
    bucket_bytes: float = 25e6
    """Bytes of a gradient bucket."""
    bucket_rank_bytes: float = 0.0
    """Smallest bytes of a bucket per replica (Megatron-LM: 40M gradients or 1M per rank, whichever is more)."""
    bucket_width_bytes: float = 0.0
    """Bytes by which a gradient fills a bucket (0: its bytes on the wire)."""
    gathers_tensors: bool = False
    """Whether sharded parameters are gathered one tensor at a time, not in buckets."""
    tree_reduction: bool = True
    """Whether gradients may be reduced over a tree of nodes (otherwise only over rings)."""
    gradient_sync: str = "microbatch"
    """Time at which replicas reduce sharded gradients. "microbatch": with every microbatch; "pipeline": once per
    step in a pipeline (torch.distributed.pipelining disables FSDP's synchronisation until the last backward pass);
    "step": once per step of several microbatches (``no_sync``); "round": once per round of an interleaved pipeline,
    with as many microbatches as stages, and once per step in other pipelines."""
    reduces_whole: bool = False
    """Whether all replicas reduce entire gradients, even where each updates only a part of the parameters."""
    unit_parameters: str = ""
    """Storage of parameters gathered in units (FSDP); "": no units. "flat": one buffer, with parameters and gradients
    as views; "each": separate tensors, copied from the gathered buffer and into the reduction buffer. Gradients of
    units exist from a step's first backward pass to its update (PyTorch's ``zero_grad`` drops them)."""
    drops_ends: bool = False
    """Whether embedding and head, one unit, are dropped after the forward pass like layers."""
    live_parameters: float = 0.0
    """Number of sharded parameters that always stay gathered, at most those of a device's part of the model.
    DeepSpeed's setting is ``stage3_max_live_parameters``."""
    layer_units: bool = False
    """Whether sharded gradients or parameters are sent one layer at a time, in place of buckets (FSDP's units)."""
    step_bytes: float = 0.0
    """Memory traffic per step and parameter whose gradient a device stores, however sharded."""
    bucket_copies: float = 2.0
    """Buckets allocated in addition to the gradient buffer (0 where buckets are views of it)."""
    bucket_gradient_bytes: float = 0.0
    """Bytes of buckets that stay allocated."""
    host_tensors: tuple[str, ...] = ()
    """Tensors that may be kept in host memory ("optimizer", "parameters")."""
    host_setting: str = ""
    """Setting of the framework for host memory."""

    @property
    def hardware(self) -> Hardware:
        """Hardware that the framework supports."""
        return Hardware(vendors=self.vendors, architectures=self.architectures)

    def has_main_grad(self, precision: str) -> bool:
        """Check whether some ZeRO stage accumulates gradients of ``precision`` in a separate fp32 buffer."""
        return self.main_grad_to_zero >= 0 and precision not in ("fp32", "tf32", "fp16")

    @property
    def passes_ahead(self) -> int:
        """Additional warm-up forward passes of every device under 1F1B."""
        return int(self.combined_passes)

    def held_gradient_bytes(self, precision: str) -> float:
        """Return the bytes per parameter of a device's gradients at ``precision``, without the accumulation buffer."""
        if precision in ("fp32", "tf32"):
            return 4.0
        if precision != "fp16" and self.bf16_gradient_bytes is not None:
            return self.bf16_gradient_bytes
        return self.gradient_bytes
