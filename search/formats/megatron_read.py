"""Arguments of Megatron-LM, however they were spelled: one table for its scripts, its logs, Megatron-Bridge and NeMo,
and for other software that has them."""

from forerun.search.formats.contract import Launch
from forerun.search.formats.keys import GRANULARITIES, YES, ZERO_STAGES, LaunchFacts, decide, facts_of, switched_on
from forerun.search.formats.limits import is_mixture
from forerun.search.formats.megatron_stages import laid_out, read_stages
from forerun.search.formats.model_facts import model_facts
from forerun.spaces.frameworks import all_switches
from forerun.spaces.strategies import MODULES, Recompute, in_groups

MODEL_FACTS = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn_hidden",
    "num_attention_heads": "heads",
    "kv_channels": "head_dim",
    "max_position_embeddings": "max_positions",
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
    "moe_shared_expert_intermediate_size": "shared_hidden",
    "mtp_num_layers": "mtp_layers",
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


def _grouped(launch: Launch) -> bool:
    return bool(model_facts(launch.model, 0).get("grouped_query_attention"))


def _mixed(launch: Launch) -> bool:
    return is_mixture(launch.model)


def _numbered(launch: Launch) -> bool:
    """Whether virtual stages are said by their number, and not by a layout or the bars of a pattern."""
    return launch.strategy.vpp > 1 and laid_out(launch) is None and not launch.model.hybrid


def _shared(launch: Launch) -> bool:
    """Whether replicas share states, which one alone cannot."""
    return launch.strategy.zero > 0 and launch.strategy.dp * launch.strategy.cp > 1


PARALLEL_KEYS = (
    decide("tp", "tensor_model_parallel_size", "model_parallel_size", "encoder_tensor_model_parallel_size"),
    decide("pp", "pipeline_model_parallel_size"),
    decide("cp", "context_parallel_size"),
    decide(
        "cp",
        "ds_sequence_parallel_size",
        says="Ulysses over {value} ranks exchanges heads; read as cp",
        written=False,
    ),
    decide("ep", "expert_model_parallel_size", "moe_expert_parallel_size", written=_mixed),
    decide("etp", "expert_tensor_parallel_size", written=_mixed),
    decide("sp", "sequence_parallel", words=YES),
    decide("vpp", "num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size", written=_numbered),
    decide("placement", "use_tp_pp_dp_mapping", words=YES),
    decide("zero", "zero_stage", meaning="stage of ZeRO (Megatron-DeepSpeed)", words=ZERO_STAGES, written=False),
    decide("zero", "use_torch_fsdp2", meaning="FSDP of PyTorch", words=switched_on(3), written=False),
    decide(
        "zero",
        "use_distributed_optimizer",
        meaning="optimizer states are sharded",
        words={word: int(on) for word, on in YES.items()},
        written=_shared,
    ),
    decide("instances", "num_distributed_optimizer_instances", written=_shared),
    decide("recompute", "recompute_granularity", "activations_checkpoint_granularity", words=GRANULARITIES),
    decide("recompute", "recompute_activations", words=switched_on(Recompute.SELECTIVE), written=False),
    *(  # before recompute had a granularity: every layer from its input
        decide("recompute", name, words=switched_on(Recompute.FULL), written=False)
        for name in ("checkpoint_activations", "deepspeed_activation_checkpointing")
    ),
)
BATCH_KEYS = (
    decide("mbs", "micro_batch_size"),
    decide("mbs", "batch_size", meaning="sequences of a replica (before version 2)", written=False),
    decide("global_batch", "global_batch_size"),
)
MODEL_KEYS = (
    decide("seq_len", "seq_length", "encoder_seq_length"),
    *facts_of(MODEL_FACTS),
    decide("model.kv_heads", "num_query_groups", "num_key_value_heads", written=_grouped),
    decide("model.moe_layers", "moe_layer_freq", written=lambda launch: not launch.model.hybrid),
    decide("model.vocab", "vocab_size", written=False),
    decide("model.padded_vocab", "padded_vocab_size"),
    decide("model.window", "window_size"),
)
KEYS = (
    *PARALLEL_KEYS,
    *BATCH_KEYS,
    decide("precision", "bf16", words=switched_on("bf16")),
    decide("precision", "fp16", words=switched_on("fp16")),
    *MODEL_KEYS,
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
