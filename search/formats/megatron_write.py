"""Arguments of Megatron-LM for a launch, by their argument names (``tensor_model_parallel_size``)."""

from collections.abc import Iterable

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.launchers import Value
from forerun.search.formats.layers import counts_of
from forerun.search.formats.layout import layout_text
from forerun.search.formats.limits import change, is_mixture
from forerun.search.formats.megatron_hybrid import alternates, delta_arguments, hybrid_arguments, last_of
from forerun.search.formats.software import exports, flags_of
from forerun.spaces.models.model import Attention, FeedForward, MixtureOfExperts, Model
from forerun.spaces.strategies import ALL_LAYERS, MODULES, Placement, Recompute, Split

PRECISION: dict[str, dict[str, Value]] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp32": {},
    "fp8": {"bf16": True, "fp8_format": "hybrid"},
    "mxfp8": {"bf16": True, "fp8_format": "e4m3"},
    "nvfp4": {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4"},
}
"""Arguments of each precision, beside those of its recipe, a switch; tf32 has none of its own."""

RECOMPUTE: dict[Recompute, dict[str, Value]] = {
    Recompute.NONE: {},
    Recompute.FULL: {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}


def parallel_arguments(launch: Launch) -> dict[str, Value]:
    """Return the arguments of the strategy, batch sizes not included."""
    s = launch.strategy
    found: dict[str, Value] = {
        "tensor_model_parallel_size": s.tp,
        "pipeline_model_parallel_size": s.pp,
        "context_parallel_size": s.cp,
    }
    if is_mixture(launch.model):
        found |= {"expert_model_parallel_size": s.ep, "expert_tensor_parallel_size": s.etp}
    found["sequence_parallel"] = s.sp
    found |= _pipeline_arguments(launch)
    found["use_tp_pp_dp_mapping"] = s.placement == Placement.TP_CP_EP_PP_DP
    if s.dp * s.cp > 1:
        found |= {"use_distributed_optimizer": True} if s.zero else {}
        if s.shard:
            found["num_distributed_optimizer_instances"] = s.copies
    if s.recompute_layers != ALL_LAYERS:
        method, layers = ("block", s.recompute_first) if s.recompute_first else ("uniform", s.recompute_group)
        block: dict[str, Value] = {"recompute_method": method, "recompute_num_layers": layers}
        return found | {"recompute_granularity": "full"} | block
    modules = tuple(name for name, module in MODULES.items() if s.recompute & module)
    if modules:
        return found | {"recompute_granularity": "selective", "recompute_modules": modules}
    return found | RECOMPUTE[s.recompute]


def sharding_of(launch: Launch, flags: Iterable[str]) -> dict[str, Value]:
    """Return what the precision-aware optimizer needs besides, where switches have it on: it is part of the distributed
    one (megatron-core, optimizer_config.py), which a single replica may have as well."""
    return {"use_distributed_optimizer": True} if not launch.strategy.zero and _by_precision(flags) else {}


def _by_precision(flags: Iterable[str]) -> bool:
    return any(name.endswith("use_precision_aware_optimizer") for name in flags)


def sharded_states(framework: str) -> Limit:
    """Return the limit "replicas share their states where these are in the host's memory or other types"."""

    def broken(launch: Launch) -> bool:
        s = launch.strategy
        return not s.zero and s.dp * s.cp > 1 and _by_precision(exports(flags_of(launch, framework))[0])

    return Limit(
        broken=broken,
        reason=lambda launch: (
            "optimizer states in the host's memory or other types need the distributed optimizer: zero=1"
        ),
        fix=lambda launch: change(launch, zero=1),
    )


def _pipeline_arguments(launch: Launch) -> dict[str, Value]:
    s = launch.strategy
    if launch.model.hybrid:
        return {}  # bars in the pattern of its layers
    if s.layers_per_stage is not None or s.split in (Split.BALANCED, Split.LIGHT_MTP):
        layout = layout_text(counts_of(s, launch.model.layer_count), launch.model.mtp_layers)
        return {"pipeline_model_parallel_layout": layout}
    found: dict[str, Value] = {}
    if s.vpp > 1:
        found["num_virtual_stages_per_pipeline_rank"] = s.vpp
    if s.split == Split.LIGHT_ENDS:
        found["account_for_embedding_in_pipeline_split"] = True
    if s.split in (Split.LIGHT_LAST, Split.LIGHT_ENDS):
        found["account_for_loss_in_pipeline_split"] = True
    return found


def model_arguments(launch: Launch) -> dict[str, Value]:
    """Return the arguments of the model; ``model_remarks`` says what they leave out."""
    model = launch.model
    attention, mlp, layer = last_of(model)
    length = launch.workload.seq_len
    found: dict[str, Value] = {
        "num_layers": model.layer_count,
        "hidden_size": model.hidden,
        "ffn_hidden_size": _dense_width(model),
        "seq_length": length,
        "max_position_embeddings": max(length, model.max_seq_len or length, model.learned_positions),
        "position_embedding_type": "learned_absolute" if model.learned_positions else "rope",
        "swiglu": mlp is not None and mlp.gated,
        "normalization": "LayerNorm" if layer.norm_bias else "RMSNorm",
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "no_create_attention_mask_in_dataloader": True,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    if model.mtp_layers:
        found["mtp_num_layers"] = model.mtp_layers
    found |= _attention_arguments(attention) | _mixture_arguments(model, mlp)
    if is_mixture(model) and launch.workload.moe_imbalance == 1:
        found["moe_router_force_load_balancing"] = True
    if model.hybrid:
        return found | hybrid_arguments(launch)
    return found | delta_arguments(model) if alternates(model) else found


def _attention_arguments(attention: Attention | None) -> dict[str, Value]:
    if attention is None:  # the parser asks for heads, nothing reads them
        return {"num_attention_heads": 1, "disable_bias_linear": True}
    latent = attention.latent
    found: dict[str, Value] = {
        "num_attention_heads": attention.heads,
        "disable_bias_linear": not attention.output_bias,
        "add_qkv_bias": attention.query_key_value_bias and not attention.output_bias,
        "qk_layernorm": attention.query_key_norm or latent is not None,
        "attention_output_gate": attention.gate == attention.heads * attention.value_head_dim,
    }
    if latent is None:
        found |= {"kv_channels": attention.head_dim}
        if attention.kv_heads != attention.heads:
            found |= {"group_query_attention": True, "num_query_groups": attention.kv_heads}
        return found
    found |= {"multi_latent_attention": True, "kv_lora_rank": latent.key_value_rank}
    if latent.query_rank is not None:
        found["q_lora_rank"] = latent.query_rank
    return found | {
        "qk_head_dim": attention.head_dim - latent.rope_head_dim,
        "qk_pos_emb_head_dim": latent.rope_head_dim,
        "v_head_dim": attention.value_head_dim,
    }


def _mixture_arguments(model: Model, mlp: FeedForward | MixtureOfExperts | None) -> dict[str, Value]:
    if not isinstance(mlp, MixtureOfExperts):
        return {}
    pattern = "+".join(f"[{int(isinstance(x.mlp, MixtureOfExperts))}]*{x.count}" for x in model.layers)
    found: dict[str, Value] = {
        "num_experts": mlp.experts,
        "moe_router_topk": mlp.top_k,
        "moe_ffn_hidden_size": mlp.expert_hidden,
    }
    if len({isinstance(x.mlp, MixtureOfExperts) for x in model.layers}) > 1 and not model.hybrid:
        found["moe_layer_freq"] = f"({pattern})"
    if mlp.shared_hidden:
        found |= {"moe_shared_expert_intermediate_size": mlp.shared_hidden, "moe_shared_expert_gate": mlp.shared_gate}
    if mlp.top_groups < mlp.groups:
        found |= {"moe_router_num_groups": mlp.groups, "moe_router_group_topk": mlp.top_groups}
    return found


def _dense_width(model: Model) -> int:
    for layer in model.layers:
        if isinstance(layer.mlp, FeedForward):
            return layer.mlp.hidden
    mixtures = [layer.mlp.expert_hidden for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    return max(mixtures, default=model.hidden)


def model_remarks(launch: Launch) -> list[str]:
    """Return what the arguments of a model leave out, one sentence each."""
    remarks = [
        "only arguments that decide the cost are written: rotary base and scaling, the norms' epsilon, the kind of "
        "activation, soft caps, sinks and the router's scores have Megatron-LM's defaults; set them before training"
    ]
    model = launch.model
    attentions = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]
    if any(attention.window for attention in attentions):
        remarks.append("sliding windows are not written; set --window-size and --window-attn-skip-freq")
    if len({(attention.heads, attention.kv_heads, attention.head_dim) for attention in attentions}) > 1:
        remarks.append("layers differ in their attention; only the last one's shape is written")
    _, mlp, _ = last_of(model)
    if isinstance(mlp, MixtureOfExperts) and (mlp.router_bias or mlp.expert_bias):
        remarks.append("biases of router or experts are not written")
    if isinstance(mlp, MixtureOfExperts) and launch.workload.moe_imbalance == 1:
        remarks.append("the router is forced to balance, as predicted; drop --moe-router-force-load-balancing to learn")
    return remarks
