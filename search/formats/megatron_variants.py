"""Software whose launch scripts have Megatron-LM's arguments: ms-swift's ``megatron``, slime and
Pai-Megatron-Patch; and YAML files with a section of them: its own functional tests and AMD Primus.

Sources: ``swift/megatron/arguments/megatron_args.py`` of ms-swift 4.6.0; ``megatron_patch/arguments.py`` of
Pai-Megatron-Patch.
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
    assumed={"bf16": True},
    known=(r"stderr_sink|primus|turbo|enable_primus|disable_|wandb|tensorboard|profile|mock_data|log_|mlflow|use_"),
)
FORMATS = tuple(map(format_of, (TESTS, PRIMUS, SLIME, MS_SWIFT, PAI)))
"""In the order in which a file is tried."""
