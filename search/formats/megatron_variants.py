"""Software whose launch scripts have Megatron-LM's arguments: ms-swift's ``megatron``, MindSpeed, slime and
Pai-Megatron-Patch; and YAML files with a section of them: its own functional tests and AMD Primus.

Sources: ``swift/megatron/arguments/megatron_args.py`` of ms-swift 4.6.0; ``features_manager`` of Ascend/MindSpeed and
of MindSpeed-LLM; ``megatron_patch/arguments.py`` of Pai-Megatron-Patch.
"""

import re
from collections.abc import Callable

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.megatron_lm import in_section, megatron
from forerun.search.formats.syntax import is_script, is_yaml


def _marked(written: Callable[[LaunchFile], bool], mark: str) -> Callable[[LaunchFile], bool]:
    pattern = re.compile(mark, re.MULTILINE)
    return lambda source: written(source) and pattern.search(source.text) is not None


ULYSSES = "context_parallel_algo={value}: where it exchanges heads (Ulysses), read as cp all the same"
MS_SWIFT = megatron(
    title="ms-swift with Megatron-core",
    marks=_marked(is_script, r"(^|\s)megatron\s+(sft|pt|rlhf)\b"),
    name="ms-swift-megatron",
    version="4",
    renamed={"max_length": "seq_length"},
    assumed={
        "micro_batch_size": "1",
        "global_batch_size": "16",
        "recompute_granularity": "selective",
        "use_distributed_optimizer": True,
        "moe_token_dispatcher_type": "alltoall",
        "bf16": True,
    },
    valued=True,
    known=(
        r"model|load|save|dataset|split_dataset|packing|max_epochs|finetune|lr|min_lr|eval|log|num_workers|tuner|train_type|lora|"
        r"target_modules|freeze|vit_|padding|group_by|template|system|loss_scale|rlhf|beta|rpo|ref_|cached|add_version|streaming|"
        r"gradient_accumulation_fusion|num_train|dataloader|truncation|attn_impl|attention_backend|torch_dtype|columns|modules|sft|output_dir|merge|adapters|new_special|task_type"
    ),
    says={"tuner_type": "{value} is trained; a strategy is of training all parameters"},
)
MINDSPEED = megatron(
    title="MindSpeed",
    marks=_marked(is_script, r"ASCEND|NPUS?_PER_NODE|mindspeed|--use-ascend|--reuse-fp32-param|ascend-toolkit"),
    name="mindspeed",
    version="2.3",
    known=(
        r"use_(ascend|fused|mc2|mcore|cp_send|distributed|flash|rotary|fusion|alibi|ring|nd_matmul)|reuse_fp32|swap_attention|"
        r"ampipe|pipe_experts|optimize_(recomp|send)|enable_(high_avail|recompute|backward|overlap)|context_parallel_(algo|kv)|"
        r"cp_(window|attention)|ulysses|megatron_cp|attention_mask_type|moe_(tp|without|fb|zero|alltoall|adaptive|unperm)|"
        r"recompute_(activation|norm|in)|adaptive_(memory|recompute)|smart_swap|schedules_method|dualpipev|num_layer_list|"
        r"noop_layers|jit|stage|prompt|is_instruction|tokenizer|finetune|load_checkpoint|square|fix_router|shape_order|"
        r"npu_|no_post|coc_|gemm_|hccl|auto_|spec|mla_|q_lora|layernorm_column|ai_|unaligned|geglu|input_|scale_|"
        r"(q|kv)_lora|qk_|n_(shared|group)|topk_group|routed_|seq_aux|norm_topk|router_gating|first_k_dense|multi_head_latent|"
        r"tp_2d|tp_x|tp_y|use_tp|sequence_parallel_|pad_to|variable_seq|padded|fp8|hdp|o2|rope|beta_|partial|post_norm"
    ),
    says={
        "context_parallel_algo": ULYSSES,
        "tp_2d": "2-D tensor parallelism is read as tp",
        "schedules_method": "{value}: two chunks on every rank, the second on the way back; read as 1f1b",
        "swap_optimizer": "optimizer states move to the host and back; read as optimizer-offload",
    },
    extends="moe_tp_extend_ep",
)
PAI = megatron(
    title="Pai-Megatron-Patch",
    marks=_marked(is_script, r"--patch-tokenizer-type|PAI-Megatron|Megatron-Patch|--extra-vocab-size"),
    name="pai-megatron-patch",
    version="0.11",
    known=(
        r"patch_tokenizer|extra_vocab|max_padding|train_mode|dataset|train_data|valid_data|optimizer_offload|n_(head|shared)|"
        r"intermediate_size|rms_norm|kv_|sliding|shape_|use_llama|expert_interval|moe|generation|repetition|padding|rotary_scale|"
        r"transformer_type|eod_mask|sft|num_fewshot|freeze|image|task_list|qk_|v_head|q_lora|router|moe_train_capacity|language"
    ),
)


SLIME = megatron(
    title="slime",
    marks=_marked(is_script, r"--actor-num-(nodes|gpus-per-node)"),
    name="slime",
    version="0.2",
    assumed={"bf16": True},
    known=(
        r"actor_|rollout|n_samples|num_rollout|num_epoch|num_steps|hf_checkpoint|ref_load|prompt_data|input_key|label_key|"
        r"rm_|loss_type|advantage|kl_|entropy|balance_data|colocate|sglang|debug_|max_tokens|model_name|update_weight|"
        r"over_sampling|dynamic_sampling|critic_|n_sample|custom_|tis_|get_mismatch|metadata|apply_chat|ci_"
    ),
    says={"max_tokens_per_gpu": "micro-batches of up to {value} tokens are read as mbs=1"},
)
TESTS = megatron(
    title="Megatron-LM's functional tests",
    marks=_marked(is_yaml, r"^MODEL_ARGS:"),
    name="megatron-lm-test",
    version="0.20",
    syntax=in_section("MODEL_ARGS."),
)
PRIMUS = megatron(
    title="AMD Primus",
    marks=_marked(is_yaml, r"^\s+pre_trainer:"),
    name="primus",
    version="0.2",
    syntax=in_section("modules.pre_trainer.overrides."),
    known=(r"stderr_sink|primus|turbo|enable_primus|disable_|wandb|tensorboard|profile|mock_data|log_|mlflow|use_"),
)
FORMATS = tuple(map(format_of, (TESTS, PRIMUS, SLIME, MS_SWIFT, PAI, MINDSPEED)))
"""In the order in which a file is tried."""
