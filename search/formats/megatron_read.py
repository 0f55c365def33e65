"""Arguments of Megatron-LM, however they were spelled: one table for its scripts, its logs, Megatron-Bridge and NeMo,
and for other software that has them."""

from forerun.search.formats.keys import YES, LaunchFacts, LaunchKey, facts_of, switched_on
from forerun.search.formats.megatron_stages import read_stages
from forerun.spaces.frameworks import all_switches
from forerun.spaces.strategies import MODULES, Recompute, in_groups

MODEL_FACTS = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn_hidden",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_heads",
    "num_key_value_heads": "kv_heads",
    "kv_channels": "head_dim",
    "max_position_embeddings": "max_positions",
    "vocab_size": "vocab",
    "padded_vocab_size": "padded_vocab",
    "swiglu": "gated",
    "normalization": "norm",
    "position_embedding_type": "positions",
    "untie_embeddings_and_output_weights": "untied_embeddings",
    "group_query_attention": "grouped_query_attention",
    "add_qkv_bias": "query_key_value_bias",
    "disable_bias_linear": "no_bias",
    "qk_layernorm": "query_key_norm",
    "multi_latent_attention": "latent_attention",
    "q_lora_rank": "query_rank",
    "kv_lora_rank": "key_value_rank",
    "qk_head_dim": "query_key_head_dim",
    "qk_pos_emb_head_dim": "rope_head_dim",
    "v_head_dim": "value_head_dim",
    "num_experts": "experts",
    "moe_router_topk": "top_k",
    "moe_ffn_hidden_size": "expert_hidden",
    "moe_layer_freq": "moe_layers",
    "moe_shared_expert_intermediate_size": "shared_hidden",
    "mtp_num_layers": "mtp_layers",
    "window_size": "window",
    "attention_output_gate": "gate",
    "moe_shared_expert_gate": "shared_gate",
    "mamba_num_heads": "scan_heads",
    "mamba_head_dim": "scan_head_dim",
    "mamba_state_dim": "scan_state",
    "mamba_num_groups": "scan_groups",
    "linear_attention_freq": "delta_layers",
    "linear_num_value_heads": "delta_heads",
    "linear_value_head_dim": "delta_head_dim",
    "linear_num_key_heads": "delta_key_heads",
    "linear_key_head_dim": "delta_key_head_dim",
    "linear_conv_kernel_dim": "delta_taps",
}
"""Argument: the fact of a model that it states."""

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""``--data-parallel-sharding-strategy`` of Megatron-FSDP as ZeRO stages."""

KEYS = (
    LaunchKey(
        names=("tensor_model_parallel_size", "model_parallel_size", "encoder_tensor_model_parallel_size"), decides="tp"
    ),
    LaunchKey(names=("pipeline_model_parallel_size",), decides="pp"),
    LaunchKey(names=("context_parallel_size",), decides="cp"),
    LaunchKey(names=("expert_model_parallel_size", "moe_expert_parallel_size"), decides="ep"),
    LaunchKey(names=("expert_tensor_parallel_size",), decides="etp"),
    LaunchKey(names=("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"), decides="vpp"),
    LaunchKey(names=("micro_batch_size",), decides="mbs"),
    LaunchKey(names=("global_batch_size",), decides="global_batch"),
    LaunchKey(names=("seq_length", "encoder_seq_length"), decides="seq_len"),
    LaunchKey(names=("sequence_parallel",), decides="sp", words=YES),
    LaunchKey(
        names=("zero_stage",),
        decides="zero",
        meaning="stage of ZeRO (Megatron-DeepSpeed)",
        words={str(stage): stage for stage in range(4)},
    ),
    LaunchKey(names=("use_torch_fsdp2",), decides="zero", meaning="FSDP of PyTorch", words=switched_on(3)),
    LaunchKey(
        names=("use_distributed_optimizer",),
        decides="zero",
        meaning="optimizer states are sharded",
        words={word: int(on) for word, on in YES.items()},
    ),
    LaunchKey(names=("num_distributed_optimizer_instances",), decides="instances"),
    LaunchKey(names=("use_tp_pp_dp_mapping",), decides="placement", words=YES),
    LaunchKey(
        names=("recompute_granularity", "activations_checkpoint_granularity"),
        decides="recompute",
        words={"full": Recompute.FULL, "selective": Recompute.SELECTIVE},
    ),
    LaunchKey(names=("recompute_activations",), decides="recompute", words=switched_on(Recompute.SELECTIVE)),
    *(  # before recompute had a granularity: every layer from its input
        LaunchKey(names=(name,), decides="recompute", words=switched_on(Recompute.FULL))
        for name in ("checkpoint_activations", "deepspeed_activation_checkpointing")
    ),
    LaunchKey(names=("bf16",), decides="precision", words=switched_on("bf16")),
    LaunchKey(names=("fp16",), decides="precision", words=switched_on("fp16")),
    *facts_of(MODEL_FACTS),
)


def adjust(facts: LaunchFacts) -> None:
    """Settle what arguments decide together.

    Raises:
        RequestError: they contradict each other.
    """
    facts.assume("mbs", 1, "the file has no micro_batch_size")
    _experts(facts)
    read_stages(facts)
    _sharding(facts)
    _recompute(facts)
    _precision(facts)
    _layers_on_host(facts)
    if facts.get("sp") and facts.get("tp", 1) == 1:
        facts.notes.append("sequence parallel has no effect with tp=1; Megatron-LM switches it off")


def _experts(facts: LaunchFacts) -> None:
    """Settle etp: where the file names none it is tp, for a model with experts."""
    tp, etp = facts.get("tp", 1), facts.values.pop("etp", None)
    if "model.experts" in facts.values or facts.get("ep", 1) > 1:
        facts.values["etp"] = tp if etp is None else etp
    elif etp not in (None, 1, tp):
        facts.notes.append(f"expert_tensor_parallel_size={etp} has no effect: the file names no experts")


def _sharding(facts: LaunchFacts) -> None:
    settings = facts.settings
    sharding = settings.one_of("data_parallel_sharding_strategy", SHARDING)
    if settings.raw("optimizer") == "dist_muon":  # it shares states out by itself
        facts.values["zero"] = 1
    if settings.flag("use_megatron_fsdp", "use_custom_fsdp"):
        facts.values["zero"] = SHARDING[sharding or "no_shard"]
    # DeepSpeed's optimizer of bfloat16, which its pipeline takes without ZeRO, shares its states out over replicas.
    half = facts.get("precision") == "bf16" and facts.get("pp", 1) > 1 and settings.flag("deepspeed")
    if half and settings.whole("zero_stage", least=0) == 0:
        facts.notes.append(
            "zero_stage=0 with bf16 and a pipeline: DeepSpeed's BF16 optimizer shards its states; read as zero=1"
        )
        facts.values["zero"] = 1


def _recompute(facts: LaunchFacts) -> None:
    """Settle how many layers, or which modules, are recomputed."""
    settings = facts.settings
    granularity = settings.text("recompute_granularity", "activations_checkpoint_granularity")
    method = settings.text("recompute_method", "activations_checkpoint_method")
    some = settings.whole("recompute_num_layers", "activations_checkpoint_num_layers")
    modules = settings.raw("recompute_modules")
    settings.whole("checkpoint_num_layers", least=0)
    if granularity == "full" and some and method in ("block", "uniform", None):
        layers, stages = facts.get("model.layers"), facts.get("pp", 1) * facts.get("vpp", 1)
        most = -(-layers // stages) if isinstance(layers, int) else None  # of one stage
        if method != "block":
            facts.values["recompute_layers"] = in_groups(min(some, most or some))
        elif most is None or some < most:
            facts.values["recompute_layers"] = some
    if granularity == "full" and method == "block" and not facts.get("recompute_layers"):
        facts.notes.append(f"recompute of {some or 1} layers by block is read as recompute=full: all layers")
    if facts.get("recompute") == Recompute.SELECTIVE:
        names = [*map(str, modules)] if isinstance(modules, list | tuple) else str(modules or "core_attn").split()
        known = [MODULES[name] for name in names if name in MODULES]
        if lost := [name for name in names if name not in MODULES]:
            facts.notes.append(f"recompute of {', '.join(lost)} is not part of a strategy")
        if known:
            facts.values["recompute"] = Recompute(sum(dict.fromkeys(known)))


def _layers_on_host(facts: LaunchFacts) -> None:
    """Settle the share of the layers whose activations go to the host as a whole (Transformer Engine's)."""
    some, layers = facts.settings.whole("cpu_offloading_num_layers", least=0), facts.get("model.layers")
    facts.settings.raw("cpu_offloading")
    if some and isinstance(layers, int) and some < layers:
        facts.switches["activation-offload"] = all_switches()["activation-offload"].read(str(some / layers))


def _precision(facts: LaunchFacts) -> None:
    settings = facts.settings
    eight, four = settings.text("fp8_format", "fp8"), settings.text("fp4_format", "fp4")
    recipe = settings.text("fp8_recipe")
    settings.raw("fp4_recipe")
    if four and four.lower() != "none":
        facts.values["precision"] = "nvfp4"
    elif eight and eight.lower() not in ("none", "false"):
        facts.values["precision"] = "mxfp8" if recipe == "mxfp8" else "fp8"
        if recipe not in (None, "delayed", "tensorwise", "blockwise", "mxfp8"):
            facts.notes.append(f"fp8 recipe {recipe} is read as precision fp8")
