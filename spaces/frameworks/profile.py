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
    """Complete choices of recompute that it offers."""
    zero_stages: tuple[int, ...]
    """Sharding stages of ZeRO."""
    zero_with_pipeline: int
    """Highest sharding stage allowed when pp > 1."""
    sequence_parallel: str
    """"optional", "always" (whenever tp > 1) or "never"."""
    pipeline_parallel: bool
    """Whether pp may exceed 1; the next four say the same of tp, cp, ep and etp."""
    tensor_parallel: bool
    context_parallel: bool
    expert_parallel: bool
    expert_tensor: bool
    """Experts may have a tensor degree of their own (folding)."""
    kv_replication: bool
    """tp may exceed the number of key/value heads (heads are then copied)."""
    sp_with_experts: bool
    """tp > 1 together with ep > 1 needs sequence parallel (Megatron-LM arguments.py)."""
    placements: tuple[str, ...]
    """Orders of degrees in device numbering."""
    recompute_layers: bool = False
    """Full recompute may stop after some layers of a (virtual) stage (Megatron-LM's block method)."""
    recompute_modules: tuple[str, ...] = ()
    """Modules of a layer that it can recompute by themselves (``forerun.spaces.strategies.axes.MODULES``)."""
    pipeline_alone: bool = False
    """Pipelines go with no tensor and no expert degree."""
    interleaves_hybrids: bool = True
    """Hybrid models, whose layers have one part each, go with virtual stages."""
    plain_replicas_alone: bool = False
    """Replicas that share no states (zero=0) go with no other degree."""
    partial_zero: tuple[int, ...] = ()
    """Sharding stages at which a part of the replicas may share the states while the others keep copies."""
    shards_context: bool = False
    """Replicas that share states are whole context-parallel groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProfile:
    """One framework in one configuration: catalogue entry or user file, including switches.

    Overlaps are shares (0 to 1) of the communication time that long enough computation hides. Bytes are per parameter
    and seconds are of the host of an H100 system, unless stated otherwise.
    """

    name: str
    """Name in the catalogue, or of the user's file."""
    title: str
    """One line for people."""
    source: str
    """Source of its facts."""
    legality: Legality
    """Strategies that it accepts."""
    vendors: tuple[str, ...] = ()
    """Makers of the devices that it runs on; empty for all."""
    architectures: tuple[str, ...] = ()
    """Beginnings of the architectures that it runs on; empty for all of its vendors."""
    version: str = ""
    """Release that the facts describe; switches of later releases are not available."""
    lineage: tuple[str, ...] = ()
    """The profile's own name and those that it is ``like``, nearest first."""
    switches: tuple[tuple[str, str], ...] = ()
    """Setting of every switch that the framework has, in the order of ``forerun.spaces.frameworks.switches``."""

    attention: str = "flash"
    """Attention kernel: "flash", "flash2", "flash_triton", "flash1", "fused_softmax", "unfused" or "unfused_half"."""
    eager: tuple[str, ...] = ("cross_entropy",)
    """Memory-bound operators (``forerun.simulator.costs.STREAM_OPERATORS``) that run as several kernels."""
    fused_accumulation: bool = True
    """The matrix product adds weight gradients to the gradient buffer (else a pass of its own does)."""
    graphs: str = "none"
    """Part of a step that is launched as one CUDA graph: "none", parts of "layers", or the whole "step"."""
    graphed: tuple[str, ...] = ()
    """Parts of layers that graphs hold: "attention", "mlp" (dense), "router" (with what precedes dispatch, and shared
    experts), "experts"."""
    merged_products: bool = True
    """Products that read the same input (queries, keys and values; gate and up) are one product. Else each adds up its
    own gradient of the input over tensor ranks where sequence parallel is off."""
    fused_norms: bool = False
    """Norms run inside the product after them and keep its input, so that recomputing one frees nothing (Transformer
    Engine's ``TELayerNormColumnParallelLinear``); modules of their own are those before latent attention and before
    experts (``gpt_layer_specs.py`` of Megatron-Core)."""
    selective: str = "core"
    """Operators that selective recomputation repeats: the attention "core" (Megatron-LM), or all but it and every
    second matrix product ("products", torchtitan)."""
    stops_recompute: bool = False
    """Full recomputation of a layer ends with the last tensor that its backward pass needs. The last product of a dense
    feed-forward and the communication after it are then not repeated (PyTorch's non-reentrant checkpoints: steps of 1.5
    to 8B on one H100 take 1.18 times as long as without recomputation)."""
    keeps_gathered: bool = False
    """Activations gathered over tensor ranks for one microbatch stay with the allocator, and are not gathered again in
    the backward pass."""
    gathers_ahead: bool = False
    """In a pipeline those of all microbatches in flight but two stay instead."""
    gathered_logits: bool = False
    """The loss sees the whole vocabulary on every tensor rank (else each its own rows)."""
    dropout: bool = False
    """Dropout masks are kept for the backward pass."""
    fused_experts: bool = False
    """The products of experts apply the activation and cast their results themselves (eight-bit training)."""
    grouped_experts: bool = True
    """All experts of a device are one product each way (else modules of their own, one after another)."""

    gradient_bytes: float = 4.0
    """Local gradient buffer."""
    bf16_gradient_bytes: float | None = None
    """The same in bf16 training where it differs from fp16 (None: it does not)."""
    reduce_bytes: float = 4.0
    """Gradients on the wire."""
    main_grad_to_zero: int = -1
    """Up to this sharding stage bf16 gradients are added up in a separate fp32 buffer beside them (-1: never)."""
    master_bytes: float = 4.0
    """fp32 copy of the parameters in half-precision training."""
    optimizer_bytes: float = 8.0
    """Both moments in half-precision training."""

    overlap_gradients: float = 0.0
    """Gradient reduction under the backward pass."""
    overlap_parameters: float = 0.0
    """Gather of sharded parameters under the forward pass."""
    overlap_tensor: float = 0.0
    """Tensor-parallel collectives under matrix products."""
    overlap_tensor_backward: float = 0.0
    """Those of a column-parallel product's backward pass under its two gradients (asynchronous in Megatron-LM)."""
    overlap_context: float = 0.8
    """Key/value exchange of context parallelism under attention."""
    overlap_expert: float = 0.0
    """Expert all-to-all under other computation of the same stage."""
    overlap_shared_experts: bool = False
    """Shared experts compute while tokens travel to the routed ones and back."""
    expert_multiprocessors: float = 24.0
    """Multiprocessors that hold the kernels of the expert all-to-all and slow what runs beside them."""
    combined_passes: bool = False
    """A forward pass runs beside the backward pass of another microbatch (combined 1F1B), so that every device is one
    forward pass of a virtual stage ahead (Megatron-core, pipeline_parallel/schedules.py)."""
    reserves_expert_multiprocessors: bool = False
    """Those multiprocessors are kept free for traffic in all layers with experts (else only while it lasts)."""
    dispatch_share: float = 1.0
    """Bytes of dispatch and combine over those of half precision, in eight-bit training."""
    dispatches_once: bool = False
    """A token is sent only once to every node that has experts for it (DeepEP, HybridEP)."""
    gathers_tokens: bool = False
    """Every expert rank gathers the tokens of all of them and keeps its own (Megatron-LM's all-gather dispatcher)."""
    vocabulary: str = "ends"
    """Where a pipeline has embedding and head: at its "ends", or in equal parts on all stages, each of which computes
    its part of every microbatch: in passes between those of layers with two barriers ("vocab-1") or one ("vocab-2"), or
    of all stages at once ("interlaced"; all three arXiv 2411.05288)."""
    overlap_pipeline: bool = False
    """Sends between stages overlap with compute (else they block)."""
    broadcasts_parameters: bool = False
    """With a sharded optimizer every replica broadcasts its own parameters in turn (else all gather at once)."""
    scatters_p2p: bool = True
    """Every tensor rank sends its part of an activation to the next stage (else each the whole)."""
    overlap_slowdown: float = 1.2
    """Factor on computation beside traffic of replicas: collectives hold 16 to 24 of 108 to 132 multiprocessors (the
    channels of NCCL) and memory bandwidth. Runs of InternEvo, llm-foundry, Megatron-Bridge and nanotron ask for it."""

    host_layer_s: float = 4.4e-3
    """Launches of one layer and microbatch, both passes."""
    host_rank_s: float = 0.0
    """The same, more per further tensor rank."""
    pipeline_rank_s: float = 0.0
    """The same besides in a pipeline."""
    host_expert_s: float = 0.0
    """More per layer with routed experts, whose token counts the host waits for."""
    expert_wait_s: float = 0.0
    """Seconds per layer with routed experts, both passes, in which the device has nothing queued: the host reads token
    counts before it launches what they size, however large a microbatch is. Less where graphs hold some launches."""
    pads_experts: bool = False
    """Eight-bit rows of each expert are copied to a multiple of 16 or 32 of them, and results back (Megatron-core's
    Fp8Padding and Fp8Unpadding), where no kernel fuses experts."""
    tensor_step_s: float = 0.0
    """Per ring step of a collective over tensor ranks that leaves the scale-up domain, beyond the link's own."""
    host_step_s: float = 0.01
    """Once per step."""
    host_microbatch_s: float = 3.5e-3
    """Once per microbatch."""
    p2p_fixed_s: float = 0.0
    """Fixed cost of a blocking transfer between stages beyond the transfer itself."""
    collective_launch_s: float = 50e-6
    """Fixed launch and synchronisation cost of a tensor-parallel collective."""

    keeps_expert_outputs: bool = True
    """Outputs of experts are kept for the gradient of the router's weights (else these weigh the activation before the
    last product, whose input is kept anyway)."""
    eight_bit_recipe: str = "current"
    """Elements that share a scale in eight-bit training: a tensor, by its largest value in earlier steps ("delayed") or
    in this one ("current"), tiles of 128 and 128 x 128 values ("block"), 32 values ("mx"), rows and columns ("row")."""
    eight_bit_copies: bool = False
    """Eight-bit training keeps weights of layers in both layouts of its products between microbatches, beside those in
    half precision (Transformer Engine caches them: module/base.py, get_weight_workspace)."""
    eight_bit_parameters: bool = False
    """Eight-bit training has those of layers in eight bit alone, and gathers them so."""
    eight_bit_gathers: bool = False
    """Eight-bit training with one scale for a tensor gathers the inputs of products over tensor ranks in eight bit."""
    eight_bit_activations: bool = False
    """Eight-bit training keeps inputs of activations and outputs of experts in eight bit, and the output of attention
    in twelve."""
    logit_bytes: float = 8.0
    """Bytes per logit that the loss keeps besides the logits themselves."""
    cut_logit_bytes: float = 0.0
    """The same besides where tensor ranks cut the vocabulary."""
    holds_logits: bool = True
    """Logits stay allocated while layers run backward (the training loop holds the last output); else the loss and a
    layer's backward pass are two moments, of which the larger counts."""
    dummy_gradients: bool = False
    """Where the product adds weight gradients to the buffer itself, one unused gradient per shape of a weight stays
    allocated, in its type (Transformer Engine from 2.0 on: get_dummy_wgrad), and one of the head's while it runs
    backward (Megatron-LM, tensor_parallel/layers.py)."""
    workspace_bytes: float = 0.0
    """Scratch memory of matrix libraries that comes from the allocator."""
    optimizer: str = "adam"
    """"adam", or "muon": matrices of layers by orthogonalised momentum, all else by Adam."""
    optimizer_on_host: float = 0.0
    """Share of the optimizer states that lies in the memory of the host, which updates them (where they fit there)."""
    overlap_host_update: bool = True
    """Gradients go there and parameters come back while the host updates others (else before and after)."""
    activations_on_host: float = 0.0
    """Share of what layers keep for the backward pass that goes to the memory of the host and comes back."""
    chunked_loss: bool = False
    """Head and loss run together on as many tokens at a time as have no more logits than all have hidden activations
    (Liger-Kernel's fused linear cross entropy; its gradient is computed at once)."""
    context_exchange: str = "ring"
    """Exchange of context ranks: keys and values in a "ring", or tokens for "heads" before and after attention
    (DeepSpeed-Ulysses, arXiv 2309.14509)."""
    context_bytes: float = 1.0e9
    """Bytes per device outside the allocator."""
    communicator_bytes: float = 0.25e9
    """Bytes per device of all communicators."""
    fragmentation: float = 0.05
    """Share of the allocator's peak that is lost."""
    states_fragment: bool = True
    """That share is lost of parameters, gradients and optimizer states, too; else they lie in buffers that are
    allocated once, and only activations and what layers and the loss work with leave gaps."""
    pipeline_idle: float = 0.0
    """Share of activations and logits that the allocator keeps idle besides in a pipeline, while there is room."""
    allocator_stall: float = 0.0
    """Share of all passes lost where the allocator's idle buffers do not fit, so that it frees and asks again."""
    bucket_bytes: float = 25e6
    """Bytes of a gradient bucket."""
    bucket_rank_bytes: float = 0.0
    """Least bytes of a bucket per replica (Megatron-LM: 40M gradients or 1M per rank, whichever is more)."""
    bucket_width_bytes: float = 0.0
    """Bytes by which a gradient fills a bucket (0: those on the wire)."""
    gathers_tensors: bool = False
    """Sharded parameters are gathered one tensor at a time, not by buckets."""
    tree_reduction: bool = True
    """Gradients may be reduced over a tree of nodes (else by rings alone)."""
    gradient_sync: str = "microbatch"
    """When replicas that share gradients out reduce them: with every "microbatch", or whole and once per step, in a
    "pipeline" (torch.distributed.pipelining turns FSDP's synchronisation off until the last backward pass) or in
    every "step" of several microbatches (``no_sync``); "round": in an interleaved pipeline once per round of as many
    microbatches as it has stages, in other pipelines once per step."""
    reduces_whole: bool = False
    """All replicas add up whole gradients, even where each updates a part of the parameters only."""
    unit_parameters: str = ""
    """Storage of parameters that are gathered in units (FSDP): "flat" in one buffer, of which they and their gradients
    are views, or "each" separately, copied from the gathered buffer and into the reduced one. "": no units. Gradients
    of units exist from a step's first backward pass to its update (PyTorch's ``zero_grad`` drops them)."""
    drops_ends: bool = False
    """Embedding and head, which are a unit of their own, are dropped behind the forward pass as layers are."""
    live_parameters: float = 0.0
    """Sharded parameters that stay gathered at least, as many as a device's part of the model has (DeepSpeed's
    ``stage3_max_live_parameters``)."""
    layer_units: bool = False
    """Sharded gradients or parameters travel one layer at a time, whatever buckets are (FSDP's units)."""
    step_bytes: float = 0.0
    """Memory traffic per step and parameter whose gradient a device stores, however sharded."""
    bucket_copies: float = 2.0
    """Buckets allocated beside the gradient buffer (0 where buckets are views of it)."""
    bucket_gradient_bytes: float = 0.0
    """Bytes of buckets that all stay allocated."""
    host_tensors: tuple[str, ...] = ()
    """Tensors that may be kept in host memory ("optimizer", "parameters")."""
    host_setting: str = ""
    """Setting of the framework that does so."""

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
