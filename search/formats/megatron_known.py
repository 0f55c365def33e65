"""Arguments that Megatron-LM has and that a strategy does not: they reach the user as known, not as misspelt."""

_PREFIXES = (
    "adam|adaptive|aggregate|align|apply|async|attention|auto|beta|bias|biencoder|block|calculate|check|ckpt|clip|clone|"
    "cp_comm|cross_entropy|cuda_graph|data_|dataloader|ddp_|deallocate|decoupled|decrease|defer|deterministic|dino|dist_|"
    "distribut|embedding|empty|enable|end_weight|eod|eval|exit|exp_avg|external|fim|fine_grained|finetune|first_last|flash|"
    "flow|fp16|fp32|fp4|fp8|full_validation|fused|global|grad|head_lr|hidden_dropout|hierarchical|hysteresis|ict|"
    "inference|init|initial|inprocess|keep|kitchen|kv_cache|language|lazy|legacy|load|local_rank|log|loss_scale|lr|"
    "main_|make_vocab|manual_gc|mask|masked|merge_file|mid_level|min_l|mock|moe|mtp|mup|muon|nccl|no_|non_persistent|"
    "num_dataset|num_distributed|num_workers|on_the_fly|onnx|openai|optimizer|outer_dp|overlap|override|patch|per_split|"
    "perform|persist|pin_memory|pipeline_model_parallel_comm|pretrained|profile|qk_clip|quant|query|rampup|rank|record|"
    "reduce|relative|replication|rerun|reset|result|retro|rotary|rope|run_workload|s3|sample|save|scatter|seed|"
    "sharp|short_seq|skip|softmax|spec|split|squared|start_weight|step_batch|straggler|suggested|te_|tensorboard|test_|"
    "tiktoken|tile|timing|titles|tokenizer|tp_comm|train|transformer_impl|trust|ub_|use_|valid|vocab|wandb|warmup|wgrad|"
    "weight_decay|window|yaml|eps|norm_epsilon|layernorm|seq_lengths|microbatch_group|delay|batch_p2p|is_|create|position|"
    "cpu_offloading|offload|recompute_|mscale|standalone|rewrite|dump|disable|error|perf|world_size|world|encoder|decoder|"
    "expert_|experimental_attention|fsdp|glu_|quick_geglu|lion_|mamba_|linear_|hybrid_|is_hybrid|heterogeneous|high_priority|accumulate_allreduce|"
    "params_dtype|swin|vision|num_channels|img|barrier|consumed|curr|do_|bert|config|variable|add_|group|untie|"
    "average_in|pipeline_dtype|freeze|reuse_grad_buf|deepspeed|universal_checkpoint|activation_func|allow_ambiguous|"
    "app_tag|batch_invariant|cache_mla|calc_ft|chat_template|decode_only|delta_offload|distrib_optim|dsa_|ep_overlap|"
    "fake_process|fault_injector|flight_recorder|ft_|gpu_sniff|grpo_|iterations_to_skip|langrl|max_seqlen_per|max_tokens|"
    "megatron_fsdp_|memory_snapshot|min_offloaded|mla_|mlp_chunks|mrope|multiple_validation|null_tokenizer|num_layers_at|"
    "num_speculative|nvtx|object_storage|one_logger|per_dataset|phase_transition|pytorch_profiler|qk_l2|refit_|rl_|sft|"
    "sgd_|symmetric_ar|tensor_parallel_num|torch_fsdp2|verify_integrity|yarn_"
)
_KNOWN = tuple(_PREFIXES.split("|"))


def is_known(name: str) -> bool:
    """Whether an argument (spelled with underscores) belongs to a family that Megatron-LM 0.20 has.

    >>> is_known("lr_decay_style"), is_known("tensr_model_parallel_size")
    (True, False)
    """
    return name.startswith(_KNOWN)
