"""axolotl 0.19: one YAML file.

Source: ``axolotl/utils/schemas`` and ``_get_parallel_config_kwargs`` of ``axolotl/utils/distributed.py``, which gives
what tp, cp and ep leave of the devices to FSDP, and what ``dp_shard_size`` leaves to copies.
"""

import re

from forerun.search.formats.adapters import LORA, QUANTISED, RANK
from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import REST, Launcher, LaunchFacts, LaunchKey
from forerun.search.formats.syntax import document, is_yaml
from forerun.search.formats.tables.trainer import (
    ACCUMULATION,
    FSDP_CHECKPOINTING,
    GRADIENT_CHECKPOINTING,
    PRECISIONS,
    read_deepspeed,
    read_fsdp,
)

HARMLESS = re.compile(
    r"base_model|model_type|tokenizer|processor|is_|trust_|load_in|strict|dataset|data|val_set|test_|output_dir|sample_|"
    r"pad_to|eval|wandb|mlflow|comet|use_|num_epochs|max_steps|optim|lr_|learning_rate|train_on|group_by|tf32|flash|"
    r"xformers|sdp_|sdpa|eager|attn_|attention|xpos|s2_|early_|resume|auto_resume|logging|log_|warmup|save|weight_decay|"
    r"special_tokens|tokens|added_|chat_|plugins?|liger|cut_cross|tiled_|gradient_checkpointing_kwargs|max_grad|adam|"
    r"debug|hub_|push_|seed|lora|peft|relora|qlora|gptq|bnb|quant|qat|noisy|neftune|dpo|rl|kto|orpo|simpo|trl|reward|"
    r"shuffle|unfrozen|torch_|ddp|dist|deepspeed|fsdp|rope|overrides|revision|activation_offloading|cosine|mean_resizing|"
    r"experts?_|embedding|unsloth|heads_k|ring_|batch_flatten|eot|default_|image|min_sample|skip_|gc_|profiler|include_|"
    r"low_cpu|device|local_rank|llama|mistral|mixtral|dataloader|streaming|pretrain|excess|remove_|user_|lisa|galore|"
    r"curriculum|router|aux_|scaling|sequence_len_overflow|diffusion|process_|accelerat|bf16_|swanlab|trackio|ray_|vllm|"
    r"expert_parallel_|nccl|fix_|jinja|hf_|otel|cls_|freeze_|dion|muon"
)


def adjust(facts: LaunchFacts) -> None:
    """Settle what is sharded, and that expert ranks are replicas of their own."""
    read_deepspeed(facts, "deepspeed")
    read_fsdp(facts)
    if facts.get("shard") is not None and facts.get("replicate") is None:
        facts.values["replicate"] = REST
    elif facts.get("replicate") is not None and facts.get("shard") is None:
        facts.values["shard"] = REST
    if facts.get("ep", 1) > 1 and facts.get("shard") is not None:
        facts.values["dp"] = facts.get("ep")


LAUNCHER = Launcher(
    name="axolotl",
    version="0.19",
    title="axolotl",
    keys=(
        LaunchKey(names=("micro_batch_size",), decides="mbs"),
        ACCUMULATION,
        LaunchKey(names=("batch_size",), decides="local_batch", meaning="sequences of a device and step"),
        LaunchKey(names=("sequence_len",), decides="seq_len", meaning="longest sequence"),
        LaunchKey(names=("tensor_parallel_size",), decides="tp"),
        LaunchKey(names=("context_parallel_size", "sequence_parallel_degree"), decides="cp"),
        LaunchKey(names=("expert_parallel_size",), decides="ep"),
        LaunchKey(names=("dp_shard_size",), decides="shard"),
        LaunchKey(names=("dp_replicate_size",), decides="replicate"),
        FSDP_CHECKPOINTING,
        GRADIENT_CHECKPOINTING,
        *PRECISIONS,
        LaunchKey(
            names=("adapter",),
            decides="adapter",
            words={"lora": LORA, "qlora": QUANTISED, "none": None, "": None, "*": "an adapter"},
        ),
        RANK,
    ),
    syntax=document,
    marks=lambda source: is_yaml(source) and _marked(source),
    harmless=lambda name: HARMLESS.match(name) is not None,
    adjust=adjust,
)


def _marked(source: LaunchFile) -> bool:
    lines = r"^(base_model|micro_batch_size|sequence_len|sample_packing)\s*:"
    return len(set(re.findall(lines, source.text, re.MULTILINE))) > 1
