"""Arguments of Megatron-LM for a launch, by their argument names (``tensor_model_parallel_size``)."""

from collections.abc import Iterable

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.launchers import Value
from forerun.search.formats.layers import counts_of
from forerun.search.formats.layout import layout_text
from forerun.search.formats.limits import change, is_mixture
from forerun.search.formats.software import exports, flags_of
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
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
    layer = model.layers[-1]
    attention = layer.attention
    length = launch.workload.seq_len
    found: dict[str, Value] = {
        "num_layers": model.layer_count,
        "hidden_size": model.hidden,
        "ffn_hidden_size": _dense_width(model),
        "num_attention_heads": attention.heads,
        "seq_length": length,
        "max_position_embeddings": max(length, model.max_seq_len or length, model.learned_positions),
        "position_embedding_type": "learned_absolute" if model.learned_positions else "rope",
        "swiglu": layer.feed_forward.gated,
        "normalization": "LayerNorm" if layer.norm_bias else "RMSNorm",
        "disable_bias_linear": not attention.output_bias,
        "add_qkv_bias": attention.query_key_value_bias and not attention.output_bias,
        "qk_layernorm": attention.query_key_norm or attention.latent is not None,
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "no_create_attention_mask_in_dataloader": True,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    if model.mtp_layers:
        found["mtp_num_layers"] = model.mtp_layers
    return found | _attention_arguments(layer) | _mixture_arguments(model, layer.feed_forward)


def _attention_arguments(layer: Layer) -> dict[str, Value]:
    attention = layer.attention
    latent = attention.latent
    if latent is None:
        found: dict[str, Value] = {"kv_channels": attention.head_dim}
        if attention.kv_heads != attention.heads:
            found |= {"group_query_attention": True, "num_query_groups": attention.kv_heads}
        return found
    found = {"multi_latent_attention": True, "kv_lora_rank": latent.key_value_rank}
    if latent.query_rank is not None:
        found["q_lora_rank"] = latent.query_rank
    return found | {
        "qk_head_dim": attention.head_dim - latent.rope_head_dim,
        "qk_pos_emb_head_dim": latent.rope_head_dim,
        "v_head_dim": attention.value_head_dim,
    }


def _mixture_arguments(model: Model, mlp: FeedForward | MixtureOfExperts) -> dict[str, Value]:
    if not isinstance(mlp, MixtureOfExperts):
        return {}
    pattern = "+".join(f"[{int(isinstance(x.mlp, MixtureOfExperts))}]*{x.count}" for x in model.layers)
    found: dict[str, Value] = {
        "num_experts": mlp.experts,
        "moe_router_topk": mlp.top_k,
        "moe_ffn_hidden_size": mlp.expert_hidden,
        "moe_router_force_load_balancing": True,
    }
    if len({isinstance(x.mlp, MixtureOfExperts) for x in model.layers}) > 1:
        found["moe_layer_freq"] = f"({pattern})"
    if mlp.shared_hidden:
        found["moe_shared_expert_intermediate_size"] = mlp.shared_hidden
    if mlp.top_groups < mlp.groups:
        found |= {"moe_router_num_groups": mlp.groups, "moe_router_group_topk": mlp.top_groups}
    return found


def _dense_width(model: Model) -> int:
    for layer in model.layers:
        if isinstance(layer.mlp, FeedForward):
            return layer.mlp.hidden
    return max(layer.mlp.expert_hidden for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts))


def model_remarks(model: Model) -> list[str]:
    """Return what the arguments of a model leave out, one sentence each."""
    remarks = [
        "only arguments that decide the cost are written: rotary base and scaling, the norms' epsilon, the kind of "
        "activation, soft caps, sinks and the router's scores have Megatron-LM's defaults; set them before training"
    ]
    if len({layer.attention.window for layer in model.layers}) > 1 or model.layers[-1].attention.window:
        remarks.append("sliding windows are not written; set --window-size and --window-attn-skip-freq")
    shapes = {(layer.attention.heads, layer.attention.kv_heads, layer.attention.head_dim) for layer in model.layers}
    if len(shapes) > 1:
        remarks.append("layers differ in their attention; only the last one's shape is written")
    mlp = model.layers[-1].mlp
    if isinstance(mlp, MixtureOfExperts) and (mlp.router_bias or mlp.expert_bias or mlp.shared_gate):
        remarks.append("biases of router or experts, or the shared expert's gate, are not written")
    if isinstance(mlp, MixtureOfExperts):
        remarks.append("the router is forced to balance, as predicted; drop --moe-router-force-load-balancing to learn")
    return remarks
